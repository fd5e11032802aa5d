"""Arrays in NumPy's format, written from front to back and opened without reading them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["Writer", "make_array", "open_array"]

#: Bytes of zeros that are written at a time.
_ZEROS = 1 << 22


class Writer:
    """Writes an array piece by piece: a full disk is then an error, and no signal.

    Args:
        path: the file.
        dtype: its type.
        shape: its shape, in the end.
    """

    def __init__(self, path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape, self._written = np.dtype(dtype), shape, 0
        self._file = open(path, "wb")
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows; they are converted to the type of the array."""
        assert rows.shape[1:] == self.shape[1:]
        self._file.write(np.ascontiguousarray(rows, self.dtype).data)
        self._written += len(rows)

    def fill(self) -> None:
        """Add zeros for all rows that are missing."""
        self._file.flush()
        begin = self._file.tell()
        left = (self.shape[0] - self._written) * int(np.prod(self.shape[1:])) * self.dtype.itemsize
        if left and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file.fileno(), begin, left)
        else:
            for first in range(0, left, _ZEROS):
                self._file.write(bytes(min(_ZEROS, left - first)))
        self._written = self.shape[0]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close()
        assert kind is not None or self._written == self.shape[0]


def make_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array in a file, zeros at first, that is mapped into memory to be filled in any order.

    Its room on the disk is taken at once: a full disk is then an error, and no signal.
    """
    with Writer(path, dtype, shape) as writer:
        writer.fill()
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.asarray(np.load(path, mmap_mode="r+", allow_pickle=False))


def open_array(path: Path) -> NDArray[Any]:
    """Map an array into memory; what somebody writes to it does not reach the file.

    Raises:
        OSError, ValueError: It is missing or damaged.
    """
    found = np.load(path, mmap_mode=None if _is_empty(path) else "c", allow_pickle=False)
    return np.asarray(found)


def _is_empty(path: Path) -> bool:
    """Whether an array has no values, which cannot be mapped."""
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
        shape = (np.lib.format.read_array_header_2_0(file) if read is None else read(file))[0]
    return 0 in shape
