"""What an import makes of a source, as tables and short lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from relfrog.cli.terminal import table, wrapped
from relfrog.support.text import number

if TYPE_CHECKING:
    from relfrog.importing.mapping import ImportMapping, Notice, TableMapping

__all__ = ["alike", "mapping_tables", "split_line"]

#: Who decided: what was only proposed deserves a look.
_ORIGINS = {"declared": "green", "chosen": "green", "proposed": "yellow"}
#: Alike notices that become one.
_MANY_ALIKE = 3


def alike(groups: list[list[Notice]]) -> Iterator[list[Notice]]:
    """Join what differs in names, numbers and examples alone, if there is much of it."""
    forms: dict[str, list[list[Notice]]] = {}
    for group in groups:
        notice, text = group[0], group[0].text
        for name in (notice.place, notice.table, notice.column):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "*", text) if name else text
        text = re.sub(r"'[^']*'", "*", text)
        forms.setdefault(re.sub(r"\d[\d.,:]*", "*", text), []).append(group)
    for same in forms.values():
        if len(same) >= _MANY_ALIKE:
            yield [notice for group in same for notice in group]
        else:
            yield from same


def mapping_tables(mapping: ImportMapping, written: Mapping[str, int] | None = None) -> str:
    """Tables, keys and times of an import, each with who decided it.

    Args:
        mapping: The mapping.
        written: The rows of each table as written, if it was.
    """
    rows, keys = [], []
    for name, given in mapping.tables.items():
        rows.append(
            [
                given.name,
                number(given.rows if written is None else written[name]),
                ", ".join(given.primary_key) or "none",
                given.primary_key_origin if given.primary_key else "",
                _time_of(given),
                given.time_origin if given.time or given.time_keys else "",
            ]
        )
        for key in given.used_keys():
            keys.append([f"{name}.{key}", key.origin, key.evidence])
    lines = [
        table(
            ["table", "rows", "primary key", "", "time column", ""],
            rows,
            right=[1],
            styles={3: _ORIGINS, 5: _ORIGINS},
        ),
        "",
    ]
    if keys:
        lines += [table(["foreign key", "", "evidence"], keys, styles={1: _ORIGINS}), ""]
    return "\n".join(lines)


def _time_of(given: TableMapping) -> str:
    if given.time or not given.time_keys:
        return given.time or "none"
    return f"that of {' or '.join(given.words_for(given.time_keys))}"


def split_line(mapping: ImportMapping) -> str:
    """The split times of an import, and why."""
    if mapping.split_reason.startswith("no table has a time"):
        return wrapped(f"Splits: none ({mapping.split_reason}).")
    return wrapped(
        f"Splits: validation from {mapping.val}, test from {mapping.test} "
        f"({mapping.split_reason}). Change them with --val and --test."
    )
