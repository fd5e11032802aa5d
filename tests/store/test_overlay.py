"""An overlay is the table that it stands for, and so is everything that is made of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from relbench.base import Database, Table

from oracles.every_column import imported
from relfrog.analysis.altered_future import WAYS, Readings, Tampering
from relfrog.datasets.label_sql import run_sql
from relfrog.features.columns import fit_columns
from relfrog.features.overlay import overlay_features
from relfrog.graph.overlay import overlay_graph
from relfrog.graph.relational import build_graph
from relfrog.store.file_table import FileTable, concrete
from relfrog.store.overlay import OverlayTable, read_rows

SEEDS = range(6)


def in_files(db: Database, folder: Path) -> Database:
    """The same database, in files of several pieces."""
    tables = {}
    for name, table in db.table_dict.items():
        path = folder / f"{name}.parquet"
        table.df.to_parquet(path, index=False, row_group_size=7)
        keys = dict(table.fkey_col_to_pkey_table)
        tables[name] = FileTable(path, keys, table.pkey_col, table.time_col)
    return Database(tables)


def altered(db: Database, way: str, seed: int) -> tuple[Database, int]:
    """Another future from the middle of the data on, and where it begins."""
    graph = build_graph(db)
    known = np.concatenate([graph.times[graph.times > np.iinfo(np.int64).min], [0]])
    tick = int(np.quantile(known, 0.6))
    entity = next(n for n, t in db.table_dict.items() if t.pkey_col is not None)
    asked = {entity: np.array([len(db.table_dict[entity]) - 1])}
    return Tampering(way, tick, Readings(graph.unit), asked, seed=seed)(db), tick


def made(db: Database) -> Database:
    """The second database, really made."""
    return Database({name: concrete(table) for name, table in db.table_dict.items()})


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_made_of_an_overlay_is_what_is_made_of_the_table(
    way: str, seed: int, tmp_path: Path
) -> None:
    db = in_files(imported(seed), tmp_path)
    other, _ = altered(db, way, seed)
    assert any(isinstance(table, OverlayTable) for table in other.table_dict.values())
    real = made(other)

    one, two = overlay_graph(build_graph(db), other), build_graph(real)
    assert one.num_rows == two.num_rows
    for name in ("parents", "children", "blocks", "times", "keys", "tables"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)

    columns = fit_columns(made(db), before=pd.Timestamp("2262-01-01"))
    for name, table in other.table_dict.items():
        fitted = columns.tables[name]
        base = fitted.encode(made(db).table_dict[name].df, [])
        expected = fitted.encode(real.table_dict[name].df, [])
        if not isinstance(table, OverlayTable):
            continue
        found = overlay_features(base, fitted, table)
        rows = torch.randint(len(table), (3 * len(table),)) if len(table) else torch.arange(0)
        for part in ("dense", "codes", "moments"):
            assert torch.equal(
                torch.nan_to_num(getattr(found, part).index_select(0, rows).double()),
                torch.nan_to_num(getattr(expected, part).index_select(0, rows).double()),
            ), (name, part)
        if expected.bag_offsets is not None:
            assert torch.equal(found.bag_offsets, expected.bag_offsets)
            assert torch.equal(found.bag_values, expected.bag_values)


@pytest.mark.parametrize("way", WAYS)
def test_sql_sees_the_rows_of_an_overlay(way: str, tmp_path: Path) -> None:
    for seed in SEEDS[:3]:
        folder = tmp_path / str(seed)
        folder.mkdir()
        db = in_files(imported(seed), folder)
        other, tick = altered(db, way, seed)
        real = made(other)
        cut = pd.Timestamp(tick + 10**12, unit="us")
        for name in [n for n, t in other.table_dict.items() if isinstance(t, OverlayTable)]:
            for cuts in ([], [cut]):
                sides = []
                for some in (other, real):
                    table = some.table_dict[name]
                    for end in cuts:
                        table = table.upto(end)
                    sql = f'SELECT count(*) AS n, sum(hash(CAST(t AS VARCHAR)) % 1000) AS h FROM "{name}" t'
                    if table.pkey_col is not None:
                        sql = f'SELECT count(*) AS n, sum("{table.pkey_col}") AS h FROM "{name}"'
                    found = run_sql(sql, Database({name: table}), [cut], pd.Timedelta("1D"))
                    sides.append(
                        found.to_dict("records") if table.pkey_col else found["n"].tolist()
                    )
                assert sides[0] == sides[1], (name, seed, cuts)


def test_some_rows_of_a_file_are_those_of_the_frame(tmp_path: Path) -> None:
    db = imported(3)
    files = in_files(db, tmp_path)
    for table in files.table_dict.values():
        rows = np.arange(0, len(table), 3)
        expected = table.df.iloc[rows].reset_index(drop=True)
        pd.testing.assert_frame_equal(read_rows(table, rows), expected, check_dtype=False)


def test_rows_are_replaced_added_and_removed() -> None:
    frame = pd.DataFrame({"id": range(5), "x": [10, 11, 12, 13, 14], "s": list("abcde")})
    base = Table(frame, {}, "id", None)
    some = OverlayTable.replaced(base, np.array([1, 3]), frame.iloc[[0, 2]].assign(id=[1, 3]))
    assert some.df["s"].tolist() == ["a", "a", "c", "c", "e"]
    more = OverlayTable.extended(base, pd.DataFrame({"id": [5], "x": [None], "s": ["f"]}))
    assert more.df["id"].tolist() == list(range(6))
    assert more.df["x"].isna().tolist() == [False] * 5 + [True]
    assert some.others().tolist() == [1, 3]
    assert list(some.without({"x"}).df) == ["id", "s"]
