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
    ├── ClusterError   a cluster cannot be reached, or a node of it failed
    └── UsageError     options that contradict each other

Each message says what is wrong, where, how often, and what to do next. The command line prints
only the message and exits with 1; ``--debug`` shows the traceback.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = [
    "ClusterError",
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
    "without_passwords",
]


#: The names of parameters of addresses that hold secrets: of databases, and of folders of others.
SECRET_NAME = (
    r"(?:[^=&;\s]*(?:pass|pwd|secret|token|delegation|credential|signature|(?:api|access|account)_?key)"
    r"[^=&;\s]*|sas|sig)"
)
#: A user's password in an address; also in one that was taken for a path, which loses slashes. A
#: password may hold anything: it ends with the last at sign. And one that is a parameter.
_USER = re.compile(r"(?P<user>\b[a-z][a-z0-9+.-]*:/{1,3}[^\s:@/]*:)\S*@", re.I)
_PARAMETER = re.compile(rf"(?P<key>[?&;]{SECRET_NAME}=)[^&;\s'\"]*", re.I)


def without_passwords(text: str) -> str:
    """A text in which the passwords of all addresses are ``***``."""
    return _PARAMETER.sub(r"\g<key>***", _USER.sub(r"\g<user>***@", text))


class RelFrogError(Exception):
    """An error that the user can fix; the base class of all others.

    Whatever a message quotes, it shows no password of an address.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_passwords(a) if isinstance(a, str) else a for a in args))


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


class ClusterError(RelFrogError):
    """A cluster cannot be reached, or a node of it failed."""


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
