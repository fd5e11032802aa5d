"""The exceptions RelFrog raises on purpose.

::

    RelFrogError
    ├── SourceError    a database or folder of files cannot be opened or read
    ├── SchemaError    keys, columns or types do not fit together
    ├── DatasetError   a dataset folder is missing or damaged, or exists already
    ├── RunError       a run folder is missing, damaged, unfinished or in use
    ├── TaskError      a task is wrong: its SQL, its columns, its splits
    │   └── QueryError    a question in words cannot be read, or not be answered
    ├── StoreError     what was prepared cannot be kept: a full or read-only disk
    ├── OutputError    results cannot be written
    └── UsageError     options that contradict each other

Each message says what is wrong, where, how often, and what to do next. The command line prints
only the message and exits with 1; ``--debug`` shows the traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "DatasetError",
    "OutputError",
    "QueryError",
    "RelFrogError",
    "RelFrogWarning",
    "RunError",
    "SchemaError",
    "SourceError",
    "StoreError",
    "TaskError",
    "UsageError",
    "unknown",
]


class RelFrogError(Exception):
    """An error that the user can fix; the base class of all others."""


class SourceError(RelFrogError):
    """A source cannot be opened or read."""


class SchemaError(RelFrogError):
    """Keys, columns or types do not fit together."""


class DatasetError(RelFrogError):
    """A dataset folder is missing or damaged, or exists already."""


class RunError(RelFrogError):
    """A run folder is missing, damaged, unfinished or in use."""


class TaskError(RelFrogError):
    """A task is wrong: its SQL, its columns or its splits."""


class QueryError(TaskError):
    """A question in words cannot be read, or cannot be answered without looking ahead."""


class StoreError(RelFrogError):
    """What was prepared cannot be kept in the cache folder: the disk is full or read-only."""


class OutputError(RelFrogError):
    """Results cannot be written: they exist already, or the place cannot be reached."""


class UsageError(RelFrogError):
    """Options that contradict each other."""


class RelFrogWarning(UserWarning):
    """A problem that did not stop the work, but that the user should know about."""


def unknown(what: str, name: str, known: Iterable[str]) -> SchemaError:
    """The error for an unknown name, with the closest known one."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known[:12])}"
    return SchemaError(f"there is no {what} {name!r}; {hint}")
