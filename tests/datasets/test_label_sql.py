"""Label SQL in the sandbox: the same labels as without one, and limits that hold."""

from __future__ import annotations

import os
import resource
import time
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from relbench.base import Database, Table

from oracles.plain_sql import plain_sql
from relfrog import open_dataset
from relfrog.datasets import label_sql
from relfrog.datasets.label_sql import run_sql
from relfrog.errors import TaskError
from relfrog.store.file_table import FileTable
from relfrog.support.lists import holds_lists

TIMES = [pd.Timestamp("2020-05-01"), pd.Timestamp("2020-06-01 12:34:56.789012345")]
DAY = pd.Timedelta("1 day")

#: A table with every type that pandas and DuckDB have in common, with and without NULL.
ODD = pd.DataFrame(
    {
        "whole": np.array([1, 2**62 + 1, -3]),
        "small": np.array([1, 2, 255], "uint8"),
        "part": [0.1, np.nan, 1e300],
        "single": np.array([0.1, np.nan, 3], "float32"),
        "maybe": pd.array([1, None, 2**60 + 1], dtype="Int64"),
        "yes": [True, False, True],
        "perhaps": pd.array([True, None, False], dtype="boolean"),
        "word": ["b", None, "ä'\"\\"],
        "class": pd.Categorical(["low", "high", None], ["low", "high", "it's"], ordered=True),
        "at": pd.to_datetime(["2020-01-01", None, "2021-01-01 01:02:03.456789"], format="ISO8601"),
        "exact": pd.to_datetime(
            ["2020-01-01", None, "2020-01-01 00:00:00.000000001"], format="ISO8601"
        ).as_unit("ns"),
        "zoned": pd.to_datetime(["2020-01-01", None, "2021-01-01"]).tz_localize("Asia/Tokyo"),
        "span": pd.to_timedelta(["1 day", None, "1 us"]),
        "day": [date(2020, 1, 1), None, date(1800, 1, 1)],
        "price": [Decimal("1.10"), None, Decimal("-12345.67")],
        "raw": [b"\x00x", None, b""],
        "many": [[1, 2], None, []],
        "key": [UUID(int=1), None, UUID(int=2**127)],
        "two words; DROP": [1, 2, 3],
    }
)
DB = Database({"odd": Table(ODD, {}), 'a "b"': Table(ODD[["whole"]], {})})

STATEMENTS = [
    "SELECT * FROM timestamps",
    "SELECT * FROM odd",
    "SELECT t.timestamp, o.* FROM timestamps t CROSS JOIN odd o ORDER BY whole DESC",
    "SELECT sum(whole) h, sum(part) p, avg(small) a, max(class) c, min(word) w FROM odd",
    "SELECT class, class > 'low' x, count(*) n FROM odd GROUP BY 1 ORDER BY 1",
    "SELECT typeof(COLUMNS(*)) FROM odd LIMIT 1",
    "SELECT list(whole ORDER BY word) l, map([1], ['x']) m, {'a': 1} s, NULL n FROM odd",
    "SELECT o.at + INTERVAL '{timedelta}' a, zoned::TIMESTAMP z, date_trunc('month', o.at) m FROM odd o",
    "SELECT sum(x.whole) FROM ODD x JOIN \"a \"\"B\"\"\" y USING (whole)",
    "SELECT count(*) n FROM query_table('o' || 'dd')",
    "FROM odd SELECT hash(odd)",
    "SELECT 1 AS a, 2 AS a",
    "SELECT whole FROM odd WHERE false",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # what DuckDB does to times with zones
@pytest.mark.parametrize("sql", STATEMENTS)
def test_the_sandbox_changes_no_label(sql: str) -> None:
    found, expected = run_sql(sql, DB, TIMES, DAY), plain_sql(sql, DB, TIMES, DAY)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


@pytest.mark.parametrize("sql", [
    "SELECT whole, many, [word, 'x'] AS words, [whole] AS one, [part] AS parts FROM odd",
    "SELECT list(whole ORDER BY word) AS l FROM odd",
    "SELECT many FROM odd WHERE false",
    "SELECT 1 AS a, [2] AS a",
    "SELECT class, [1, NULL] AS l FROM odd",
])  # fmt: skip
def test_lists_of_keys_are_the_same_as_arrows(sql: str) -> None:
    plain, found = (run_sql(sql, DB, TIMES, DAY, arrow_lists=some) for some in (False, True))
    assert list(found) == list(plain)
    # Of two columns of one name it is not known which is which.
    assert any(holds_lists(found[name]) for name in found) == ("AS a, [2] AS a" not in sql)
    for place in range(found.shape[1]):
        one, other = found.iloc[:, place], plain.iloc[:, place]
        if not holds_lists(one):
            pd.testing.assert_series_equal(one, other, check_exact=True)
            continue
        assert one.isna().tolist() == other.isna().tolist()
        known = ~one.isna()
        as_lists = [[None if x is np.ma.masked else x for x in some] for some in other[known]]
        assert pa.array(one[known]).to_pylist() == as_lists


def test_an_odd_column_is_in_nobodys_way() -> None:
    """A column that DuckDB cannot read matters to SQL that needs it, and to no other."""
    frame = pd.DataFrame({"id": range(30_000), "odd": pd.Series(range(30_000), dtype=object)})
    frame.loc[7, "odd"] = "seven"  # not among those by which DuckDB finds the type
    db = Database({"t": Table(frame, {})})
    assert run_sql("SELECT count(id) n FROM t", db, TIMES, DAY)["n"].tolist() == [30_000]
    with pytest.raises(TaskError):
        run_sql("SELECT odd FROM t", db, TIMES, DAY)


HUGE = {"seconds": 1, "memory": 100 << 20, "disk": 50 << 20}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(repeat('x', 3000000000)) n",
        "SELECT list_sort(range(300000000)) n",
        "SELECT 1 " + "UNION ALL SELECT 1 " * 20_000,
        "SELECT " + "(" * 100_000 + "1" + ")" * 100_000,
        "SELECT range n FROM range(1000000000)",
        "SELECT md5(range::VARCHAR) n FROM range(100000000) ORDER BY n",
        "SELECT repeat('x', 100000) n FROM range(100000)",
    ],
    ids=["string", "list", "unions", "nesting", "rows", "spilling", "wide"],
)
def test_no_sql_passes_its_limits(
    sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    with pytest.raises(TaskError, match="label SQL was stopped"):
        run_sql(sql, DB, TIMES, DAY, **HUGE)
    assert time.monotonic() - began < 2 * HUGE["seconds"] + 4  # with what another worker takes
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < HUGE["memory"]
    assert not os.listdir(tmp_path)


def test_a_full_disk_is_said(bare_shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(label_sql, "write_arrow", full)
    db = open_dataset(bare_shop).get_db()
    with pytest.raises(TaskError, match=r"No space left on device.*TMPDIR"):
        run_sql("SELECT 1 FROM people", db, TIMES, timedelta(days=1))


def test_a_table_of_two_files_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "t.parquet", tmp_path / "more.parquet"
    pd.DataFrame({"id": [0, 1], "x": [1.0, 2.0]}).to_parquet(path, index=False)
    pd.DataFrame({"value": [10.0, 20.0]}).to_parquet(other, index=False)
    written, write = [], label_sql._write

    def counted(file: Path, frame: Any) -> None:
        written.append(type(frame).__name__)
        write(file, frame)

    monkeypatch.setattr(label_sql, "_write", counted)

    def total(joined: bool = True) -> float:
        table = FileTable(path, {}, "id", None)
        db = Database({"t": table.with_column("y", other) if joined else table})
        return float(run_sql("SELECT sum(x) AS s FROM t", db, TIMES, DAY)["s"].iloc[0])

    assert total(joined=False) == 3.0
    assert written.count("FileTable") == 0  # it is read where it lies
    assert [total(), total()] == [3.0, 3.0]
    assert written.count("FileTable") == 1
    pd.DataFrame({"id": [0, 1], "x": [1.0, 5.0]}).to_parquet(path, index=False)
    os.utime(path, ns=(0, 0))
    assert [total(), total(joined=False)] == [6.0, 6.0]
    assert written.count("FileTable") == 2
    monkeypatch.setattr(label_sql, "_KEPT", 0)
    pd.DataFrame({"id": [0, 1], "x": [1.0, 6.0]}).to_parquet(path, index=False)
    assert total() == 7.0
    assert len(list(label_sql._kept().iterdir())) <= 1


@pytest.mark.parametrize(
    "sql",
    ["SELECT * FROM read_parquet('{other}')", "SELECT * FROM read_text('{other}')",
     "SELECT * FROM t, glob('{folder}/*')", "COPY (SELECT 1) TO '{table}'"],
)  # fmt: skip
def test_only_files_of_tables_can_be_read(tmp_path: Path, sql: str) -> None:
    table, other = tmp_path / "t.parquet", tmp_path / "other.parquet"
    for path in (table, other):
        pd.DataFrame({"id": [0, 1]}).to_parquet(path, index=False)
    before = table.read_bytes()
    db = Database({"t": FileTable(table, {}, "id", None)})
    asked = sql.format(other=other, folder=tmp_path, table=table)
    with pytest.raises(TaskError, match=r"disabled|SELECT"):
        run_sql(asked, db, TIMES, DAY)
    assert table.read_bytes() == before


@pytest.mark.parametrize("frame", ["cut", "hidden", "limited", "plain"])
def test_a_file_shows_what_its_frame_shows(tmp_path: Path, frame: str) -> None:
    path = tmp_path / "t.parquet"
    rows = pd.DataFrame({
        "id": [0, 1, 2], "parent": pd.array([0, 7, None], "Int64"), "x": [0.5, np.nan, 2.0],
        "at": pd.to_datetime(["2020-01-01", "2020-02-01", "2020-03-01"]), "word": ["a", None, "c"],
    })  # fmt: skip
    rows.to_parquet(path, index=False)
    table = FileTable(path, {"parent": "p"}, "id", "at")
    table = {
        "cut": lambda: table.upto(pd.Timestamp("2020-02-10")),
        "hidden": lambda: table.without({"x"}),
        "limited": lambda: table.with_limits({"p": 3}),
        "plain": lambda: table,
    }[frame]()
    shown = run_sql("SELECT * FROM t ORDER BY id", Database({"t": table}), TIMES, DAY)
    frame = Table(table.df.reset_index(drop=True), {"parent": "p"}, "id", "at")
    expected = run_sql("SELECT * FROM t ORDER BY id", Database({"t": frame}), TIMES, DAY)
    pd.testing.assert_frame_equal(shown, expected, check_dtype=False)
