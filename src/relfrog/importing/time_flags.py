"""The flag ``--time``: a time column, a parent to inherit times from, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from relfrog.errors import unknown

if TYPE_CHECKING:
    from relfrog.importing.corrections import Corrections

__all__ = ["apply_time_flag"]


def apply_time_flag(corrections: Corrections, flag: str, known: Mapping[str, list[str]]) -> bool:
    """Add what one ``--time`` says to the corrections; False if it names no table.

    Args:
        corrections: The corrections.
        flag: ``TABLE.COLUMN``, ``TABLE=PARENT[,PARENT]`` or ``TABLE=none``, with either mark. A
            name that is both a column and a table is the column; the parent then goes by the
            name of the foreign key's column.
        known: The columns of each table.

    Raises:
        SchemaError: There is neither such a column nor such a table.
    """
    for name in sorted(known, key=len, reverse=True):
        if not flag.startswith((f"{name}.", f"{name}=")):
            continue
        entry, rest = corrections.table(name), flag[len(name) + 1 :]
        parts = tuple(part.strip() for part in rest.split(","))
        entry.time, entry.no_time, entry.inherited_from = None, False, None
        if rest in known[name]:
            entry.time = rest
        elif rest == "none":
            entry.no_time = True
        elif rest in known:
            entry.inherited_from = (rest,)
        elif len(parts) > 1 and all(part in known or part in known[name] for part in parts):
            entry.inherited_from = parts
        else:
            raise unknown(
                f"column in {name}, nor a table,", rest, [*known[name], *(set(known) - {name})]
            )
        return True
    return False
