"""Predictions of models at times before validation, each learned from what was known by then.

Label statistics can be computed for any time, and boosted trees leave theirs when their settings
are chosen. So what a blend is made of need not hang on one validation split alone. Networks have
none: each time would take as long as their training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfrog.errors import RunError
from relfrog.models.backtest import Fold, known_by, plan_folds
from relfrog.support.tensors import read_arrays, save_arrays
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FILE", "Foretold", "aligned", "earlier_folds", "training_seeds"]

#: Where boosted trees leave what they predicted in backtests.
FILE = "backtests.safetensors"
#: The most seeds of a fold that are scored.
MOST_SCORED = 5_000


@dataclass(frozen=True, eq=False)
class Foretold:
    """Folds within the training time, and what a model predicted for their seeds.

    Attributes:
        folds: the folds, the earliest first, without validation.
        predicted: the predictions for the scored seeds of each. Shapes [scored, ...].
    """

    folds: list[Fold]
    predicted: list[NDArray[Any]]

    @classmethod
    def of(
        cls, prepared: Prepared, scored: Sequence[tuple[pd.Timestamp, NDArray[np.int64]]],
        predicted: Sequence[NDArray[Any]],
    ) -> Foretold:  # fmt: skip
        """From the times of the folds, and the training seeds that were scored, as positions."""
        train, window = training_seeds(prepared), prepared.task.timedelta
        folds = [Fold(cut, known_by(train, window, cut), some) for cut, some in scored]
        return cls(folds, list(predicted))

    def save(self, folder: Path) -> None:
        """Write them beside the model."""
        arrays = dict[str, NDArray[Any]]()
        for number, (fold, values) in enumerate(zip(self.folds, self.predicted, strict=True)):
            cut = fold.cut.to_datetime64().astype("datetime64[us]")
            arrays[f"cut {number}"] = cut.astype(np.int64).reshape(1)
            arrays[f"scored {number}"] = fold.scored
            arrays[f"predicted {number}"] = np.asarray(values, float)
        save_arrays(folder / FILE, arrays)

    @classmethod
    def load(cls, folder: Path, prepared: Prepared, shape: tuple[int, ...] = ()) -> Foretold | None:
        """Read them; None if there are none.

        Args:
            folder: of the model.
            prepared: the task.
            shape: of one prediction.

        Raises:
            RunError: The file is damaged, or of other training seeds.
        """
        path = folder / FILE
        if not path.is_file():
            return None
        train, split = training_seeds(prepared), prepared.opened.dataset.val_timestamp
        scored, predicted = [], []
        try:
            found = read_arrays(path)
            for number in range(len(found) // 3):
                at = np.datetime64(int(found[f"cut {number}"][0]), "us")
                some = found[f"scored {number}"]
                values = found[f"predicted {number}"].astype(float)
                if some.dtype != np.int64 or some.ndim != 1 or values.shape != (len(some), *shape):
                    raise ValueError("its arrays are odd")
                if ((some < 0) | (some >= len(train))).any():
                    raise ValueError("its seeds are not those of the task")
                if np.isinf(values).any():
                    raise ValueError("a prediction is infinite")
                if not at < split.to_datetime64() or (at < train.times).all():
                    raise ValueError("one of its times is not within the training time")
                scored.append((split + (at - split.to_datetime64()), some))
                predicted.append(values)
        except (OSError, ValueError, KeyError, IndexError, OverflowError) as error:
            raise RunError(f"{path} cannot be read ({error}). Train again.") from None
        return cls.of(prepared, scored, predicted)


def training_seeds(prepared: Prepared) -> Seeds:
    """The training seeds, also of a model that is already trained."""
    return prepared.train_seeds or prepared.opened.training_seeds(prepared.config.density)


def earlier_folds(prepared: Prepared, most: int = MOST_SCORED) -> list[Fold]:
    """The folds within the training time, each with at most so many seeds to be scored."""
    train, opened = training_seeds(prepared), prepared.opened
    cut, window = opened.dataset.val_timestamp, opened.task.timedelta
    *folds, _ = plan_folds(train, prepared.seeds("val"), window, cut)
    rng = np.random.default_rng(prepared.config.seed)
    return [replace(f, scored=np.sort(rng.permutation(f.scored)[:most])) for f in folds]


def aligned(folds: Sequence[Fold], others: Sequence[Fold]) -> bool:
    """Whether both are the same seeds at the same times."""
    return len(folds) == len(others) and all(
        a.cut == b.cut and np.array_equal(a.scored, b.scored)
        for a, b in zip(folds, others, strict=True)
    )
