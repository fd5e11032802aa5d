"""Arrays in NumPy's format, written from front to back and opened without reading them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["Writer", "open_array"]


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

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close()
        assert kind is not None or self._written == self.shape[0]


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
