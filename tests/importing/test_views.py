"""Views of the source are listed, and read beside the tables if asked for."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas as pd
import pytest

from helpers import csv_folder, imported, inside, said, sqlite
from relfrog import add_task, import_database, open_dataset
from relfrog.datasets.tasks import load_task
from relfrog.errors import RelFrogError
from relfrog.importing.database import plan_import

TABLES = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(20));
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id),
    ordered_at TIMESTAMP);
CREATE TABLE order_lines (order_id INTEGER REFERENCES orders (id), amount INTEGER);
INSERT INTO customers VALUES (10, 'a'), (20, 'b'), (30, 'c');
INSERT INTO orders VALUES (1, 10, '2020-01-01'), (2, 20, '2020-02-01'), (3, 10, '2020-03-01'),
    (4, 30, '2020-04-01');
INSERT INTO order_lines VALUES (1, 5), (1, 6), (2, 7), (3, 8), (4, 9);
"""
VIEW = (
    "CREATE {}VIEW {} AS SELECT l.order_id, l.amount, o.ordered_at, o.customer_id "
    "FROM order_lines l JOIN orders o ON o.id = l.order_id;"
)
VIEWS = VIEW.format("", "dated_lines") + VIEW.format("", "other_lines")


def in_sqlite(tmp_path: Path) -> str:
    return sqlite(tmp_path / "s.db", TABLES, VIEWS)


def in_duckdb(tmp_path: Path) -> str:
    with duckdb.connect(str(tmp_path / "s.duckdb")) as connection:
        connection.execute(TABLES + VIEWS)
    return f"duckdb:///{tmp_path / 's.duckdb'}"


def check_views(address: str, tmp_path: Path) -> None:
    result, tables = imported(address, tmp_path / "none")
    assert set(tables) == {"customers", "orders", "order_lines"}
    text = said(result, "note")
    assert "2 views of the source are not imported: dated_lines, other_lines" in text
    assert "--view dated_lines" in text

    result, tables = imported(address, tmp_path / "one", view=["dated*"], val="2020-02-15", test="2020-03-15")  # fmt: skip
    assert set(tables) == {"customers", "orders", "order_lines", "dated_lines"}
    assert "1 view of the source is not imported: other_lines" in said(result, "note")
    mapped = result.mapping.tables["dated_lines"]
    keys = {key.columns: key.parent for key in mapped.used_keys()}
    assert keys == {("order_id",): "orders", ("customer_id",): "customers"}
    assert all(key.origin == "proposed" for key in mapped.used_keys())
    assert mapped.time == "ordered_at"
    assert sorted(tables["dated_lines"]["amount"]) == [5, 6, 7, 8, 9]

    # The mapping file names the view, and brings it back.
    _, more = imported(address, tmp_path / "again", mapping=tmp_path / "one" / "mapping.yaml")
    pd.testing.assert_frame_equal(more["dated_lines"], tables["dated_lines"])
    assert set(more) == set(tables)

    _, tables = imported(address, tmp_path / "all", view=["*"])
    assert {"dated_lines", "other_lines"} <= set(tables)
    _, tables = imported(address, tmp_path / "some", view=["*"], exclude=["other*"])
    assert "dated_lines" in tables
    assert "other_lines" not in tables
    _, tables = imported(address, tmp_path / "few", tables=["orders"], view=["dated_lines"])
    assert set(tables) == {"orders", "dated_lines"}
    with pytest.raises(RelFrogError, match="did you mean 'dated_lines'"):
        plan_import(address, view=["dated_line"])


def test_sqlite(tmp_path: Path) -> None:
    check_views(in_sqlite(tmp_path), tmp_path)


def test_duckdb(tmp_path: Path) -> None:
    check_views(in_duckdb(tmp_path), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "MATERIALIZED "])
def test_postgresql(kind: str, fresh_postgres: str, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        connection.execute(TABLES)
        connection.execute(VIEW.format(kind, "dated_lines"))
        connection.execute(VIEW.format("", "other_lines"))
    check_views(fresh_postgres, tmp_path)


@pytest.mark.slow
def test_mysql(mysql: str, tmp_path: Path) -> None:
    import pymysql

    socket = mysql.split("unix_socket=")[1]
    connection = pymysql.connect(unix_socket=socket, user="root", autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS with_views")
        cursor.execute("CREATE DATABASE with_views")
        cursor.execute("USE with_views")
        for statement in (TABLES + VIEWS).split(";"):
            if statement.strip():
                cursor.execute(statement)
    connection.close()
    check_views(mysql.replace("/mysql?", "/with_views?"), tmp_path)


def test_schemas_have_views_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA a; CREATE SCHEMA b; CREATE TABLE a.t (id INTEGER);")
        connection.execute("INSERT INTO a.t VALUES (1), (2); CREATE VIEW b.v AS SELECT * FROM a.t;")
    result, tables = imported(f"duckdb:///{path}", tmp_path / "ds", schema=["a", "b"], view=["b.v"])
    assert set(tables) == {"a.t", "b.v"}
    assert "view" not in said(result, "note").replace("a view of the source", "")


def test_sources_without_views(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", t="id,n\n1,2\n2,3\n")
    assert "view" not in said(import_database(address, tmp_path / "ds"), "note")
    imported(address, tmp_path / "all", view=["*"])
    with pytest.raises(RelFrogError, match="has no views"):
        plan_import(address, view=["v"])


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    address = in_sqlite(tmp_path)
    code, out, _ = inside(capfd, "import", address, str(tmp_path / "ds"), "--views", "all")
    assert code == 0
    assert "dated_lines" in out
    assert "not imported" not in out
    code, out, err = inside(capfd, "import", address, "--dry-run")
    assert code == 0
    assert "views of the source are not imported" in err


def test_label_sql_sees_a_view_like_a_table(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "s.db",
        TABLES.split("INSERT")[0],
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) "
        "INSERT INTO customers SELECT i * 10, 'c' || i FROM n;"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) "
        "INSERT INTO orders SELECT i, (i * i % 9 + 1) * 10, date('2020-01-01', i || ' days') FROM n;"
        "INSERT INTO order_lines SELECT id, id % 7 FROM orders;",
        VIEWS,
    )
    import_database(address, tmp_path / "ds", view=["dated_lines"], val="2020-10-01", test="2021-01-01")  # fmt: skip
    sql = """
    SELECT t.timestamp, c.id, coalesce(sum(l.amount), 0) AS spent FROM timestamps t
    CROSS JOIN customers c LEFT JOIN dated_lines l ON l.customer_id = c.id
        AND l.ordered_at > t.timestamp AND l.ordered_at <= t.timestamp + INTERVAL '{timedelta}'
    WHERE c.id <> 20 GROUP BY ALL
    """
    add_task(tmp_path / "ds", "spent", sql, type="regression", entity="customers", horizon="30 days")  # fmt: skip
    frame = load_task(open_dataset(tmp_path / "ds"), "spent").get_table("val").df
    assert len(frame) == 8
