"""Which tables and views of a source are read."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from relfrog.errors import SourceError, UsageError, unknown
from relfrog.importing.corrections import Corrections
from relfrog.importing.mapping import Notice
from relfrog.importing.views import choose_views, other_views
from relfrog.io.sources import Source, SourceTable

__all__ = ["Catalog", "SelectedTables", "Selection", "matching", "select_tables"]

_OWN = (
    "written by RelFrog: its predictions are not to be learned from. To import it nevertheless, "
    "name it: --tables {}"
)


@dataclass(frozen=True)
class Selection:
    """Names or patterns, as the flags of the same names give them.

    Attributes:
        schema: The schemas to read; if empty, the database's default schema or, if that has no
            tables, all others.
        tables: The tables to read; all if empty.
        exclude: Tables and views to leave out.
        view: Views to read beside the tables.
    """

    schema: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    view: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, list[str]]:
        """Plain values, as in ``import.json``."""
        return {name: list(patterns) for name, patterns in asdict(self).items()}


@dataclass(frozen=True)
class SelectedTables:
    """The tables that a selection finds.

    Attributes:
        tables: Those to import.
        own: Those that RelFrog itself wrote, which are not.
        unlisted: Those that the mapping file does not list.
        views: All views of the source.
        selection: What was selected, those of the mapping file included.
    """

    tables: list[SourceTable]
    own: list[str]
    unlisted: list[str]
    views: list[str]
    selection: Selection

    def notices(self) -> list[Notice]:
        """What was left out though nobody excluded it."""
        return [
            *(Notice("left out", name, "", _OWN.format(name)) for name in self.own),
            *(Notice("left out", n, "", "not listed in the mapping file") for n in self.unlisted),
        ]

    def other_views(self) -> list[Notice]:
        """Which views there are besides what is read."""
        return other_views(self.views, {t.name for t in self.tables})


class Catalog:
    """The tables and views of a source, described once: that takes time where there are many."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.views = list(source.views())
        self._found: list[SourceTable] | None = None

    def tables(self, also: Iterable[str] = ()) -> list[SourceTable]:
        """All tables, and the views named in ``also``."""
        wanted = [view for view in self.views if view in also]
        described = {t.name for t in self._found or ()}
        if self._found is None or not described.issuperset(wanted):
            self._found = self.source.tables(also=wanted)
        return self._found


def matching(patterns: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """The patterns that match at least one of the names."""
    return tuple(p for p in patterns if p in names or fnmatch.filter(names, p))


def select_tables(
    catalog: Catalog, selection: Selection, corrections: Corrections
) -> SelectedTables:
    """Find the tables to import; the views that are wanted come beside them.

    Corrections of tables that are not imported are dropped.

    Raises:
        SourceError: There are no tables.
        SchemaError: There is no table or view of a name that was given.
        UsageError: No table is left.
    """
    views = catalog.views
    wanted = choose_views(views, selection.view, selection.exclude)
    found = catalog.tables(also={*selection.tables, *wanted, *corrections.tables})
    # What the user names is read, whoever wrote it.
    named = {*selection.tables, *(corrections.tables if corrections.closed else ())}
    own = [t.name for t in found if t.name not in named and catalog.source.is_marked(t)]
    found = [t for t in found if t.name not in own]
    chosen = _choose(found, selection, corrections, views, wanted)
    read = {t.name for t in chosen}
    unlisted: list[str] = []
    if corrections.closed:
        unlisted = [t.name for t in found if t.name not in {*read, *selection.exclude}]
    listed = [v for v in views if v in read and v not in {*wanted, *selection.tables}]
    done = Selection(
        selection.schema,
        selection.tables,
        (*selection.exclude, *unlisted),
        (*selection.view, *listed),
    )
    return SelectedTables(chosen, own, unlisted, views, done)


def _choose(
    found: list[SourceTable],
    selection: Selection,
    corrections: Corrections,
    views: Sequence[str],
    wanted: Sequence[str],
) -> list[SourceTable]:
    names = [t.name for t in found]
    if not names and views:
        raise SourceError("there are no tables, only views. Read them: --views all")
    if not names:
        raise SourceError("there are no tables that this user may see")
    for pattern in (*selection.tables, *selection.exclude):
        if not matching([pattern], [*names, *views]):
            raise unknown("table", pattern, names)

    def matches(name: str, patterns: Sequence[str]) -> bool:
        return any(name == p or fnmatch.fnmatchcase(name, p) for p in patterns)

    chosen = [
        t
        for t in found
        if (not selection.tables or matches(t.name, selection.tables) or t.name in wanted)
        and not matches(t.name, selection.exclude)
        and (not corrections.closed or t.name in corrections.tables or t.name in wanted)
    ]
    if not chosen:
        raise UsageError("no table is left to import. Check --tables, --exclude and the mapping.")
    kept = {t.name for t in chosen}
    for name in list(corrections.tables):
        if name in names and name not in kept:
            del corrections.tables[name]
    return chosen
