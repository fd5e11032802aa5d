"""Label history: a label is seen from the end of its window on, and not a moment before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from relbench.base import Database, Table

from relfrog import open_dataset
from relfrog.config import Config
from relfrog.datasets.label_history import add_label_history, known_labels, label_history_name
from relfrog.datasets.tasks import load_task
from relfrog.features.columns import fit_columns
from relfrog.graph.relational import build_graph
from relfrog.training.opened_task import OpenedTask
from relfrog.training.prepared import Prepared
from small_store import END, HORIZON, QUICK, TASKS, TEST, VAL


def opened(store: Path, task: str) -> tuple[Any, Any, Any]:
    dataset = open_dataset(store)
    return dataset, load_task(dataset, task), dataset.get_db(upto_test_timestamp=False)


def label_by_hand(task: str, titles: dict[int, str], bought: pd.DataFrame) -> Any:
    """The label of one person and window, from the orders inside it."""
    if task == "buys":
        return int(len(bought) > 2)
    if task == "spends":
        return 1000 * bought["amount"].sum()
    if task == "counts":
        return min(len(bought), 3)
    if task == "sorts":
        # Keys in label SQL are the source's: things are numbered from 1 there.
        return tuple(int(((bought["thing"] + 1) % 3 == i).any()) for i in range(3))
    names = bought["thing"].map(titles)
    return "nothing" if not len(names) else names.mode().min()


def labels_by_hand(dataset: Any, task: str, db: Any) -> dict[tuple[int, pd.Timestamp], Any]:
    """Person and end of the window to label, for all windows that have closed."""
    orders, people = db.table_dict["orders"].df, db.table_dict["people"].df
    things = db.table_dict["things"].df
    titles = dict(zip(things["id"], things["title"]))
    starts, start = [], VAL - HORIZON
    while start >= db.min_timestamp:
        starts.append(start)
        start -= HORIZON
    for first, end in ((VAL, TEST), (TEST, db.max_timestamp)):
        start = first
        while start + HORIZON <= end:
            starts.append(start)
            start += HORIZON
    found = {}
    for start in starts:
        inside = orders[(orders["ordered_at"] > start) & (orders["ordered_at"] <= start + HORIZON)]
        for person, joined in zip(people["code"], people["joined"]):
            if joined <= start:
                bought = inside[inside["person"] == person]
                found[person, start + HORIZON] = label_by_hand(task, titles, bought)
    return found


def as_dict(frame: pd.DataFrame) -> dict[tuple[int, pd.Timestamp], Any]:
    labels = [tuple(v) if isinstance(v, np.ndarray | list) else v for v in frame["label"]]
    return dict(zip(zip(frame["entity"], frame["window_end"]), labels, strict=True))


@pytest.mark.parametrize("name", list(TASKS))
def test_every_closed_window_is_there_at_its_end(store: Path, name: str) -> None:
    dataset, task, db = opened(store, name)
    whole = add_label_history(dataset, task, db, "past")
    table = whole.table_dict["past"]
    assert table.fkey_col_to_pkey_table == {"entity": "people"}
    assert (table.time_col, table.pkey_col) == ("window_end", None)
    found, expected = as_dict(table.df), labels_by_hand(dataset, name, db)
    assert len(found) == len(table.df)
    still_open = {key for key in found if key[1] > db.max_timestamp}
    assert {end for _, end in still_open} == {max(end for _, end in expected) + HORIZON}
    found = {key: label for key, label in found.items() if key not in still_open}
    assert found.keys() == expected.keys()
    for key, label in expected.items():
        assert found[key] == (pytest.approx(label) if name == "spends" else label)
    order = list(zip(table.df["window_end"], table.df["entity"]))
    assert order == sorted(order)
    assert set(db.table_dict) == set(whole.table_dict) - {"past"}
    # The labels that are trained and tested with are among them.
    for split in ("train", "val", "test"):
        seeds = OpenedTask(task.dataset, task).seeds(split)
        assert seeds.labels is not None
        for row, at, label in zip(seeds.rows, seeds.times, seeds.labels):
            same = tuple(label) if name == "sorts" else label
            assert found[row, at + HORIZON] == same


@pytest.mark.parametrize("name", list(TASKS))
def test_labels_of_every_type_become_features(store: Path, name: str) -> None:
    dataset, task, _ = opened(store, name)
    ready = OpenedTask(dataset, task).prepare(Config(**QUICK))
    assert ready.history == "labels of the task"
    columns = ready.columns.tables[ready.history]
    assert "label" in {column.name for column in columns.columns}
    assert ready.features[ready.history].dense.whole().isfinite().all()


def seen(ready: Prepared, split: str) -> list[tuple[int, pd.Timestamp, set[int]]]:
    """Per seed its row, its time, and the rows of its own history that its batch holds."""
    seeds = ready.seeds(split)
    loader = ready.loader(seeds)
    assert ready.history is not None
    (key,) = [k for k in ready.graph.foreign_keys if k.table == ready.history]
    found = []
    for plan in loader:
        batch = plan.batch
        rows = batch.tables[ready.history]
        numbers = rows.rows[rows.index].numpy()
        parents = batch.parents[key].numpy()
        for seed, position in zip(batch.seed_ids.tolist(), batch.seeds.tolist()):
            mine = set(numbers[parents == position].tolist())
            found.append((int(seeds.rows[seed]), seeds.times[seed], mine))
        # Nothing in the batch is younger than the seeds that it is there for.
        ends = ready.graph.time(ready.history)[numbers]
        times = batch.group_times.numpy()[rows.group.numpy()]
        assert (ends <= times).all()
    assert len(found) == len(seeds)
    return found


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_seed_sees_the_labels_of_closed_windows_and_no_other(store: Path, split: str) -> None:
    dataset, task, db = opened(store, "buys")
    ready = OpenedTask(dataset, task).prepare(Config(**{**QUICK, "neighbors": -1}))
    table = add_label_history(dataset, task, db, "past").table_dict["past"].df
    some = 0
    for person, at, rows in seen(ready, split):
        expected = set()
        for number, entity, end in table[["entity", "window_end"]].itertuples():
            if entity == person and end <= at:
                expected.add(number)
        assert rows == expected
        some += len(expected)
    assert some


def test_a_label_is_never_seen_by_its_own_seed(store: Path) -> None:
    dataset, task, db = opened(store, "buys")
    ready = OpenedTask(dataset, task).prepare(Config(**{**QUICK, "neighbors": -1}))
    table = add_label_history(dataset, task, db, "past").table_dict["past"].df
    for split in ("train", "val", "test"):
        for person, at, rows in seen(ready, split):
            own = table[(table["entity"] == person) & (table["window_end"] == at + HORIZON)]
            assert len(own) == 1
            assert not rows & set(own.index)


def test_later_rows_change_no_label_that_was_known(store: Path) -> None:
    dataset, task, db = opened(store, "spends")
    whole = known_labels(dataset, task, db)
    for time in (VAL, TEST, TEST + HORIZON, TEST + 2 * HORIZON):
        cut = Database({n: t.upto(time) for n, t in db.table_dict.items()})
        part = known_labels(dataset, task, cut)
        closed = part[part["timestamp"] + HORIZON <= time].reset_index(drop=True)
        expected = whole[whole["timestamp"] + HORIZON <= time].reset_index(drop=True)
        pd.testing.assert_frame_equal(closed, expected)
        assert len(expected)


def test_whether_a_later_row_exists_makes_no_difference(store: Path) -> None:
    """The newest row may lie anywhere before a seed: the same windows have closed for it."""
    dataset, task, db = opened(store, "buys")
    whole = add_label_history(dataset, task, db, "past").table_dict["past"].df
    for time in (TEST + 1.2 * HORIZON, TEST + 2 * HORIZON, TEST + 2.01 * HORIZON):
        cut = Database({n: t.upto(time - 0.4 * HORIZON) for n, t in db.table_dict.items()})
        rows = {n: t.upto(time) for n, t in db.table_dict.items() if n == "people"}
        quiet = add_label_history(dataset, task, Database({**cut.table_dict, **rows}), "past")
        orders = db.table_dict["orders"].df["ordered_at"]
        gone = orders[(orders > time - 0.4 * HORIZON) & (orders <= time)]
        part = quiet.table_dict["past"].df
        ends = [set(f["window_end"][f["window_end"] <= time]) for f in (part, whole)]
        assert ends[0] == ends[1]
        assert len(gone)  # it is the windows that are the same; labels follow from the rows
    late = pd.DataFrame({"code": [20], "joined": [END + 90 * HORIZON]})
    people = db.table_dict["people"]
    frame = pd.concat([people.df, late], ignore_index=True)
    more = Table(frame, people.fkey_col_to_pkey_table, "code", "joined")
    again = add_label_history(dataset, task, Database({**db.table_dict, "people": more}), "past")
    some = again.table_dict["past"].df
    assert set(whole["window_end"]) == set(
        some["window_end"][some["window_end"] < END + 80 * HORIZON]
    )


def test_a_database_that_stops_a_little_before_the_test_time_is_complete(store: Path) -> None:
    dataset, task, db = opened(store, "buys")
    before = TEST - pd.Timedelta("1 minute")
    cut = Database({n: t.upto(before) for n, t in db.table_dict.items()})
    assert cut.max_timestamp < TEST
    ends = known_labels(dataset, task, cut)["timestamp"] + HORIZON
    assert ends.max() == VAL + 3 * HORIZON  # the last window before the test time
    assert ends.max() <= TEST


def test_names_that_collide(store: Path) -> None:
    dataset, task, db = opened(store, "buys")
    assert label_history_name(db) == "labels of the task"
    taken = Database({**db.table_dict, "labels of the task": db.table_dict["things"]})
    taken.table_dict["labels of the task again"] = db.table_dict["things"]
    name = label_history_name(taken)
    assert name not in taken.table_dict
    whole = add_label_history(dataset, task, taken, name)
    assert len(whole.table_dict) == len(taken.table_dict) + 1
    for other, table in taken.table_dict.items():
        assert whole.table_dict[other] is table


def test_a_table_that_is_called_like_a_history_is_no_history(store: Path) -> None:
    dataset, task, db = opened(store, "buys")
    things = db.table_dict["things"]
    db.table_dict["labels of the task"] = Table(things.df.copy(), {}, "id", None)
    ready = OpenedTask(dataset, task, db=db).prepare(Config(**QUICK))
    assert ready.history == "labels of the task again"
    again = OpenedTask(dataset, task, db=db).prepare(Config(**QUICK), ready.columns)
    assert again.history == ready.history
    assert ready.graph.num_rows["labels of the task"] == len(things)


@pytest.mark.parametrize("name", list(TASKS))
def test_no_labels_at_all(store: Path, name: str) -> None:
    dataset, task, db = opened(store, name)
    for table in ("orders", "people", "reviews"):
        db.table_dict[table].df = db.table_dict[table].df.iloc[:0]
    task.timedelta = pd.Timedelta("4000 days")  # no window has closed yet
    db.table_dict["orders"].df = pd.DataFrame(
        {**dict.fromkeys(db.table_dict["orders"].df), "id": [0], "ordered_at": [VAL]}
    )
    whole = add_label_history(dataset, task, db, "past")
    table = whole.table_dict["past"]
    assert len(table.df) == 0
    assert table.df["window_end"].dtype.kind == "M"
    graph = build_graph(whole)
    assert graph.num_rows["past"] == 0
    columns = fit_columns(whole, before=VAL)
    assert len(columns.encode(whole)["past"].dense) == 0


def test_sql_that_gives_nothing_is_no_error(store: Path) -> None:
    dataset, task, db = opened(store, "buys")
    task.sql = f"SELECT * FROM ({task.sql}) WHERE false"
    assert len(known_labels(dataset, task, db)) == 0
    assert len(add_label_history(dataset, task, db, "past").table_dict["past"].df) == 0


def test_labels_that_are_files_have_no_test_labels_in_them(store: Path) -> None:
    dataset, task, db = opened(store, "buys")
    given = {s: task.get_table(s, mask_input_cols=False).df for s in ("train", "val", "test")}

    class External:
        """What RelBench makes of a task whose labels were computed elsewhere."""

        entity_table, entity_col, sql = task.entity_table, task.entity_col, None
        time_col, target_col, timedelta = task.time_col, task.target_col, task.timedelta

        def get_table(self, split: str, mask_input_cols: bool) -> Table:
            assert split != "test"
            return Table(given[split], {self.entity_col: self.entity_table}, None, self.time_col)

    found = known_labels(dataset, External(), db)
    assert len(found) == len(given["train"]) + len(given["val"])
    assert found["timestamp"].max() < TEST
    order = list(zip(found["timestamp"], found["code"]))
    assert order == sorted(order)
