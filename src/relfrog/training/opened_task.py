"""An opened task: a dataset and everything computed from it, from the store or in memory.

Rows stay in their files. What models need of them, graph, encoded columns, labels and label
history, is in the store after the first command that asked, and memory-mapped from there. A
database that is given is worked on in memory; then several models of one command share
what is computed: the members of `auto`, a network and its baselines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from relfrog.config import Config
from relfrog.datasets.autocomplete import row_times, rows_to_fill
from relfrog.datasets.dataset import open_dataset, read_tables
from relfrog.datasets.files import database_in_files
from relfrog.datasets.kept_labels import is_stored
from relfrog.datasets.label_history import add_label_history, label_history_name
from relfrog.datasets.labels import timed_first, times_between
from relfrog.datasets.memory_check import check_room
from relfrog.datasets.protocols import Dataset, Task
from relfrog.datasets.tasks import labels_of, load_task
from relfrog.errors import TaskError
from relfrog.features.columns import Columns, Features, TableColumns, fit_columns
from relfrog.features.novelty import unseen_categories
from relfrog.features.text import text_model
from relfrog.graph.relational import RelationalGraph, build_graph
from relfrog.store.file_table import FileTable, column_names, is_whole, retimed, without_columns
from relfrog.support.lists import as_frame
from relfrog.support.relbench import Database, Table
from relfrog.support.threads import thread_limit
from relfrog.support.times import Moments, as_moments, as_ticks, convert_ticks
from relfrog.training.prepared import Prepared, routes_of
from relfrog.training.seeds import Seeds
from relfrog.training.task_store import TaskStore, digest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OpenedTask", "open_task"]


def open_task(
    dataset: str | Path, task: str, splits: Mapping[str, str | None] | None = None, **settings: Any
) -> OpenedTask:
    """Open a dataset and one of its tasks; only file headers are read.

    Args:
        dataset: a dataset folder, or the name of a dataset that RelBench hosts.
        task: one of its tasks.
        splits: the split times that a run has, which are its own for good; see `load_task`.
        settings: settings of the model, to estimate the memory it needs.

    Raises:
        DatasetError: There is no such dataset, or it does not fit into memory.
        TaskError: There is no such task.
    """
    opened = open_dataset(dataset)
    check_room(str(dataset), read_tables(opened), **settings)
    loaded = load_task(opened, task, splits=splits)
    # Its splits may be the task's own.
    return OpenedTask(loaded.dataset, loaded)


class OpenedTask:
    """A dataset and a task, with caches.

    Args:
        dataset: RelBench's dataset, with the splits of the task.
        task: RelBench's task.
        db: the whole database, if it has been read already.
    """

    def __init__(self, dataset: Dataset, task: Task, *, db: Database | None = None) -> None:
        self.dataset, self.task, self._given = dataset, task, db
        self._seeds: dict[str, Seeds] = {}
        self._training_seeds: dict[int, Seeds] = {}
        self._fitted: dict[tuple[str, int], dict[str, TableColumns]] = {}
        self._tables: dict[str, TableColumns] = {}
        self._features: dict[int, Features] = {}
        self._unseen: dict[int, dict[str, list[str]]] = {}
        self._graphs: dict[tuple[bool, tuple[int, ...]], RelationalGraph] = {}

    @property
    def kind(self) -> str:
        """RelBench's name of the task type."""
        return str(self.task.task_type.value)

    @cached_property
    def source(self) -> Database:
        """The whole database as read."""
        if self._given is not None:
            return self._given
        return database_in_files(self.dataset)

    @cached_property
    def store(self) -> TaskStore:
        """What the store has of tables that are files."""
        return TaskStore(self.dataset, self.task)

    @cached_property
    def parts(self) -> TaskStore | None:
        """What the store has of the whole task; None if rows of it are in memory."""
        return self.store if is_stored(self.source) and hasattr(self.task, "content") else None

    @cached_property
    def db(self) -> Database:
        """The whole database."""
        return timed_first(self.source)

    @cached_property
    def newest(self) -> pd.Timestamp | None:
        """The newest time in the database."""
        if all(table.time_col is None for table in self.db.table_dict.values()):
            return None
        newest = self.db.max_timestamp
        return None if newest is None or newest != newest else newest  # NaT

    @cached_property
    def history(self) -> str:
        """The name of the label history's table."""
        return label_history_name(self.db)

    @cached_property
    def _without_history(self) -> Database:
        return allowed(self.task, self.db)

    @cached_property
    def _with_history(self) -> Database:
        if self.parts is not None:
            table: Table = self.parts.history(self.db, self._make_history)
        else:
            table = self._make_history()
        return allowed(self.task, Database({**self.db.table_dict, self.history: table}))

    def _make_history(self, closed_by: pd.Timestamp | None = None) -> Table:
        db = add_label_history(self.dataset, self.task, self.db, self.history, closed_by)
        return db.table_dict[self.history]

    def shown(self, history: bool) -> Database:
        """The database as models see it, with or without the label history."""
        return self._with_history if history else self._without_history

    def seeds(self, split: str) -> Seeds:
        """The labelled seeds of a split."""
        if split not in self._seeds:
            self._seeds[split] = self._labelled([split], lambda: self._make_labels(split))
        return self._seeds[split]

    def labels(self, split: str) -> pd.DataFrame:
        """The labels of a split as checks look at them: a frame, lists Arrow's."""
        if self.parts is None:
            return self._make_labels(split)
        return as_frame(self.parts.labels([split], self.db, lambda: self._make_labels(split)))

    def _make_labels(self, split: str) -> pd.DataFrame:
        # All columns: what the task hides from models may be what its labels are made of.
        return labels_of(self.task, split, self.db)

    def _labelled(self, what: list[Any], make: Callable[[], pd.DataFrame]) -> Seeds:
        """The seeds of labels, which are kept if all rows are in files."""
        if self.parts is None:
            return Seeds.of_frame(self.task, make())
        return Seeds.of_arrow(self.task, self.parts.labels(what, self.db, make))

    def split_of(self, seeds: Seeds) -> str | None:
        """The split whose labelled seeds these are; None for any others."""
        return next((split for split, known in self._seeds.items() if known is seeds), None)

    def training_seeds(self, density: int = 1) -> Seeds:
        """The training seeds; with `density` n, n times as many seed times, in equal steps."""
        if density == 1 or self.task.sql is None:
            return self.seeds("train")
        if density not in self._training_seeds:
            self._training_seeds[density] = self._labelled(
                ["train", density], lambda: self._dense_labels(density)
            )
        return self._training_seeds[density]

    def _dense_labels(self, density: int) -> pd.DataFrame:
        task, db = self.task, self.db
        step = task.timedelta / density
        last = self.dataset.val_timestamp - task.timedelta
        times = times_between(last, db.min_timestamp, -step)
        frame = task.make_table(db, times).df
        frame = frame[frame[task.entity_col] < len(db.table_dict[task.entity_table])]
        first = self.seeds("train").times.min()
        frame = frame[frame[task.time_col] >= first]
        # The order of SQL results varies.
        return frame.sort_values([task.time_col, task.entity_col], kind="stable")

    def with_validation(self, train: Seeds) -> Seeds:
        """Training seeds, and validation seeds whose windows have closed by the test time."""
        val = self.seeds("val")
        closed = val.times + self.task.timedelta <= self.dataset.test_timestamp
        # Of a table without times all rows are labelled at one time.
        closed |= val.times <= train.times.max()
        return train.joined(val.take(np.flatnonzero(closed)))

    def seeds_to_fill(self, time: pd.Timestamp | None = None) -> Seeds | None:
        """Of a task that fills in a column: the rows without a value, each at its own time.

        Args:
            time: a time at which to predict for all of them instead.

        Returns:
            None if the task is of another kind.
        """
        if not self.task.completes:
            return None
        found = rows_to_fill(self.dataset, self.task, self.db)
        return self._at_own_times(found, time)

    def own_times(self, rows: NDArray[np.int64]) -> Moments | None:
        """Of a task that fills in a column: the times of some rows; None for other tasks."""
        if not self.task.completes:
            return None
        return as_moments(row_times(self.dataset, self.task, self.db))[rows]

    def _at_own_times(self, found: pd.DataFrame, time: pd.Timestamp | None) -> Seeds:
        times = as_moments(found[self.task.time_col])
        rows = found[self.task.entity_col].to_numpy(np.int64)
        if time is not None:
            if self.db.table_dict[self.task.entity_table].time_col is not None:
                # In the rows' own unit: NumPy would wrap the year 9999 in nanoseconds.
                unit = np.datetime_data(times.dtype)[0]
                limit = convert_ticks(*as_ticks([time]), unit, clip=True)
                rows = rows[times <= limit.view(times.dtype)]
            times = np.repeat(time.to_datetime64(), len(rows))
        return Seeds(rows, times)

    # Columns as tensors.

    def fit_columns(self, text: str, text_channels: int, history: bool) -> Columns:
        """Types and statistics of all columns, from rows before the validation time."""
        shown, before = self.shown(history), self.dataset.val_timestamp
        fitted = self._fitted.setdefault((text, text_channels), {})
        missing = {n: table for n, table in shown.table_dict.items() if n not in fitted}
        if self.parts is not None:
            text_model(text, text_channels)  # fail early
            tables = {
                n: self.parts.fit(n, cast("FileTable", table), before, text, text_channels)
                for n, table in missing.items()
            }
            fitted |= self._shared(Columns(tables, before, text)).tables
        elif missing:
            found = fit_columns(
                Database(missing), before=before, text=text, text_channels=text_channels
            )
            fitted |= self._shared(found).tables
        return Columns({n: fitted[n] for n in sorted(shown.table_dict)}, before, text)

    def load_columns(self, folder: Path) -> Columns:
        """The columns of a saved run."""
        return self._shared(Columns.load(folder))

    def _shared(self, columns: Columns) -> Columns:
        """Replace columns by equal ones of another model, so that each table is encoded once."""
        tables = {
            name: self._tables.setdefault(digest(name, table), table)
            for name, table in columns.tables.items()
        }
        return Columns(tables, columns.before, columns.text)

    def encode(self, columns: Columns, history: bool) -> dict[str, Features]:
        """All tables as tensors; see `Columns.encode`."""
        missing = [n for n, table in columns.tables.items() if id(table) not in self._features]
        self._encode(columns, self.shown(history), missing)
        return {name: self._features[id(table)] for name, table in columns.tables.items()}

    def _encode(self, columns: Columns, db: Database, names: list[str]) -> None:
        columns.check(db)
        unreadable: list[str] = []
        for name in names:
            fitted, table = columns.tables[name], db.table_dict[name]
            if is_whole(table):
                found, wrong, unseen = self.store.encode(name, table, fitted)
            else:
                wrong = []
                found = fitted.encode(table.df, wrong)
                places = unseen_categories(Columns({name: fitted}, columns.before), db)
                unseen = {place[len(name) + 1 :]: texts for place, texts in places.items()}
            unreadable += [f"{name}.{column}" for column in dict.fromkeys(wrong)]
            self._features[id(fitted)], self._unseen[id(fitted)] = found, unseen
        columns.refuse(unreadable)

    def _unseen_categories(self, columns: Columns) -> dict[str, list[str]]:
        return {
            f"{name}.{column}": texts
            for name, table in columns.tables.items()
            for column, texts in self._unseen[id(table)].items()
        }

    def graph(self, history: bool, columns: Columns | None = None) -> RelationalGraph:
        """The relational graph; restricted to tables and keys of `columns`, if given."""
        shown = self.shown(history)
        key: tuple[bool, tuple[int, ...]] = (history, ())
        if columns is not None:
            known = known_schema(shown, columns)
            if not _same_schema(known, shown):
                key = (history, tuple(id(table) for table in columns.tables.values()))
                shown = known
        if key not in self._graphs:
            build = build_graph if self.parts is None else self.parts.graph
            self._graphs[key] = build(shown)
        return self._graphs[key]

    def prepare(
        self, config: Config, columns: Columns | None = None, *, encode: bool = True
    ) -> Prepared:
        """Prepare the task for a model.

        Args:
            config: the settings; "auto" for the history counts as "on".
            columns: columns of a saved run; by default they are fitted.
            encode: whether to encode the columns as tensors; otherwise the model reads the tables.
        """
        history = config.history != "off"
        seeds = self.training_seeds(config.density) if columns is None else None
        features: dict[str, Features] = {}
        unseen: dict[str, list[str]] = {}
        with thread_limit(config.threads):  # text models use the same threads
            if not encode:
                columns = Columns({}, self.dataset.val_timestamp)
            else:
                if columns is None:
                    columns = self.fit_columns(config.text, config.text_channels, history)
                features = self.encode(columns, history)
                unseen = self._unseen_categories(columns)
        graph = self.graph(history, columns if encode else None)
        return Prepared(
            self, config, columns, graph, features, routes_of(config, graph),
            self.history if history else None, seeds, unseen,
        )  # fmt: skip


def allowed(task: Task, db: Database) -> Database:
    """The database without the columns that the task hides, such as those of its label.

    Raises:
        TaskError: One of them is a primary key or a time column: without it, rows could not be
            referred to, or would always be visible.
    """
    hidden = list(task.hidden_columns())
    for name, column in hidden:
        table = db.table_dict.get(name)
        if table is not None and column in (table.pkey_col, table.time_col):
            what = "primary key" if column == table.pkey_col else "time column"
            raise TaskError(f"{name}.{column} cannot be hidden: it is the {what} of its table.")
    return without_columns(db, hidden)


def known_schema(db: Database, columns: Columns) -> Database:
    """The database without tables and foreign keys added since the columns were fitted.

    A table that has no rows any more has the time column that it had, which imports leave out.
    """
    tables = {}
    for name, table in db.table_dict.items():
        if name in columns.tables:
            keys = {
                column: parent
                for column, parent in table.fkey_col_to_pkey_table.items()
                if parent in columns.tables and columns.tables[name].had_key(column)
            }
            time = table.time_col
            if not len(table) and columns.tables[name].time_col in column_names(table):
                time = columns.tables[name].time_col
            tables[name] = retimed(table, keys, time)
    return Database(tables)


def _same_schema(one: Database, other: Database) -> bool:
    """Whether two databases have the same tables, foreign keys and time columns."""
    keys = [
        {name: (t.fkey_col_to_pkey_table, t.time_col) for name, t in db.table_dict.items()}
        for db in (one, other)
    ]
    return keys[0] == keys[1]
