"""The journey from a database to a dataset folder."""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relfrog.errors import DatasetError, RelFrogError, SourceError, UsageError, unknown
from relfrog.importing.key_plan import Plan
from relfrog.importing.mapping import Corrections, Notice, apply_flags, read_corrections
from relfrog.importing.plan import make_plan
from relfrog.importing.result import ImportResult, check_split, time_span, write_records
from relfrog.importing.staging import StagedTable, Staging, is_workshop_error
from relfrog.importing.writer import write_tables
from relfrog.io.sources import Source, SourceTable, open_source, scrub
from relfrog.support.files import appearing

__all__ = ["ImportProgress", "Silent", "import_database", "plan_import"]


class ImportProgress(Protocol):
    """Told how far an import is."""

    def reading(self, table: str, number: int, total: int) -> None:
        """Table ``number`` of ``total`` begins."""

    def rows(self, count: int) -> None:
        """So many rows of the table have been read."""

    def step(self, text: str) -> None:
        """What is being done now that everything is read."""


class Silent:
    """No progress."""

    def reading(self, table: str, number: int, total: int) -> None:
        """Say nothing."""

    def rows(self, count: int) -> None:
        """Say nothing."""

    def step(self, text: str) -> None:
        """Say nothing."""


def import_database(
    source: str,
    dest: str | Path,
    *,
    schema: Sequence[str] = (),
    tables: Sequence[str] = (),
    exclude: Sequence[str] = (),
    mapping: str | Path | None = None,
    pk: Sequence[str] = (),
    fk: Sequence[str] = (),
    time: Sequence[str] = (),
    val: str | None = None,
    test: str | None = None,
    on_duplicate: str = "error",
    overwrite: bool = False,
    memory: str = "2GB",
    name: str | None = None,
    progress: ImportProgress | None = None,
) -> ImportResult:
    """Read a database and write a dataset folder that RelFrog and RelBench can load.

    Args:
        source: A database URL, a database file, or a folder of CSV or Parquet files.
        dest: The folder to write; it appears complete or not at all.
        schema: Schemas to read; the database's default one if empty.
        tables: Names or patterns (``order*``) of the tables to read; all if empty.
        exclude: Names or patterns of tables to leave out.
        mapping: A mapping file with corrections, as `plan_import` gives it.
        pk: Primary keys, as ``table.column[,column]``.
        fk: Foreign keys, as ``table.column=parent.column``.
        time: Time columns, as ``table.column``.
        val: The validation time.
        test: The test time.
        on_duplicate: ``error``, or ``first`` to keep the first row of each key.
        overwrite: Whether to replace a dataset that is there already.
        memory: What the import may use before it goes to disk.
        name: The dataset's name; the folder's if None.
        progress: Told how far it is.
    """
    if on_duplicate not in ("error", "first"):
        raise UsageError(f"on_duplicate is 'error' or 'first' (got {on_duplicate!r})")
    dest, progress = Path(dest), progress or Silent()
    _keep_apart(source, dest)
    wishes = _Wishes(source, schema, tables, exclude, mapping, pk, fk, time, val, test, memory)
    with appearing(dest, overwrite, _not_ours) as folder:
        workshop = folder / "workshop"
        with _planned(wishes, workshop, progress) as (staging, plan):
            progress.step("writing tables")
            try:
                written = write_tables(
                    staging, plan, folder, on_duplicate, lambda t: progress.step(f"wrote {t}")
                )
            except Exception as error:
                if is_workshop_error(error):
                    text = str(error).splitlines()[0]
                    raise DatasetError(f"the import ran out of room: {text}") from None
                raise
            span = time_span(folder, written)
        shutil.rmtree(workshop)
        if not any((folder / "keys").iterdir()):
            (folder / "keys").rmdir()
        _keep_tasks(dest, folder, plan)
        result = ImportResult(dest, written, plan.mapping, plan.notices, span)
        check_split(result)
        write_records(result, folder, name or dest.resolve().name)
    return result


def plan_import(
    source: str,
    *,
    schema: Sequence[str] = (),
    tables: Sequence[str] = (),
    exclude: Sequence[str] = (),
    mapping: str | Path | None = None,
    pk: Sequence[str] = (),
    fk: Sequence[str] = (),
    time: Sequence[str] = (),
    val: str | None = None,
    test: str | None = None,
    memory: str = "2GB",
    progress: ImportProgress | None = None,
) -> Plan:
    """Find out what an import would do, and write nothing; ``plan.mapping.to_yaml()`` shows it.

    The arguments are those of `import_database`.
    """
    wishes = _Wishes(source, schema, tables, exclude, mapping, pk, fk, time, val, test, memory)
    with (
        tempfile.TemporaryDirectory(prefix="relfrog-") as folder,
        _planned(wishes, Path(folder), progress or Silent()) as (_, plan),
    ):
        return plan


@dataclass(frozen=True)
class _Wishes:
    """What the user wants of a source; see `import_database`."""

    source: str
    schema: Sequence[str]
    tables: Sequence[str]
    exclude: Sequence[str]
    mapping: str | Path | None
    pk: Sequence[str]
    fk: Sequence[str]
    time: Sequence[str]
    val: str | None
    test: str | None
    memory: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\s*\d*[1-9]\d*(\.\d+)?\s*[KMGT]i?B\s*", self.memory, re.I):
            raise UsageError(f"--memory {self.memory}: write it as 2GB or 800MB")
        amount = float(re.sub(r"[^\d.]", "", self.memory))
        power = "KMGT".index(re.sub(r"[^KMGT]", "", self.memory.upper())) - 1
        if amount * 1000**power < 100:
            raise UsageError(f"--memory {self.memory}: an import needs 100MB at least")

    def corrections(self) -> Corrections:
        """What the mapping file says; flags for the splits come before it."""
        given = Corrections()
        if self.mapping is not None:
            given = read_corrections(Path(self.mapping))
        given.val, given.test = self.val or given.val, self.test or given.test
        return given


class _planned:
    """The workshop with everything staged and decided, closed at the end."""

    def __init__(self, wishes: _Wishes, workshop: Path, progress: ImportProgress) -> None:
        corrections = wishes.corrections()
        self._staging: Staging | None = None
        with open_source(wishes.source, wishes.schema) as source:
            try:
                found = source.tables(also=wishes.tables)
                chosen = _choose(found, wishes.tables, wishes.exclude, corrections)
                apply_flags(corrections, chosen, wishes.pk, wishes.fk, wishes.time)
                self._staging = Staging(workshop, wishes.memory)
                staged = _stage(self._staging, source, chosen, progress)
                progress.step("checking and proposing keys")
                now = dt.datetime.now(dt.timezone.utc).replace(tzinfo=None)
                self._plan = make_plan(self._staging, staged, corrections, source.label, now)
                self._plan.notices += [
                    Notice("left out", t.name, "", "the mapping does not name it")
                    for t in found
                    if corrections.closed and t not in chosen and t.name not in wishes.exclude
                ]
            except BaseException as error:
                self._close()
                if isinstance(error, RelFrogError):
                    raise type(error)(scrub(str(error), source.secrets)) from None
                if is_workshop_error(error):
                    text = scrub(str(error).splitlines()[0], source.secrets)
                    raise DatasetError(f"the import ran out of room: {text}") from None
                raise

    def _close(self) -> None:
        if self._staging is not None:
            self._staging.close()

    def __enter__(self) -> tuple[Staging, Plan]:
        assert self._staging is not None
        return self._staging, self._plan

    def __exit__(self, *exc: object) -> None:
        self._close()


def _choose(
    found: list[SourceTable],
    tables: Sequence[str],
    exclude: Sequence[str],
    corrections: Corrections,
) -> list[SourceTable]:
    """The tables that are wanted."""
    names = [t.name for t in found]
    if not names:
        raise SourceError("there are no tables. If they lie in another schema, name it: --schema")
    for pattern in (*tables, *exclude):
        if pattern not in names and not fnmatch.filter(names, pattern):
            raise unknown("table", pattern, names)

    def matches(name: str, patterns: Sequence[str]) -> bool:
        return any(name == p or fnmatch.fnmatchcase(name, p) for p in patterns)

    chosen = [
        t
        for t in found
        if (not tables or matches(t.name, tables))
        and not matches(t.name, exclude)
        and (not corrections.closed or t.name in corrections.tables)
    ]
    if not chosen:
        raise UsageError("no table is left to import. Check --tables, --exclude and the mapping.")
    kept = {t.name for t in chosen}
    for name in list(corrections.tables):
        if name in names and name not in kept:
            del corrections.tables[name]
    return chosen


def _stage(
    staging: Staging, source: Source, tables: list[SourceTable], progress: ImportProgress
) -> list[StagedTable]:
    staged = []
    for number, table in enumerate(tables, 1):
        progress.reading(table.name, number, len(tables))
        staged.append(staging.load(source, table, progress.rows))
    return staged


def _keep_apart(source: str, dest: Path) -> None:
    """Refuse a destination inside the source, or the other way round: one would eat the other."""
    stem = re.sub(r"^(sqlite|duckdb)(\+\w+)?:///?", "", source, flags=re.I)
    place = Path(stem).expanduser()
    if not place.exists():
        return
    inner, outer = dest.expanduser().resolve(), place.resolve()
    if inner.is_relative_to(outer):
        raise DatasetError(f"{dest} lies inside the source {place}. Choose a folder outside it.")
    if outer.is_relative_to(inner):
        raise DatasetError(f"the source {place} lies inside {dest}. Choose another folder.")


#: What a dataset folder may hold.
_CONTENT = {"manifest.yaml", "mapping.yaml", "import.json", "db", "keys", "tasks", "README.md"}
_CONTENT |= {"schema.svg"}


def _not_ours(folder: Path) -> str:
    """What speaks against replacing a folder."""
    import yaml

    try:
        manifest = yaml.safe_load((folder / "manifest.yaml").read_text(encoding="utf-8"))
        known = isinstance(manifest, dict) and {"tables", "val_timestamp"} <= set(manifest)
    except (OSError, ValueError, yaml.YAMLError):
        known = False
    if not known:
        return "is no dataset"
    others = sorted(p.name for p in folder.iterdir() if p.name not in _CONTENT)
    for inner in ("db", "keys"):
        others += sorted(
            f"{inner}/{p.name}" for p in (folder / inner).glob("*") if p.suffix != ".parquet"
        )
    return f"holds {', '.join(others[:3])}, which would be lost" if others else ""


def _keep_tasks(dest: Path, folder: Path, plan: Plan) -> None:
    """Carry the tasks of a replaced dataset over; their labels are made anew when needed."""
    if (dest / "tasks").is_dir():
        old_labels = shutil.ignore_patterns("train.parquet", "val.parquet", "test.parquet")
        shutil.copytree(dest / "tasks", folder / "tasks", ignore=old_labels)
    names = sorted(p.parent.name for p in dest.glob("tasks/*/manifest.yaml"))
    if names:
        text = f"kept the tasks {', '.join(names)}; see that they still fit: relfrog check {dest}"
        plan.notices.append(Notice("note", "", "", text))
