"""Results arrive in databases whole and in order, or nothing changes there."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import psycopg
import pytest

from helpers import plain_rows, some_results
from relfrog.errors import OutputError
from relfrog.io.output import check_output, write_frame
from relfrog.io.targets import mysql as mysql_target
from relfrog.io.targets import sql as sql_target

ODD_NAMES = ['"; DROP TABLE x; --', "`; 100% 'é' 表", "%(c0)s"]
ODD_NAMES += ["a b", "select", ":a", "?", "%s", "a.b"]


@dataclass
class Place:
    """A database to write into, and to look into by its own driver."""

    kind: str
    address: str
    run: Callable[..., list[tuple[Any, ...]]]

    def quoted(self, name: str) -> str:
        mark = "`" if self.kind == "mysql" else '"'
        return mark + name.replace(mark, mark * 2) + mark

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return self.run(f"SELECT * FROM {self.quoted(table)}")

    def tables(self) -> list[str]:
        """Everything that has a name, the traces of failures included."""
        queries = {
            "sqlite": "SELECT name FROM sqlite_master ORDER BY 1",
            "duckdb": "SELECT table_name FROM information_schema.tables ORDER BY 1",
            "mysql": "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY 1",
            "postgresql": "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
            "AND relkind IN ('r', 'v', 'm', 'p') ORDER BY 1",
        }
        return [row[0] for row in self.run(queries[self.kind])]


@pytest.fixture(params=["sqlite", "duckdb", "postgresql", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "postgresql":
        address = request.getfixturevalue("fresh_postgres")

        def run(query: str) -> list[tuple[Any, ...]]:
            with psycopg.connect(address, autocommit=True) as connection:
                cursor = connection.execute(query)  # type: ignore[call-overload]
                return cursor.fetchall() if cursor.description else []

    elif request.param == "mysql":
        import pymysql

        server = request.getfixturevalue("mysql")
        socket = server.partition("unix_socket=")[2]
        address = server.replace("/mysql?", "/results?")

        def run(query: str, database: str | None = "results") -> list[tuple[Any, ...]]:
            with pymysql.connect(
                unix_socket=socket, user="root", charset="utf8mb4", database=database, autocommit=True
            ) as connection, connection.cursor() as cursor:  # fmt: skip
                cursor.execute(query)
                return list(cursor.fetchall())

        # Not utf8mb4, so that the table must bring its own.
        run("CREATE OR REPLACE DATABASE results CHARACTER SET latin1", None)
    elif request.param == "sqlite":
        address = f"sqlite:///{tmp_path / 'new' / 'a.db'}"

        def run(query: str) -> list[tuple[Any, ...]]:
            (tmp_path / "new").mkdir(exist_ok=True)
            connection = sqlite3.connect(tmp_path / "new" / "a.db", isolation_level=None)
            try:
                return connection.execute(query).fetchall()
            finally:
                connection.close()

    else:
        address = f"duckdb:///{tmp_path / 'new' / 'a.duckdb'}"

        def run(query: str) -> list[tuple[Any, ...]]:
            (tmp_path / "new").mkdir(exist_ok=True)
            with duckdb.connect(str(tmp_path / "new" / "a.duckdb")) as connection:
                return connection.execute(query).fetchall()

    return Place(request.param, address, run)


def test_a_database_gives_back_what_was_written(place: Place) -> None:
    frame = some_results()
    check_output(place.address, "results")
    shown = write_frame(frame, place.address, table="results")
    assert shown.startswith("table results of ")
    wanted = plain_rows(frame)
    got = place.rows("results")
    if place.kind == "sqlite":
        got = [(*r[:2], r[2] and dt.datetime.fromisoformat(r[2]), *r[3:]) for r in got]
    if place.kind in ("sqlite", "mysql"):
        got = [(*r[:6], r[6] and json.loads(r[6]), json.loads(r[7])) for r in got]
    assert got == wanted
    assert place.tables() == ["results"]


TYPES = {
    "id": ("BIGINT", "BIGINT", "bigint", "bigint"),
    "code": ("TEXT", "VARCHAR", "varchar(255)", "text"),
    "at": ("TIMESTAMP", "TIMESTAMP", "datetime(6)", "timestamp without time zone"),
    "score": ("DOUBLE", "DOUBLE", "double", "double precision"),
    "sure": ("BOOLEAN", "BOOLEAN", "tinyint(1)", "boolean"),
    "count": ("BIGINT", "BIGINT", "bigint", "bigint"),
    "top": ("TEXT", "BIGINT[]", "longtext", "bigint[]"),
    "names": ("TEXT", "VARCHAR[]", "longtext", "text[]"),
    "day": ("DATE", "DATE", "date", "date"),
    "price": ("TEXT", "DECIMAL(3,2)", "decimal(3,2)", "numeric(3,2)"),
    "uid": ("TEXT", "VARCHAR", "varchar(255)", "text"),
    "kind": ("TEXT", "VARCHAR", "varchar(255)", "text"),
    "void": ("TEXT", "VARCHAR", "varchar(255)", "text"),
    "small": ("INTEGER", "SMALLINT", "int", "integer"),
    "long": ("TEXT", "VARCHAR", "longtext", "text"),
    "pairs": ("TEXT", "STRUCT(k BIGINT, v VARCHAR)[]", "longtext", "jsonb"),
    "mixed": ("TEXT", "VARCHAR", "varchar(255)", "text"),
    "zoned": ("TIMESTAMP", "TIMESTAMP", "datetime(6)", "timestamp without time zone"),
}


def test_columns_have_the_types_of_the_database(place: Place) -> None:
    frame = some_results().assign(
        day=dt.date(2020, 1, 1),
        price=decimal.Decimal("1.50"),
        uid=uuid.UUID(int=7),
        kind=pd.Categorical(list("aabba")),
        void=None,
        small=np.int16(3),
        long="x" * 70_000,
        pairs=[[{"k": 1, "v": "ü"}]] * 5,
        mixed=[[1, "ü"]] * 5,
        zoned=pd.Timestamp("2020-01-01 02:00", tz="Europe/Paris"),
    )
    write_frame(frame, place.address, table="t")
    queries = {
        "sqlite": "SELECT name, type FROM pragma_table_info('t')",
        "duckdb": "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 't'",
        "mysql": "SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS WHERE TABLE_NAME = 't' AND TABLE_SCHEMA = DATABASE()",
        "postgresql": "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 't'::regclass AND attnum > 0",
    }
    number = list(queries).index(place.kind)
    types = {n: re.sub(r"int\(\d\d\)", "int", t) for n, t in place.run(queries[place.kind])}
    assert types == {name: by_kind[number] for name, by_kind in TYPES.items()}
    row = place.run("SELECT day, price, uid, kind, void, small, zoned, pairs, mixed FROM t")[0]
    assert (str(row[0]), str(row[1]), str(row[6])[:19]) == (
        "2020-01-01",
        "1.50",
        "2020-01-01 01:00:00",
    )
    assert row[2:6] == (str(uuid.UUID(int=7)), "a", None, 3)
    pairs = row[7] if place.kind in ("duckdb", "postgresql") else json.loads(row[7])
    assert pairs == [{"k": 1, "v": "ü"}]
    assert json.loads(row[8]) == [1, "ü"]


def test_the_order_of_many_rows_is_kept(place: Place) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"n": rng.permutation(25_000), "s": rng.random(25_000)})
    write_frame(frame, place.address, table="t")
    assert place.rows("t") == plain_rows(frame)


def test_a_name_is_only_a_name(place: Place) -> None:
    place.run("CREATE TABLE x (a INTEGER)")
    frame = pd.DataFrame({name: [1] for name in ODD_NAMES})
    for name in ODD_NAMES[:3]:
        write_frame(frame, place.address, table=name)
        assert place.rows(name) == [(1,) * len(ODD_NAMES)]
        with pytest.raises(OutputError, match="already exists"):
            check_output(place.address, name)
    write_frame(frame.assign(a=2), place.address, table=ODD_NAMES[0], overwrite=True)
    assert place.rows(ODD_NAMES[0]) == [(*[1] * len(ODD_NAMES), 2)]
    assert sorted(place.tables()) == sorted([*ODD_NAMES[:3], "x"])


def test_a_table_is_replaced_only_if_told(place: Place) -> None:
    frame = some_results()
    write_frame(frame, place.address, table="t")
    before = place.rows("t")
    for refuse in (
        lambda: check_output(place.address, "t"),
        lambda: write_frame(frame[["id"]], place.address, table="t"),
    ):
        with pytest.raises(OutputError, match=r"table t of .* already exists.*--overwrite"):
            refuse()
    assert place.rows("t") == before
    check_output(place.address, "t", overwrite=True)
    assert place.rows("t") == before
    write_frame(frame[["id"]].iloc[:0], place.address, table="t", overwrite=True)
    assert place.rows("t") == []
    write_frame(frame[["id"]], place.address, table="t", overwrite=True)
    assert place.rows("t") == plain_rows(frame[["id"]])
    assert place.tables() == ["t"]


def test_a_view_is_never_replaced(place: Place) -> None:
    place.run("CREATE TABLE x (a INTEGER)")
    place.run("CREATE VIEW v AS SELECT a FROM x")
    if place.kind == "postgresql":
        place.run("CREATE MATERIALIZED VIEW m AS SELECT a FROM x")
        place.run("CREATE SEQUENCE s")
        place.run("CREATE TABLE p (a INTEGER) PARTITION BY RANGE (a)")
        place.run("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1) TO (2)")
    before = place.tables()
    kinds = {"v": "view", "m": "materialized view", "s": "sequence", "p": "partitioned table"}
    kinds["p1"] = "partition"
    for name in kinds if place.kind == "postgresql" else "v":
        for overwrite in (True, False):
            with pytest.raises(OutputError, match=f"{name} is a {kinds[name]} in .*--table"):
                check_output(place.address, name, overwrite)
            with pytest.raises(OutputError, match=f"{name} is a {kinds[name]} in"):
                write_frame(some_results(), place.address, table=name, overwrite=overwrite)
    assert place.tables() == before


def test_a_table_that_others_refer_to_stays(place: Place) -> None:
    place.run("CREATE TABLE p (a INTEGER PRIMARY KEY)")
    place.run("CREATE TABLE c (a INTEGER, FOREIGN KEY (a) REFERENCES p (a))")
    place.run("INSERT INTO p VALUES (1)")
    for refuse in (
        lambda: check_output(place.address, "p", True),
        lambda: write_frame(some_results(), place.address, table="p", overwrite=True),
    ):
        with pytest.raises(OutputError, match=r"cannot be replaced: (\w+\.)?c refers to it\."):
            refuse()
    assert place.rows("p") == [(1,)]
    assert place.tables() == ["c", "p"] + (
        ["sqlite_autoindex_p_1"] if "sqlite_autoindex_p_1" in place.tables() else []
    )


def test_a_view_on_a_replaced_table_lives_on_or_forbids_it(place: Place) -> None:
    place.run("CREATE TABLE t (a INTEGER)")
    place.run("CREATE VIEW v AS SELECT a FROM t")
    frame = pd.DataFrame({"a": [1, 2]})
    if place.kind == "postgresql":
        with pytest.raises(OutputError, match="v refers to it"):
            check_output(place.address, "t", True)
        assert place.rows("v") == []
        return
    write_frame(frame, place.address, table="t", overwrite=True)
    assert place.rows("v") == [(1,), (2,)]


def test_how_many_refer_to_a_table_is_said(fresh_postgres: str) -> None:
    write_frame(some_results(), fresh_postgres, table="t")
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        connection.execute("CREATE VIEW v AS SELECT id FROM t")
        connection.execute("CREATE VIEW w AS SELECT id FROM t")
    with pytest.raises(OutputError, match=r"replaced: 2 others \(v, \.\.\.\) refer to it"):
        check_output(fresh_postgres, "t", True)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_failure_leaves_nothing(
    error: type[BaseException],
    overwrite: bool,
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if overwrite:
        place.run("CREATE TABLE t (a INTEGER)")
        place.run("INSERT INTO t VALUES (7)")
    rows = sql_target._rows

    def broken(*args: Any) -> Iterator[Any]:
        yield next(rows(*args))
        raise error

    class Broken:
        """DuckDB asks it for rows while it makes the table."""

        column_names = ("a",)

        def __arrow_c_stream__(self, schema: Any = None) -> Any:
            raise error

    monkeypatch.setattr(sql_target, "_rows", broken)
    if place.kind == "duckdb":
        monkeypatch.setattr("relfrog.io.output._database_types", lambda data: Broken())
    files = sorted(tmp_path.rglob("*"))
    expected = KeyboardInterrupt if error is KeyboardInterrupt else OutputError
    with pytest.raises((expected, OutputError)):
        write_frame(some_results(), place.address, table="t", overwrite=overwrite)
    if place.kind in ("sqlite", "duckdb"):
        assert sorted(tmp_path.rglob("*")) == files
    if overwrite:
        assert place.rows("t") == [(7,)]
    assert place.tables() == (["t"] if overwrite else [])


def test_values_that_do_not_fit_change_nothing(place: Place) -> None:
    wrong = {
        "postgresql": pd.DataFrame({"a": ["x"] * 20_000 + ["\0"]}),
        "mysql": pd.DataFrame({"a": [1.0] * 20_000 + [np.inf]}),
        "sqlite": pd.DataFrame({"a": [1], "A": [2]}),
        "duckdb": pd.DataFrame({"a": [1], "A": [2]}),
    }[place.kind]
    place.run("CREATE TABLE t (a INTEGER)")
    with pytest.raises(
        OutputError,
        match=r"table t of .* (cannot be written: .*Nothing was changed|cannot have both)",
    ):
        write_frame(wrong, place.address, table="t", overwrite=True)
    assert place.rows("t") == []
    assert place.tables() == ["t"]


@pytest.mark.parametrize("place", ["sqlite", "postgresql", "mysql"], indirect=True)
def test_nobody_sees_a_table_half_full(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    write_frame(pd.DataFrame({"a": [1, 2]}), place.address, table="t")
    seen = []
    put = sql_target.SqlTarget._put_in_place

    def look(self: Any, connection: Any, found: Any) -> None:
        seen.append(place.rows("t"))
        put(self, connection, found)

    owner = mysql_target.MySQLTable if place.kind == "mysql" else sql_target.SqlTarget
    put = owner._put_in_place
    monkeypatch.setattr(owner, "_put_in_place", look)
    write_frame(pd.DataFrame({"a": [3]}), place.address, table="t", overwrite=True)
    assert seen == [[(1,), (2,)]]
    assert place.rows("t") == [(3,)]


@pytest.mark.parametrize("place", ["mysql"], indirect=True)  # the others have one transaction
def test_an_old_table_that_cannot_go_comes_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_frame(pd.DataFrame({"a": [1]}), place.address, table="t")
    # Between looking and replacing, somebody begins to refer to the table.
    look = mysql_target.MySQLTable._find_existing

    def blind(self: Any, connection: Any) -> Any:
        found = look(self, connection)
        place.run("ALTER TABLE t ADD PRIMARY KEY (a)")
        place.run("CREATE TABLE c (a BIGINT, FOREIGN KEY (a) REFERENCES t (a))")
        return found

    monkeypatch.setattr(mysql_target.MySQLTable, "_find_existing", blind)
    with pytest.raises(OutputError, match="cannot be written"):
        write_frame(pd.DataFrame({"a": [2]}), place.address, table="t", overwrite=True)
    assert place.rows("t") == [(1,)]
    assert place.tables() == ["c", "t"]


def test_a_schema_may_stand_before_the_table(place: Place) -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    if place.kind == "sqlite":
        write_frame(frame, place.address, table="odd.name")
        assert place.tables() == ["odd.name"]
        return
    drop = (
        "DROP DATABASE IF EXISTS `o`"
        if place.kind == "mysql"
        else "DROP SCHEMA IF EXISTS o CASCADE"
    )
    place.run(drop)
    for ask in (
        lambda: check_output(place.address, "o.t"),
        lambda: write_frame(frame, place.address, table="o.t"),
    ):
        with pytest.raises(OutputError, match=r"there is no schema o\. Schemas: .*\w"):
            ask()
    place.run("CREATE SCHEMA o")
    write_frame(frame, place.address, table="o.t")
    check_output(place.address, "t")  # another schema's table is in nobody's way
    write_frame(frame.assign(a=3), place.address, table="o.t", overwrite=True)
    assert place.run("SELECT * FROM o.t") == [(3,), (3,)]
    with pytest.raises(OutputError, match="already exists"):
        check_output(place.address, "o.t")
    assert place.tables() == (["t"] if place.kind == "duckdb" else [])
    place.run(drop)


def test_a_table_of_another_user_is_left_to_it(fresh_postgres: str) -> None:
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS small")
        connection.execute("CREATE ROLE small LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA public TO small")
        connection.execute("CREATE TABLE t (a INTEGER)")
    small = fresh_postgres.replace("postgres:@", "small:@")
    with pytest.raises(OutputError, match="belongs to postgres"):
        check_output(small, "t", True)
    with pytest.raises(OutputError, match="permission denied for schema public"):
        check_output(small, "u")
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        connection.execute("DROP OWNED BY small")
        connection.execute("DROP ROLE small")
