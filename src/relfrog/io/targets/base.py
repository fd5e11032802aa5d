"""The interface of a target, and its checks before anything is written."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from relfrog.errors import OutputError, RelFrogError, UsageError
from relfrog.io.secrets import hide_password, scrub, secrets_in
from relfrog.io.sources.sql import error_text

__all__ = ["Existing", "Target", "no_schema"]


@dataclass(frozen=True)
class Existing:
    """What already has the name of the table; ``kind`` is ``table``, ``view`` or another."""

    kind: str
    name: str
    #: Views and tables that refer to it.
    needed_by: tuple[str, ...] = ()
    #: The owner, if only they may drop it.
    owner: str = ""


class Target(ABC):
    """A table of a database, to be created or replaced.

    Attributes:
        label: The database's address for messages, without any password.
        secrets: Strings that must not appear in any message.
        schema: The schema of the table; None for the database's default.
        name: The table's name.
    """

    schemes: ClassVar[tuple[str, ...]]
    has_schemas: ClassVar[bool] = True
    #: The longest name the database accepts, in bytes.
    max_name_bytes: ClassVar[int] = 10_000
    #: Whether two columns may differ in case alone.
    case_sensitive: ClassVar[bool] = False

    @classmethod
    def accepts(cls, address: str) -> bool:
        """Whether the scheme of the URL is known; a driver after ``+`` is replaced."""
        scheme = address.split(":", 1)[0] if "://" in address else ""
        return scheme.split("+")[0].lower() in cls.schemes

    def __init__(self, address: str, table: str) -> None:
        self.label, self.secrets = hide_password(address), secrets_in(address)
        scheme, mark, rest = address.partition("://")
        self.address = f"{scheme.lower()}{mark}{rest}"
        schema, dot, name = table.partition(".") if self.has_schemas else ("", "", table)
        self.schema = schema if dot else None
        self.name = name if dot else table
        if not self.name or self.schema == "" or "\0" in table:
            raise UsageError(f"{table!r} cannot be a table's name. Choose another: --table NAME")
        self._check_lengths([self.name])
        #: The temporary name under which rows are written.
        self._partial = f"relfrog_partial_{uuid.uuid4().hex[:16]}"

    def __str__(self) -> str:
        full = self.name if self.schema is None else f"{self.schema}.{self.name}"
        return f"table {full} of {self.label}"

    def check(self, overwrite: bool) -> None:
        """Check, before there are results, that the table can be written.

        Raises:
            OutputError: The database cannot be opened or written, or the name is taken.
        """
        self._check(overwrite)

    def write(self, data: Any, overwrite: bool) -> None:
        """Create the table with the rows of an Arrow table, in order.

        Raises:
            OutputError: It cannot be written; nothing was changed.
        """
        self._check_columns(data.column_names)
        self._write(data, overwrite)

    @abstractmethod
    def _check(self, overwrite: bool) -> None:
        """Open the database, check the name, and try to create a table."""

    @abstractmethod
    def _write(self, data: Any, overwrite: bool) -> None:
        """Open the database, check the name, and write."""

    def _check_lengths(self, names: Sequence[str]) -> None:
        for name in names:
            size = len(name.encode(errors="replace"))
            if size > self.max_name_bytes:
                raise OutputError(
                    f"{self.label} allows names of {self.max_name_bytes} bytes at most, but "
                    f"{name[:40]!r}... has {size}. Choose a shorter one."
                )

    def _check_columns(self, names: Sequence[str]) -> None:
        self._check_lengths(names)
        seen: dict[str, str] = {}
        for name in names:
            other = seen.setdefault(name if self.case_sensitive else name.lower(), name)
            if other != name:
                raise OutputError(
                    f"{self} cannot have both columns {other!r} and {name!r}, which differ only "
                    "in case. Write to a file: --out FILE.csv"
                )

    def _check_existing(self, found: Existing | None, overwrite: bool) -> None:
        if found is None:
            return
        if found.kind != "table":
            raise OutputError(
                f"{found.name} is a {found.kind} in {self.label}; only a table can be replaced. "
                "Choose another name: --table NAME"
            )
        if not overwrite:
            raise OutputError(
                f"{self} already exists. Replace it with --overwrite, or choose another name: "
                "--table NAME"
            )
        if found.owner:
            raise OutputError(
                f"{self} belongs to {found.owner}. Write as that user, or choose another name: "
                "--table NAME"
            )
        if found.needed_by:
            first, count = found.needed_by[0], len(found.needed_by)
            who = f"{first} refers" if count == 1 else f"{count:,} others ({first}, ...) refer"
            raise OutputError(
                f"{self} cannot be replaced: {who} to it. Choose another name: --table NAME"
            )

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Raise errors of the database as OutputError, without secrets."""
        errors: tuple[type[Exception], ...] = (OSError, ValueError, *self._errors())
        try:
            yield
        except RelFrogError as error:
            raise type(error)(scrub(str(error), self.secrets)) from None
        except errors as error:
            raise OutputError(
                f"{self} cannot be written: {error_text(error, self.secrets)}. Nothing was "
                "changed. Fix this, or write to a file: --out FILE.csv"
            ) from None

    @abstractmethod
    def _errors(self) -> tuple[type[Exception], ...]:
        """The exceptions of the driver."""

    def _open_error(self, error: BaseException, remedy: str) -> OutputError:
        text = error_text(error, self.secrets)
        return OutputError(f"{self.label} cannot be opened: {text}. {remedy}")


def no_schema(schema: str, present: Sequence[str]) -> OutputError:
    """The error for a schema that does not exist."""
    return OutputError(f"there is no schema {schema}. Schemas: {', '.join(present[:12])}")
