"""What a user corrected in a dataset that is imported again: kept, as far as it still fits."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from relfrog.errors import DatasetError, SchemaError
from relfrog.importing.corrections import Corrections, TableCorrections, read_corrections
from relfrog.importing.mapping import ForeignKeyMapping, ImportMapping, Notice
from relfrog.importing.record import read_record
from relfrog.importing.selection import Catalog, Selection, matching
from relfrog.io.sources import SourceTable
from relfrog.support.forms import read_yaml
from relfrog.support.text import folder_names

__all__ = ["Kept", "confirm", "read_kept"]

#: The fields of :class:`TableCorrections` that say when rows are known.
_TIME = [f.name for f in fields(TableCorrections) if "time" in f.name or "inherited" in f.name]


@dataclass
class Kept:
    """Corrections of the dataset that is replaced.

    Attributes:
        corrections: Keys, times, types, names, splits and entity tables.
        selection: The schemas, tables and views to which the import was limited.
        name: The dataset's name, if it was chosen.
        on_duplicate: What was to be done with repeated primary keys, if it was chosen.
        said: What is kept, in words.
        lost: What no longer fits the source, in words.
    """

    corrections: Corrections = field(default_factory=Corrections)
    selection: Selection = field(default_factory=Selection)
    name: str | None = None
    on_duplicate: str | None = None
    said: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def option(self, flag: str, kept: str | None, given: str | None) -> str | None:
        """What an option with one value is set to: as given now, or as it was."""
        if given is None and kept is not None:
            self.said.append(f"{flag} {kept}")
            return kept
        return given

    def schema(self, given: Selection) -> Selection:
        """The selection with the schemas that were read before, unless others are given."""
        if given.schema or not self.selection.schema:
            return given
        self.said += [f"--schema {name}" for name in self.selection.schema]
        return replace(given, schema=self.selection.schema)

    def select(self, given: Selection, catalog: Catalog) -> Selection:
        """The tables and views to read: those of before, as far as there are such, and of now.

        Tables that are given now replace those of before and what was left out of them; what is
        to be left out is left out besides. An entity table can be left out like any other.
        """
        before = self.selection
        made = [name for name, table in self.corrections.tables.items() if table.made_from]
        if not made and before == Selection():
            return given
        names, views = [t.name for t in catalog.tables()], catalog.views
        for name in [n for n in made if any(fnmatch.fnmatchcase(n, p) for p in given.exclude)]:
            self._drop(name)
        tables, exclude, view = given.tables, given.exclude, given.view
        exclude = tuple(p for p in exclude if matching([p], [*names, *views]) or p not in made)
        kept: dict[str, tuple[str, ...]] = {"tables": (), "exclude": (), "view": ()}
        if not tables:
            kept["tables"] = tuple(p for p in before.tables if p not in exclude)
            kept["exclude"] = matching(
                (p for p in before.exclude if p not in exclude), [*names, *views]
            )
        kept["view"] = tuple(
            p for p in before.view if p not in (*view, *exclude)
            and (p == "*" or matching([p], views))
        )  # fmt: skip
        self.lost += [
            f"--view {p}: there is no such view"
            for p in before.view
            if p != "*" and not matching([p], [*names, *views])
        ]
        self.said += [f"--{option} {p}" for option, found in kept.items() for p in found]
        return replace(
            given,
            tables=(*tables, *kept["tables"]),
            exclude=(*exclude, *kept["exclude"]),
            view=(*view, *kept["view"]),
        )

    def add_entities(
        self,
        given: Corrections,
        found: Sequence[SourceTable],
        entity_from: Iterable[str],
        fk: Iterable[str],
    ) -> None:
        """Add the entity tables that were made before.

        Args:
            given: What this import was told.
            found: The tables that are imported.
            entity_from: Flags of now: they decide about the tables and columns that they name.
            fk: Likewise: a column that is given another parent feeds no entity table.
        """
        known = {t.name: {c.name for c in t.columns} for t in found}
        taken = {name.casefold() for name in known}
        flags = [flag.rpartition("=") for flag in entity_from]
        named = {name for _, _, name in flags}
        decided = {place for place, _, _ in (*flags, *(flag.rpartition("=") for flag in fk))}
        tables = self.corrections.tables
        for name in [n for n, table in tables.items() if table.made_from]:
            left = [(t, c) for t, c in tables[name].made_from if f"{t}.{c}" not in decided]
            if name in named:
                continue
            if not left:
                self._drop(name)
                continue
            there = [(t, c) for t, c in left if c in known.get(t, ())]
            flag = "; ".join(f"--entity-from {t}.{c}={name}" for t, c in left)
            if name.casefold() in taken:
                self.lost.append(f"{flag}: the source has a table {name} now")
            elif len(there) < len(left):
                missing = next(place for place in left if place not in there)
                self.lost.append(f"{flag}: there is no {'.'.join(missing)}")
            if there and name.casefold() not in taken:
                given.table(name).made_from = there
                self.said += [f"--entity-from {t}.{c}={name}" for t, c in there]

    def _drop(self, name: str) -> None:
        """Forget an entity table, and the keys that refer to it."""
        self.corrections.tables.pop(name)
        for table in self.corrections.tables.values():
            table.added_keys = [key for key in table.added_keys if key.parent != name]

    def notices(self) -> list[Notice]:
        """What is kept, and what is not."""
        found = []
        if self.said:
            text = (
                f"kept from the dataset that was replaced: {'; '.join(self.said)}. --forget drops"
            )
            found.append(Notice("note", "", "", f"{text} it all"))
        if self.lost:
            text = f"not kept, since it no longer fits: {'; '.join(self.lost)}"
            found.append(Notice("changed", "", "", text))
        return found

    def add_to(self, given: Corrections, found: Sequence[SourceTable]) -> None:
        """Add everything to the corrections of this import that they do not decide themselves.

        Args:
            given: What this import was told.
            found: The tables that are imported.
        """
        if self.corrections.val is not None and given.val is None and given.test is None:
            given.val, given.test = self.corrections.val, self.corrections.test
            self.said.append(f"splits {given.val} and {given.test}")
        known = {t.name: {c.name for c in t.columns} for t in found}
        for name, kept in self.corrections.tables.items():
            if name not in known:
                if not kept.made_from:
                    self.lost.append(f"all of {name}, which is not imported")
                continue
            self._add_table(name, kept, given.table(name), known)

    def _add_table(
        self,
        name: str,
        kept: TableCorrections,
        given: TableCorrections,
        known: Mapping[str, set[str]],
    ) -> None:
        blank = TableCorrections()

        def there(what: str, table: str, columns: Sequence[str]) -> bool:
            missing = [c for c in columns if c not in known.get(table, ())]
            if missing:
                self.lost.append(f"{what}: there is no {table}.{missing[0]}")
            return not missing

        def untouched(names: Sequence[str]) -> bool:
            return all(getattr(given, n) == getattr(blank, n) for n in names)

        if kept.name is not None and given.name is None:
            given.name = kept.name
            self.said.append(f"name {kept.name} for {name}")
        changed = any(getattr(kept, n) != getattr(blank, n) for n in _TIME)
        if changed and untouched(_TIME) and there("time", name, [kept.time] if kept.time else []):
            for field_name in _TIME:
                setattr(given, field_name, getattr(kept, field_name))
            self.said.append(f"time {name}.{kept.time or 'none'}")
        if kept.primary_key is not None and given.primary_key is None:
            if there("primary key", name, kept.primary_key):
                given.primary_key = kept.primary_key
                self.said.append(f"primary key {name}.{','.join(kept.primary_key) or 'none'}")
        decided = {k.columns for k in given.added_keys} | given.refused_keys
        for key in kept.added_keys:
            fits = there("foreign key", name, key.columns)
            if key.columns in decided or not fits:
                continue
            if there("foreign key", key.parent, key.parent_columns) and key.parent in known:
                given.added_keys.append(replace(key))
                self.said.append(f"foreign key {name}.{key}")
        replaced = {k.columns for k in given.added_keys}
        for columns in sorted(kept.refused_keys - decided - replaced):
            given.refused_keys.add(columns)
            self.said.append(f"no foreign key {name}.{','.join(columns)}")
        for column, kind in kept.columns.items():
            if column not in given.columns and there("type", name, [column]):
                given.columns[column] = kind
                self.said.append(f"type {kind} of {name}.{column}")


def read_kept(folder: Path) -> Kept:
    """Read what the user decided from a dataset folder; nothing if it was not imported."""
    path = folder / "mapping.yaml"
    if not path.is_file():
        return Kept()
    try:
        raw = read_yaml(path, path.name, SchemaError) or {}
        whole = read_corrections(path)
    except (OSError, ValueError, SchemaError):
        return Kept(lost=["mapping.yaml, which cannot be read"])
    kept = Kept()
    if raw.get("split_reason") == "chosen":
        kept.corrections.val, kept.corrections.test = whole.val, whole.test
    usual = folder_names(whole.tables)
    for name, entry in whole.tables.items():
        found = _chosen(entry, raw["tables"][name] or {})
        found.name = entry.name if entry.name != usual[name] else None
        if found != TableCorrections():
            kept.corrections.tables[name] = found
    try:
        record = read_record(folder) or {}
    except DatasetError:
        kept.lost.append("import.json, which cannot be read")
        return kept
    selected = record.get("selection") or {}
    kept.selection = Selection(
        **{f.name: tuple(selected.get(f.name, ())) for f in fields(Selection)}
    )
    options = record.get("options") or {}
    kept.name, kept.on_duplicate = options.get("name"), options.get("on_duplicate")
    return kept


def _chosen(entry: TableCorrections, raw: Mapping[str, Any]) -> TableCorrections:
    """What of a table's entry the user chose."""
    from relfrog.importing.key_plan import REFUSED

    found = TableCorrections(made_from=entry.made_from)

    def by_user(part: object) -> bool:
        return isinstance(part, dict) and part.get("origin") == "chosen"

    if by_user(raw.get("time")):
        for name in _TIME:
            setattr(found, name, getattr(entry, name))
    if by_user(raw.get("primary_key")):
        found.primary_key = entry.primary_key
    for key, part in zip(entry.foreign_keys or (), raw.get("foreign_keys") or (), strict=True):
        if by_user(part) and key.used:
            found.added_keys.append(_as_added(key))
        elif by_user(part) or part.get("evidence") == REFUSED:
            found.refused_keys.add(key.columns)
    for column, part in (raw.get("columns") or {}).items():
        if isinstance(part, dict) and part.get("reason") == "chosen":
            found.columns[column] = entry.columns[column]
    return found


def _as_added(key: ForeignKeyMapping) -> ForeignKeyMapping:
    return ForeignKeyMapping(key.columns, key.parent, key.parent_columns, "chosen", loose=key.loose)


def confirm(mapping: ImportMapping, given: Corrections) -> None:
    """Record as chosen what the user chose, also where it is what would have been proposed.

    Proposals may change with the data; what the user said must stay.
    """
    for name, table in mapping.tables.items():
        said = given.tables.get(name)
        if said is None:
            continue
        if said.time is not None and table.time == said.time:
            table.time_origin = "chosen"
        if said.primary_key and table.primary_key == said.primary_key:
            if table.primary_key_origin == "proposed":
                table.primary_key_origin = "chosen"
    if given.val is not None and given.test is not None:
        mapping.split_reason = "chosen"
