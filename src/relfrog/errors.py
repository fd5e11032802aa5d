"""The exceptions RelFrog raises on purpose.

::

    RelFrogError
    ├── SourceError    a database or folder of files cannot be opened or read
    ├── SchemaError    keys, columns or types do not fit together
    ├── DatasetError   a dataset folder is missing, damaged or in the way
    ├── RunError       a run folder is missing, damaged, unfinished or in use
    ├── TaskError      a task is wrong: its SQL, its columns, its splits
    ├── OutputError    results cannot be written: in the way, or out of reach
    └── UsageError     options that contradict each other

Each message says what is wrong, where, how often, and what to do next. The command line prints
it as it is and exits with 1; a traceback appears only with ``--debug``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "DatasetError",
    "OutputError",
    "RelFrogError",
    "RelFrogWarning",
    "RunError",
    "SchemaError",
    "SourceError",
    "TaskError",
    "UsageError",
    "unknown",
]


class RelFrogError(Exception):
    """Something the user can mend; the root of all the others."""


class SourceError(RelFrogError):
    """A source cannot be opened or read."""


class SchemaError(RelFrogError):
    """Keys, columns or types do not fit together."""


class DatasetError(RelFrogError):
    """A dataset folder is missing, damaged or in the way."""


class RunError(RelFrogError):
    """A run folder is missing, damaged, unfinished or in use."""


class TaskError(RelFrogError):
    """A task is wrong: its SQL, its columns or its splits."""


class OutputError(RelFrogError):
    """Results cannot be written: something is in the way, or the place is out of reach."""


class UsageError(RelFrogError):
    """Options that contradict each other."""


class RelFrogWarning(UserWarning):
    """Something that went on all the same, and that the user should know."""


def unknown(what: str, name: str, known: Iterable[str]) -> SchemaError:
    """The error for a name that does not exist, with the nearest that does."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known[:12])}"
    return SchemaError(f"there is no {what} {name!r}; {hint}")
