"""Run an import: stage the source, plan, write the dataset folder."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relfrog.errors import DatasetError, RelFrogError, SchemaError, UsageError
from relfrog.importing.corrections import Corrections, apply_flags, read_corrections
from relfrog.importing.entity_tables import plan_entities, stage_entity
from relfrog.importing.kept import Kept, confirm, read_kept
from relfrog.importing.key_plan import ImportPlan
from relfrog.importing.mapping import Notice
from relfrog.importing.plan import make_import_plan
from relfrog.importing.result import ImportResult, check_split, time_span, write_records
from relfrog.importing.selection import Catalog, Selection, select_tables
from relfrog.importing.staging import StagedTable, Staging, is_out_of_space
from relfrog.importing.writer import write_tables
from relfrog.io.sources import Source, SourceTable, local_path, open_source, scrub
from relfrog.support.files import atomic_folder, recover, user_path
from relfrog.support.folder_check import check_inside
from relfrog.support.forms import read_yaml

__all__ = ["ImportProgress", "NoProgress", "import_database", "plan_import"]


class ImportProgress(Protocol):
    """Receives the progress of an import."""

    def reading(self, table: str, number: int, total: int) -> None:
        """Reading of table ``number`` of ``total`` begins."""

    def rows(self, count: int) -> None:
        """``count`` rows of the table have been read so far."""

    def step(self, text: str) -> None:
        """A step after reading begins."""


class NoProgress:
    """Shows no progress."""

    def reading(self, table: str, number: int, total: int) -> None:
        """Do nothing."""

    def rows(self, count: int) -> None:
        """Do nothing."""

    def step(self, text: str) -> None:
        """Do nothing."""


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
    view: Sequence[str] = (),
    entity_from: Sequence[str] = (),
    val: str | None = None,
    test: str | None = None,
    on_duplicate: str | None = None,
    overwrite: bool = False,
    memory: str = "2GB",
    name: str | None = None,
    forget: bool = False,
    progress: ImportProgress | None = None,
) -> ImportResult:
    """Read a database and write a dataset folder that RelFrog and RelBench can load.

    Args:
        source: A database URL, a database file, or a folder of CSV or Parquet files.
        dest: The folder to write; it appears complete or not at all.
        schema: Schemas to read; if empty, the database's default schema or, if that has no tables,
            all others.
        tables: Names or patterns (``order*``) of the tables to read; all if empty.
        exclude: Names or patterns of tables to leave out.
        mapping: A mapping file with corrections; :func:`plan_import` makes one to start from.
        pk: Primary keys, as ``table.column[,column]``.
        fk: Foreign keys, as ``table.column=parent.column``.
        time: Time columns, as ``table.column``; ``table=parent`` to inherit times from the rows
            that a row names, ``table=none`` for rows that are always visible.
        view: Names or patterns of views to read beside the tables; ``*`` for all.
        entity_from: Columns to make an entity table of, as ``table.column=name``.
        val: The validation time.
        test: The test time.
        on_duplicate: ``error``, or ``first`` to keep the first row of each key; ``error`` if None.
        overwrite: Whether to replace an existing dataset. Without a mapping file, all that the
            user chose there is kept, unless it is chosen otherwise now: keys, times, types,
            splits, entity tables, which tables and views are read, and the name.
        memory: The memory that the staging database may use before it spills to disk.
        name: The dataset's name; the folder's name if None.
        forget: Whether to keep nothing of what was chosen in the dataset that is replaced.
        progress: Receives the progress.
    """
    if on_duplicate not in (None, "error", "first"):
        raise UsageError(f"on_duplicate is 'error' or 'first' (got {on_duplicate!r})")
    dest, progress = Path(dest), progress or NoProgress()
    _check_disjoint(source, dest)
    kept = read_kept(dest) if overwrite and not forget and mapping is None else Kept()
    selection = Selection(tuple(schema), tuple(tables), tuple(exclude), tuple(view))
    request = _Request(
        source, selection, mapping, pk, fk, time, entity_from, val, test, memory, kept
    )
    options = {
        "name": kept.option("--name", kept.name, name),
        "on_duplicate": kept.option("--on-duplicate", kept.on_duplicate, on_duplicate),
    }
    with atomic_folder(dest, overwrite, _objection) as folder:
        staging_folder = folder / "staging"
        with _PlannedImport(request, staging_folder, progress) as (staging, plan):
            progress.step("writing tables")
            try:
                written = write_tables(
                    staging,
                    plan,
                    folder,
                    options["on_duplicate"] or "error",
                    lambda t: progress.step(f"wrote {t}"),
                )
            except SchemaError as error:
                if kept.said:
                    raise SchemaError(f"{error} {_KEPT}") from None
                raise
            except Exception as error:
                if is_out_of_space(error):
                    text = str(error).splitlines()[0]
                    raise _out_of_space(text) from None
                raise
            span = time_span(folder, written)
        shutil.rmtree(staging_folder)
        if not any((folder / "keys").iterdir()):
            (folder / "keys").rmdir()
        _keep_tasks(dest, folder, plan)
        chosen = {option: value for option, value in options.items() if value is not None}
        result = ImportResult(
            dest, written, plan.mapping, plan.notices, span, plan.selection, chosen
        )
        check_split(result, strict=bool(val or test))
        write_records(result, folder, options["name"] or dest.resolve().name)
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
    view: Sequence[str] = (),
    entity_from: Sequence[str] = (),
    val: str | None = None,
    test: str | None = None,
    memory: str = "2GB",
    keep: str | Path | None = None,
    progress: ImportProgress | None = None,
) -> ImportPlan:
    """Plan an import without writing anything; ``plan.mapping.to_yaml()`` shows the result.

    The arguments are those of `import_database`; ``keep`` is a dataset folder whose corrections
    are kept, as if it were to be replaced.
    """
    kept = read_kept(Path(keep)) if keep is not None and mapping is None else Kept()
    selection = Selection(tuple(schema), tuple(tables), tuple(exclude), tuple(view))
    request = _Request(
        source, selection, mapping, pk, fk, time, entity_from, val, test, memory, kept
    )
    with (
        tempfile.TemporaryDirectory(prefix="relfrog-") as folder,
        _PlannedImport(request, Path(folder), progress or NoProgress()) as (_, plan),
    ):
        return plan


@dataclass(frozen=True)
class _Request:
    """The arguments of :func:`import_database` that concern reading and planning."""

    source: str
    selection: Selection
    mapping: str | Path | None
    pk: Sequence[str]
    fk: Sequence[str]
    time: Sequence[str]
    entity_from: Sequence[str]
    val: str | None
    test: str | None
    memory: str
    kept: Kept

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\s*\d*[1-9]\d*(\.\d+)?\s*[KMGT]i?B\s*", self.memory, re.I):
            raise UsageError(f"--memory {self.memory}: write it as 2GB or 800MB")
        amount = float(re.sub(r"[^\d.]", "", self.memory))
        power = "KMGT".index(re.sub(r"[^KMGT]", "", self.memory.upper())) - 1
        if amount * 1000**power < 100:
            raise UsageError(f"--memory {self.memory}: an import needs at least 100MB")

    def corrections(self) -> Corrections:
        """The corrections of the mapping file; --val and --test take precedence over it."""
        given = Corrections()
        if self.mapping is not None:
            given = read_corrections(Path(self.mapping))
        given.val, given.test = self.val or given.val, self.test or given.test
        return given


class _PlannedImport:
    """A context: the staging database with all rows, and the plan; closed at the end."""

    def __init__(self, request: _Request, staging_folder: Path, progress: ImportProgress) -> None:
        corrections, kept = request.corrections(), request.kept
        self._staging: Staging | None = None
        selection = kept.schema(request.selection)
        with open_source(request.source, selection.schema) as source:
            try:
                catalog = Catalog(source)
                selected = select_tables(catalog, kept.select(selection, catalog), corrections)
                tables = selected.tables
                kept.add_entities(corrections, tables, request.entity_from, request.fk)
                made = plan_entities(corrections, tables, request.entity_from)
                outlines = [table.outline() for table in made]
                apply_flags(corrections, [*tables, *outlines], request.pk, request.fk, request.time)
                kept.add_to(corrections, [*tables, *outlines])
                self._staging = Staging(staging_folder, request.memory)
                staged = _stage(self._staging, source, tables, progress)
                read = {table.name: table for table in staged}
                staged += [stage_entity(self._staging, table, read) for table in made]
                progress.step("checking and proposing keys")
                now = dt.datetime.now(dt.timezone.utc).replace(tzinfo=None)
                self._plan = make_import_plan(self._staging, staged, corrections, source.label, now)
                self._plan.notices += [*selected.notices(), *kept.notices()]
                self._plan.selection = selected.selection.to_dict()
                if not corrections.closed:
                    confirm(self._plan.mapping, corrections)
                self._plan.notices += selected.other_views()
            except BaseException as error:
                self._close()
                if isinstance(error, RelFrogError):
                    text = f"{error} {_KEPT}" if kept.said else str(error)
                    raise type(error)(scrub(text, source.secrets)) from None
                if is_out_of_space(error):
                    text = scrub(str(error).splitlines()[0], source.secrets)
                    raise _out_of_space(text) from None
                raise

    def _close(self) -> None:
        if self._staging is not None:
            self._staging.close()

    def __enter__(self) -> tuple[Staging, ImportPlan]:
        assert self._staging is not None
        return self._staging, self._plan

    def __exit__(self, *exc: object) -> None:
        self._close()


def _out_of_space(text: str) -> DatasetError:
    return DatasetError(
        f"the import ran out of disk space or memory: {text}. Free some, or change --memory."
    )


_KEPT = (
    "(What was chosen for the dataset that is replaced still counts; --forget starts from nothing.)"
)


def _stage(
    staging: Staging, source: Source, tables: list[SourceTable], progress: ImportProgress
) -> list[StagedTable]:
    staged = []
    for number, table in enumerate(tables, 1):
        progress.reading(table.name, number, len(tables))
        staged.append(staging.load(source, table, progress.rows))
    return staged


def _check_disjoint(source: str, dest: Path) -> None:
    """Check that neither source nor destination is inside the other."""
    path = local_path(source)
    if path is None:
        return
    inner, outer = user_path(dest).resolve(), path.resolve()
    if inner.is_relative_to(outer):
        raise DatasetError(f"{dest} lies inside the source {path}. Choose a folder outside it.")
    if outer.is_relative_to(inner):
        raise DatasetError(f"the source {path} lies inside {dest}. Choose another folder.")


#: What a dataset folder may contain.
_CONTENT = {"manifest.yaml", "mapping.yaml", "import.json", "db", "keys", "tasks", "README.md"}
_CONTENT |= {"schema.svg"}


def _objection(folder: Path) -> str:
    """Why a folder must not be replaced; empty if it may be."""
    check_inside(folder)  # its tasks are kept: they could be links to anything
    try:
        manifest = read_yaml(folder / "manifest.yaml", "manifest.yaml", DatasetError)
        known = isinstance(manifest, dict) and {"tables", "val_timestamp"} <= set(manifest)
    except DatasetError:
        known = False
    if not known:
        return "is not a dataset folder"
    others = sorted(p.name for p in folder.iterdir() if p.name not in _CONTENT)
    for inner in ("db", "keys"):
        others += sorted(
            f"{inner}/{p.name}" for p in (folder / inner).glob("*") if p.suffix != ".parquet"
        )
    return f"holds {', '.join(others[:3])}, which would be lost" if others else ""


def _keep_tasks(dest: Path, folder: Path, plan: ImportPlan) -> None:
    """Copy the tasks of a replaced dataset, without labels, which are computed when needed."""
    if (dest / "tasks").is_dir():
        recover(dest / "tasks")
        old_labels = ("train.parquet", "val.parquet", "test.parquet")
        leave_out = shutil.ignore_patterns(*old_labels, ".*.partial-*")
        shutil.copytree(dest / "tasks", folder / "tasks", symlinks=True, ignore=leave_out)
    names = sorted(p.parent.name for p in folder.glob("tasks/*/manifest.yaml"))
    if names:
        text = f"tasks kept, with labels made from the rows as they are now: {', '.join(names)}"
        plan.notices.append(Notice("note", "", "", text))
