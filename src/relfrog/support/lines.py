"""Lines of files that may be longer than any memory: a packed file of a few megabytes can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from relfrog.support.memory import total_memory

__all__ = ["LONGEST_LINE", "bounded_lines", "most_rows"]

#: The longest line of a file that is read, in characters or bytes.
LONGEST_LINE = 32 << 20
#: Bytes that a row of text takes in memory, at least.
_ROW = 200


_Line = TypeVar("_Line", str, bytes, covariant=True)


class _File(Protocol[_Line]):
    def readline(self, size: int, /) -> _Line: ...


def bounded_lines(file: _File[_Line]) -> Iterator[_Line]:
    """The lines of a file from where it is, each with its end.

    Raises:
        OSError: A line is too long.
    """
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise OSError(f"it has a line of more than {LONGEST_LINE:,} characters")
        yield line


def most_rows() -> int:
    """How many rows of text, read into lists, this machine's memory holds at most."""
    return total_memory() // _ROW or 1 << 40
