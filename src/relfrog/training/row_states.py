"""What rows send, kept until all who read it are done: in memory, or on disk where it is much."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relfrog.errors import RunError
from relfrog.graph.unrolled import Occurrences

__all__ = ["RowIndex", "RowStates"]

#: Arrays larger than this are files: the system writes them out when memory runs short.
IN_MEMORY = 1 << 28


class RowIndex:
    """The distinct rows of a table that are needed, and the position of each.

    Rows are added with `add`; the first use of `rows` or `find` closes the index.

    Args:
        size: rows of the table.
        groups: number of cut-offs that rows are seen at.
        dense: whether to mark rows in an array over the whole table, which suits many rows of one
            cut-off; otherwise memory follows the rows that are needed.
    """

    def __init__(self, size: int, groups: int, dense: bool) -> None:
        self.size = max(size, 1)
        self._marked = np.zeros(self.size, bool) if dense and groups == 1 else None
        #: Whether every row that exists is in.
        self.whole = False
        self._parts: list[NDArray[np.int64]] = []
        self._numbers: NDArray[np.int64] | None = None
        self._place = np.empty(0, np.int32)

    def add(self, some: Occurrences) -> None:
        """Add rows; those that are in already count once."""
        assert self._numbers is None, "rows were looked up already"
        if self._marked is not None:
            self._marked[some.rows] = True
        else:
            self._parts.append(np.unique(some.groups * self.size + some.rows))

    def add_all(self, there: NDArray[np.bool_]) -> None:
        """Add all rows that exist, of an index that is dense. Shape [rows of the table]."""
        assert self._numbers is None, "rows were looked up already"
        assert self._marked is not None, "only many rows of one cut-off are worth it"
        self._marked[: len(there)] = there
        self.whole = True

    def _close(self) -> NDArray[np.int64]:
        if self._numbers is None:
            if self._marked is not None:
                self._numbers = np.flatnonzero(self._marked)
                self._place = np.cumsum(self._marked, dtype=np.int32) - 1
                self._marked = None
            else:
                self._numbers = np.unique(np.concatenate([np.empty(0, np.int64), *self._parts]))
                self._parts = []
        return self._numbers

    @property
    def rows(self) -> Occurrences:
        """The rows, in order."""
        numbers = self._close()
        return Occurrences(numbers % self.size, numbers // self.size)

    def find(self, some: Occurrences) -> Tensor:
        """Positions of rows that were added. int64, shape [rows]."""
        numbers = self._close()
        if len(self._place):
            return torch.from_numpy(self._place[some.rows].astype(np.int64))
        return torch.from_numpy(np.searchsorted(numbers, some.groups * self.size + some.rows))

    def __len__(self) -> int:
        return len(self._close())


class RowStates:
    """Embeddings of the rows of an index; use as a context manager, which deletes the files."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files = 0

    def __enter__(self) -> RowStates:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def empty(self, rows: int, channels: int, dtype: torch.dtype) -> Tensor:
        """An array to write to. Shape [rows, channels].

        Raises:
            RunError: The disk is full.
        """
        size = rows * channels * dtype.itemsize
        if size <= IN_MEMORY:
            return torch.empty(rows, channels, dtype=dtype)
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(
                prefix="relfrog-", ignore_cleanup_errors=True
            )
        self._files += 1
        path = Path(self._folder.name) / f"{self._files}.bin"
        try:
            with open(path, "wb") as file:
                # Reserved now: a write to a mapped page that has no room on disk ends the process.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
        except OSError as error:
            raise RunError(
                f"{self._folder.name}: no room for {size / 1e9:.1f} GB of intermediate results "
                f"({error.strerror}). Set TMPDIR to a folder on a larger disk."
            ) from None
        array = np.memmap(
            path, torch.empty(0, dtype=dtype).numpy().dtype, "r+", shape=(rows, channels)
        )
        return torch.from_numpy(array)
