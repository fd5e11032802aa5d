"""Views of the source: read beside its tables if asked for, and listed otherwise."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence

from relfrog.errors import SourceError, unknown
from relfrog.importing.mapping import Notice

__all__ = ["choose_views", "other_views"]

#: So many are listed by name.
_LISTED = 10


def choose_views(
    views: Sequence[str], patterns: Sequence[str], exclude: Sequence[str]
) -> list[str]:
    """The views that names or patterns select; all of them, if there are any, for ``*``.

    Raises:
        SourceError: The source has no views.
        SchemaError: It has none of this name.
    """
    chosen = []
    for pattern in patterns:
        found = [v for v in views if v == pattern or fnmatch.fnmatchcase(v, pattern)]
        if not found and pattern != "*":
            if not views:
                raise SourceError(f"--view {pattern}: the source has no views")
            raise unknown("view", pattern, views)
        chosen += found
    left_out = {v for v in views for p in exclude if v == p or fnmatch.fnmatchcase(v, p)}
    return [view for view in dict.fromkeys(chosen) if view not in left_out]


def other_views(views: Sequence[str], read: Collection[str]) -> list[Notice]:
    """Say which views there are besides what is read."""
    others = [view for view in views if view not in read]
    if not others:
        return []
    more = f" and {len(others) - _LISTED:,} more" if len(others) > _LISTED else ""
    what = f"{len(others):,} views of the source are"
    what = "1 view of the source is" if len(others) == 1 else what
    text = (
        f"{what} not imported: {', '.join(others[:_LISTED])}{more}. To read one beside the tables: "
        f"--view {others[0]}"
    )
    return [Notice("note", "", "", text)]
