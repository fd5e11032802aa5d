"""Estimate the memory that training and checks need, and compare it with the machine's."""

from __future__ import annotations

import os
import warnings
from typing import Any

from relfrog.datasets.dataset import TableFile
from relfrog.errors import DatasetError, RelFrogWarning, UsageError
from relfrog.kinds import MODELS
from relfrog.support.memory import free_memory, total_memory
from relfrog.support.text import size

__all__ = ["VARIABLE", "check_room", "estimate"]


#: Environment variable that overrides the detected memory: a number of GB, or "ignore".
VARIABLE = "RELFROG_MEMORY"
#: Bytes that Python and the libraries use before any row is read.
BASE = 600 << 20
#: Bytes per value by kind: as read, as a tensor, and temporarily during encoding.
BYTES = {"integer": 40, "number": 40, "boolean": 24, "time": 120, "text": 160, "list": 200}
#: Bytes per row while a column is prepared: its values, ranks and codes.
ONE_COLUMN = 64
#: Additional bytes for training: statistics of labels, trees, and networks of any size.
COUNTING, TREES, NETWORK = 50 << 20, 600 << 20, 250 << 20
#: The most rows of a batch per seed, and numbers stored per channel of such a row.
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
    """Estimate the peak memory of training, in bytes, from the headers of the tables.

    Measured peaks are between half of the estimate and all of it; see docs/promises.md.

    Args:
        tables: the tables of the dataset.
        model: the model to train.
        channels: channels of a network.
        layers: layers of a network.
        batch_size: seeds per step.
        text_channels: numbers per text.
    """
    import pyarrow.parquet as pq

    total = BASE
    entry = MODELS[model]
    if entry.network or entry.ensemble:
        rows = min(sum(table.rows for table in tables), ROWS_PER_SEED * batch_size)
        work = NETWORK + 4 * NUMBERS * rows * channels * layers
        total += max(work, TREES) if entry.ensemble else work
    else:
        total += TREES if entry.learns else COUNTING
    streamed = total
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
        # Pointers in both directions, and times.
        pointers = table.rows * (16 * len(table.fkeys) + 16)
        total, streamed = total + pointers, streamed + pointers
    if entry.ensemble or (entry.learns and not entry.network):
        return total
    # All others take columns from the store, which is made of one column at a time.
    return min(total, streamed + ONE_COLUMN * max((table.rows for table in tables), default=0))


def check_room(name: str, tables: list[TableFile], **settings: Any) -> None:
    """Check, before any work, that a dataset fits into memory.

    The environment variable RELFROG_MEMORY overrides the detected memory: a number of GB, or
    "ignore".

    Args:
        name: name of the dataset.
        tables: its tables.
        settings: settings of the model, for `estimate`; others are ignored.

    Raises:
        DatasetError: It needs more memory than the machine has.
        UsageError: The environment variable is neither a number nor "ignore".

    Warns:
        RelFrogWarning: It needs more memory than is free.
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
            f"{name} needs about {size(needed)} of memory to work with; this machine has "
            f"{size(total)}. Its largest tables: {shown}. Import fewer tables, columns or rows, "
            f"or take a larger machine. To go on all the same: {VARIABLE}=ignore"
        )
    if free and needed > free:
        text = f"{name} needs about {size(needed)} of memory; {size(free)} are free."
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
