"""Memory: what a dataset will need, what there is, and which errors mean that it is too little."""

from __future__ import annotations

import os
import warnings
from typing import Any

from relfrog.datasets.dataset import TableFile
from relfrog.errors import DatasetError, RelFrogWarning, UsageError
from relfrog.kinds import MODELS
from relfrog.support.memory import free_memory, total_memory

__all__ = ["VARIABLE", "check_room", "estimate"]


#: Overrides what was found: how many GB there are, or "ignore" not to look at all.
VARIABLE = "RELFROG_MEMORY"
#: What Python and the libraries take before any row is read.
BASE = 600 << 20
#: Bytes per value by kind: as read, as a tensor, and what is held while one becomes the other.
BYTES = {"integer": 40, "number": 40, "boolean": 24, "time": 120, "text": 160, "list": 200}
#: What training takes besides: models that count, trees, and networks of any size.
COUNTING, TREES, NETWORK = 50 << 20, 600 << 20, 250 << 20
#: Rows of a batch per seed, at most, and numbers that are held for each channel of such a row.
ROWS_PER_SEED, NUMBERS = 64, 15


def estimate(
    tables: list[TableFile],
    *,
    model: str = "frog",
    channels: int = 64,
    layers: int = 2,
    batch_size: int = 512,
    text_channels: int = 32,
) -> int:
    """About how many bytes training on these tables takes at its peak; from their headers.

    Measured peaks lie between a half of it and all of it: docs/promises.md has them.

    Args:
        tables: of the dataset.
        model: what is trained.
        channels: of a network.
        layers: of a network.
        batch_size: seeds per step.
        text_channels: numbers per text.
    """
    import pyarrow.parquet as pq

    total = BASE
    if MODELS[model].network or model == "auto":
        rows = min(sum(table.rows for table in tables), ROWS_PER_SEED * batch_size)
        work = NETWORK + 4 * NUMBERS * rows * channels * layers
        total += max(work, TREES) if model == "auto" else work
    else:
        total += TREES if model == "lightgbm" else COUNTING
    for table in tables:
        file = pq.ParquetFile(table.path)
        with file:
            schema, metadata = file.schema, file.metadata
            for number in range(metadata.num_columns):
                name = schema.column(number).path.split(".")[0]
                kind = table.columns.get(name, "other")
                value = BYTES.get(kind, 80) + 4 * text_channels * (kind == "text")
                long = 0
                for group in range(metadata.num_row_groups if kind in ("text", "list") else 0):
                    long += metadata.row_group(group).column(number).total_uncompressed_size
                total += value * table.rows + 2 * long
        # Pointers both ways, and times.
        total += table.rows * (16 * len(table.fkeys) + 16)
    return total


def check_room(name: str, tables: list[TableFile], **settings: Any) -> None:
    """Say before any work begins if a dataset is too large for the machine.

    The environment variable RELFROG_MEMORY says how many GB there are, or "ignore".

    Args:
        name: of the dataset.
        tables: of the dataset.
        settings: of the model, as `estimate` takes them; others are passed over.

    Raises:
        DatasetError: It needs more memory than the machine has.
        UsageError: The variable holds something else.

    Warns:
        RelFrogWarning: It needs more than is free.
    """
    total, free = total_memory(), free_memory()
    if said := os.environ.get(VARIABLE, "").strip():
        if said.lower() == "ignore":
            return
        total = free = _stated(said)
    known = ("model", "channels", "layers", "batch_size", "text_channels")
    needed = estimate(tables, **{k: v for k, v in settings.items() if k in known})
    if total and needed > total:
        largest = sorted(tables, key=lambda t: -t.rows)[:3]
        shown = ", ".join(f"{t.name} with {t.rows:,} rows" for t in largest)
        raise DatasetError(
            f"{name} needs about {_size(needed)} of memory to train or predict; this machine has "
            f"{_size(total)}. Its largest tables: {shown}. Import fewer tables, columns or rows, "
            f"or take a larger machine. To go on all the same: {VARIABLE}=ignore"
        )
    if free and needed > free:
        text = f"{name} needs about {_size(needed)} of memory; {_size(free)} are free."
        warnings.warn(text, RelFrogWarning, stacklevel=2)


def _stated(text: str) -> int:
    """Bytes, from a number of GB."""
    try:
        found = int(float(text.lower().removesuffix("gb").strip()) * (1 << 30))
    except (ValueError, OverflowError):
        found = 0
    if found <= 0:
        raise UsageError(f"{VARIABLE} must be a number of GB or ignore (got {text!r}).")
    return found


def _size(count: int) -> str:
    return f"{count / (1 << 30):,.1f} GB"
