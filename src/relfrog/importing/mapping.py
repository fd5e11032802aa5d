"""The mapping: what each table, column and key of the source becomes, and who decided it.

``relfrog import --dry-run`` writes it as YAML; a user corrects it and gives it back with
``--mapping``; the finished dataset folder keeps it as ``mapping.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from relfrog.importing.column_types import ColumnType

__all__ = [
    "ForeignKeyMapping",
    "ImportMapping",
    "Notice",
    "TableMapping",
]


#: Who decided: the database, RelFrog (with evidence), or the user.
Origin = Literal["declared", "proposed", "chosen", "none"]


@dataclass(frozen=True)
class Notice:
    """Something the user should know.

    Attributes:
        kind: ``changed`` (values or names), ``left out``, ``suggestion``, ``leak`` (visible earlier
            than it should be) or ``note``.
        table: The source's table; empty if it concerns all.
        column: The column, if it concerns one.
        text: What, how many, and an example.
    """

    kind: Literal["changed", "left out", "suggestion", "leak", "note"]
    table: str
    column: str
    text: str

    @property
    def place(self) -> str:
        """``table.column``, as far as it has them."""
        return ".".join(part for part in (self.table, self.column) if part)


@dataclass
class ForeignKeyMapping:
    """A foreign key with its evidence; ``used`` is False for a suggestion."""

    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    origin: Origin
    evidence: str = ""
    used: bool = True
    #: Whether to ignore case, accents and trailing spaces, as the database does.
    loose: bool = False

    def __str__(self) -> str:
        return f"{', '.join(self.columns)} -> {self.parent}.{', '.join(self.parent_columns)}"


@dataclass
class TableMapping:
    """A table; names are those of the source, except ``name``, its name in the dataset."""

    name: str
    rows: int
    columns: dict[str, ColumnType]
    primary_key: tuple[str, ...] = ()
    primary_key_origin: Origin = "none"
    primary_key_evidence: str = ""
    time: str | None = None
    time_origin: Origin = "none"
    time_reason: str = ""
    foreign_keys: list[ForeignKeyMapping] = field(default_factory=list)
    #: Rows without a time of their own are known from the latest of the rows that these keys name.
    time_keys: list[ForeignKeyMapping] = field(default_factory=list)
    #: The tables and columns whose distinct values it was made of; empty for one of the source.
    made_from: list[tuple[str, str]] = field(default_factory=list)

    def used_keys(self) -> list[ForeignKeyMapping]:
        """The foreign keys that become part of the dataset."""
        return [key for key in self.foreign_keys if key.used]

    def words_for(self, keys: Iterable[ForeignKeyMapping]) -> list[str]:
        """Keys as :meth:`keys_named` understands them: their parents, where that is enough."""
        parents = [key.parent for key in self.used_keys()]
        return [
            key.parent
            if parents.count(key.parent) == 1 and key.parent not in self.columns
            else ",".join(key.columns)
            for key in keys
        ]

    def keys_named(self, word: str) -> list[ForeignKeyMapping]:
        """The used key of these columns; or else all used keys to the table of this name."""
        own = [key for key in self.used_keys() if ",".join(key.columns) == word]
        return own or [key for key in self.used_keys() if key.parent == word]


@dataclass
class ImportMapping:
    """All tables, by name in the source, and the split times."""

    source: str
    tables: dict[str, TableMapping]
    val: str
    test: str
    split_reason: str

    def to_yaml(self) -> str:
        """The mapping file, for a user to read and correct."""
        import yaml

        head = (
            "# What RelFrog makes of this source. Correct it, then: "
            "relfrog import SOURCE DEST --mapping THIS_FILE\n"
            "# Remove a table, a key or a column's line to leave it out or to have it proposed "
            "anew.\n"
            "# Types: integer, number, boolean, time, text, list, drop; 'time epoch ms' and\n"
            "# 'time %d.%m.%Y' give a format. 'origin', 'evidence', 'reason' and 'rows' are only "
            "for reading.\n"
            "# To take up a suggestion, set its 'use' to true.\n"
            "# A row without a time is known from the latest of the rows that it names: "
            "'inherited_from'\n"
            "# lists the tables, or foreign keys; [] and no column: its rows are always visible.\n"
        )
        body = yaml.safe_dump(
            self.to_dict(), sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
        )
        return head + body

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in the YAML file."""
        tables: dict[str, Any] = {}
        for name, table in self.tables.items():
            columns: dict[str, Any] = {}
            for column, kind in table.columns.items():
                columns[column] = str(kind)
                if kind.reason:
                    columns[column] = {"type": str(kind), "reason": kind.reason}
            tables[name] = {
                "name": table.name,
                "rows": table.rows,
                **({"made_from": [list(p) for p in table.made_from]} if table.made_from else {}),
                "primary_key": {
                    "columns": list(table.primary_key),
                    "origin": table.primary_key_origin,
                    "evidence": table.primary_key_evidence,
                },
                "time": {
                    "column": table.time,
                    "inherited_from": table.words_for(table.time_keys),
                    "origin": table.time_origin,
                    "reason": table.time_reason,
                },
                "foreign_keys": [
                    {
                        "columns": list(key.columns),
                        "parent": key.parent,
                        "parent_columns": list(key.parent_columns),
                        "use": key.used,
                        **({"loose": True} if key.loose else {}),
                        "origin": key.origin,
                        "evidence": key.evidence,
                    }
                    for key in table.foreign_keys
                ],
                "columns": columns,
            }
        return {
            "source": self.source,
            "val": self.val,
            "test": self.test,
            "split_reason": self.split_reason,
            "tables": tables,
        }
