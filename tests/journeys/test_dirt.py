"""Each kind of dirt, and what the user sees of it."""

from __future__ import annotations

import math
from pathlib import Path

import duckdb
import pandas as pd
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers import csv_folder, imported, said, sqlite
from relfrog import import_database
from relfrog.datasets import source_keys
from relfrog.datasets.checks import check
from relfrog.errors import DatasetError, SchemaError, SourceError
from relfrog.importing import plan_import


def test_dangling_keys_become_null_and_are_shown(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE p (id INTEGER PRIMARY KEY, n TEXT);"
        "CREATE TABLE c (id INTEGER PRIMARY KEY, p INTEGER REFERENCES p (id));"
        "INSERT INTO p VALUES (1, 'a'), (2, 'b');"
        "INSERT INTO c VALUES (1, 2), (2, 9), (3, 9), (4, NULL), (5, 8);",
    )
    result, tables = imported(address, tmp_path / "out")
    assert tables["c"]["p"].tolist() == [1, pd.NA, pd.NA, pd.NA, pd.NA]
    assert said(result, "changed", "c.p") == (
        "3 of 4 values have no match in p.id and become NULL, such as 9, 8"
    )


def test_duplicate_primary_keys_are_an_error_unless_told_otherwise(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", t="id,v\n1,a\n2,b\n2,c\n2,d\n3,e\n")
    with pytest.raises(
        SchemaError, match=r"t\.id: 2 duplicate keys, such as 2 \(3 times\)"
    ) as info:
        import_database(address, tmp_path / "out", pk=["t.id"])
    assert "--on-duplicate first" in str(info.value)
    assert not (tmp_path / "out").exists()
    result, tables = imported(address, tmp_path / "out", pk=["t.id"], on_duplicate="first")
    assert tables["t"]["v"].tolist() == ["a", "b", "e"]
    assert "2 rows" in said(result, "left out", "t.id")


def test_rows_without_a_key_are_kept(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE t (k TEXT PRIMARY KEY, v INTEGER); "
        "INSERT INTO t VALUES ('a', 1), (NULL, 2), (NULL, 3), ('b', 4);",
    )
    result, tables = imported(address, tmp_path / "out")
    assert sorted(tables["t"]["v"]) == [1, 2, 3, 4]
    assert "2 rows have no key" in said(result, "changed", "t.k")


def test_source_keys_come_back(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE t (k TEXT, n INTEGER, at TIMESTAMP, PRIMARY KEY (k, n));"
        "INSERT INTO t VALUES ('b', 7, '2020-01-02'), ('a', 9, '2020-01-03'), ('c', 1, '2020-01-01');",
    )
    _, tables = imported(address, tmp_path / "out")
    keys = source_keys(tmp_path / "out", "t")
    assert keys is not None
    assert keys.to_dict("list") == {"k": ["c", "b", "a"], "n": [1, 7, 9]}
    assert tables["t"]["t_id"].tolist() == [0, 1, 2]
    assert source_keys(tmp_path / "out", "nothing") is None


def test_a_text_key_stays_as_a_column_and_a_uuid_does_not(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE a (faa TEXT PRIMARY KEY, n INTEGER);"
        "INSERT INTO a VALUES ('JFK', 1), ('EWR', 2);"
        "CREATE TABLE u (uid TEXT PRIMARY KEY, n INTEGER); INSERT INTO u VALUES "
        "('123e4567-e89b-12d3-a456-426614174000', 1), ('123e4567-e89b-12d3-a456-426614174001', 2);",
    )
    _, tables = imported(address, tmp_path / "out")
    assert tables["a"]["faa_key"].tolist() == ["EWR", "JFK"]
    assert list(tables["u"]) == ["uid", "n"]


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("2020-01-01T10:00:00Z", ""),
        ("2020-01-01 12:00:00+02:00", ""),
        ("1577872800", "epoch s"),
        ("1577872800000", "epoch ms"),
        ("1577872800000000", "epoch us"),
    ],
)
def test_times_in_many_forms_become_utc(written: str, kind: str, tmp_path: Path) -> None:
    rows = "\n".join(f"{i},{written}" for i in range(3))
    address = csv_folder(tmp_path / "csv", t=f"id,created_at\n{rows}\n4,\n")
    result, tables = imported(address, tmp_path / "out", time=["t.created_at"])
    assert set(tables["t"]["created_at"]) == {pd.Timestamp("2020-01-01 10:00:00")}
    assert str(result.mapping.tables["t"].columns["created_at"]) == f"time {kind}".strip()
    assert "no before and after" in result.mapping.split_reason


@pytest.mark.parametrize(
    ("one", "two", "form"),
    [
        ("12/31/2010 8:26", "1/2/2010 10:00", "%m/%d/%Y %H:%M"),
        ("31.12.2010", "02.01.2010", "%d.%m.%Y"),
        ("20101231", "20100102", "%Y%m%d"),
    ],
)
def test_other_formats_are_recognised_when_they_are_unambiguous(
    one: str, two: str, form: str, tmp_path: Path
) -> None:
    address = csv_folder(tmp_path / "csv", t=f"id,invoice_date\n1,{one}\n2,{two}\n")
    result, tables = imported(address, tmp_path / "out")
    assert [str(d.date()) for d in tables["t"]["invoice_date"]] == ["2010-01-02", "2010-12-31"]
    assert str(result.mapping.tables["t"].columns["invoice_date"]) == f"time {form}"


def test_an_ambiguous_format_stays_text_until_the_user_says(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", t="id,day\n1,01/02/2010\n2,03/04/2010\n")
    result, tables = imported(address, tmp_path / "out")
    assert tables["t"]["day"].tolist() == ["01/02/2010", "03/04/2010"]
    assert "%m/%d/%Y or %d/%m/%Y" in said(result, "note", "t.day")
    mapping = (tmp_path / "out" / "mapping.yaml").read_text(encoding="utf-8")
    start = mapping.index("day:")
    end = mapping.index("}", start) + 1
    (tmp_path / "m.yaml").write_text(mapping[:start] + "day: time %d/%m/%Y" + mapping[end:])
    _, tables = imported(address, tmp_path / "again", mapping=tmp_path / "m.yaml")
    assert str(tables["t"]["day"].iloc[0].date()) == "2010-02-01"


def test_rows_without_a_time_are_visible_from_the_beginning(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, created_at TIMESTAMP);"
        "INSERT INTO t VALUES (1, '2020-05-01'), (2, NULL), (3, '2020-04-01'), (4, '2020-06-01');",
    )
    result, tables = imported(address, tmp_path / "out")
    assert source_keys(tmp_path / "out", "t")["id"].tolist() == [2, 3, 1, 4]  # type: ignore[index]
    assert tables["t"]["created_at"].iloc[0] == pd.Timestamp("2020-04-01")
    assert "1 of 4 rows have no time" in said(result, "leak", "t.created_at")


def test_a_table_without_time_that_names_a_timed_one_is_dated_by_it(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE o (id INTEGER PRIMARY KEY, created_at TIMESTAMP);"
        "CREATE TABLE l (o INTEGER REFERENCES o (id), v REAL);"
        "INSERT INTO o VALUES (1, '2020-05-01'), (2, '2020-06-01'); INSERT INTO l VALUES (1, .5);",
    )
    result, tables = imported(address, tmp_path / "out")
    assert not said(result, "leak")
    assert tables["l"]["known_from"].tolist() == [pd.Timestamp("2020-05-01")]


def test_types_of_postgresql(fresh_postgres: str, tmp_path: Path) -> None:
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
        connection.execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, f DOUBLE PRECISION, d NUMERIC(10, 2), "
            "big NUMERIC(40, 0), free NUMERIC, ts TIMESTAMPTZ, day DATE, span INTERVAL, clock TIME, "
            "tags TEXT[], doc JSONB, raw BYTEA, ok BOOLEAN, feel mood, cash MONEY, net INET, "
            "box POINT)"
        )
        connection.execute(
            "INSERT INTO t VALUES "
            "(1, 'NaN', 1.50, 1e30, 2.5, '2020-01-01 12:00+02', 'infinity', '1 day 1 second', "
            "'01:00:01', '{a,\"b,c\",NULL}', '{\"a\": 1}', '\\x00', true, 'sad', 3.25, '10.0.0.1', "
            "'(1,2)'), (2, 'Infinity', -1, 1, 3, 'infinity', '2020-02-29', NULL, NULL, '{}', NULL, "
            "NULL, NULL, NULL, NULL, NULL, NULL), "
            "(3, 0.1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false, 'happy', "
            "NULL, '10.0.0.2', NULL)"
        )
    result, tables = imported(fresh_postgres, tmp_path / "out", time=["t.none"])
    t = tables["t"]
    assert [math.isnan(v) for v in t["f"]] == [True, True, False]
    assert t["d"].tolist()[:2] == [1.5, -1]
    assert t["big"].tolist()[:2] == ["1000000000000000000000000000000", "1"]
    assert t["free"].tolist()[:2] == [2.5, 3]
    assert t["ts"].iloc[0] == pd.Timestamp("2020-01-01 10:00")
    assert t["ts"].isna().tolist() == [False, True, True]
    assert t["day"].iloc[1] == pd.Timestamp("2020-02-29")
    assert t["span"].iloc[0] == 86401
    assert "clock" not in t or t["clock"].iloc[0] == 3601
    assert list(t["tags"].iloc[0]) == ["a", "b,c", None]
    assert t["doc"].iloc[0] == '{"a": 1}'
    assert t["ok"].tolist() == [True, None, False]
    assert t["feel"].tolist()[0] == "sad"
    assert t["net"].tolist()[0] == "10.0.0.1"
    assert "raw" not in t
    assert "box" not in t
    assert "BYTEA" in said(result, "left out", "t.raw")
    assert "2 NaN or infinite" in said(result, "changed", "t.f")
    assert "cannot be read as time" in said(result, "changed", "t.ts")


def test_types_of_duckdb(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE t (k INTEGER, h HUGEINT, u UBIGINT, d DECIMAL(30, 2), l INTEGER[], s STRUCT(a INT), "
            "m MAP(INT, INT), iv INTERVAL, tz TIMESTAMPTZ, ns TIMESTAMP_NS, c TIME, b BLOB, "
            "e ENUM('x', 'y'), g UUID)"
        )
        connection.execute(
            "INSERT INTO t SELECT 1, 2::HUGEINT ** 70, 18446744073709551615, 1.25, [1, 2], {'a': 1}, "
            "MAP {1: 2}, INTERVAL 1 HOUR, '2020-01-01 12:00:00+02', '2020-01-01 00:00:00.123456789', "
            "TIME '00:01:00', 'x'::BLOB, 'x', uuid()"
        )
        connection.execute("INSERT INTO t (k, h, u) VALUES (1, 1, 2)")
    _, tables = imported(f"duckdb:///{tmp_path / 'a.duckdb'}", tmp_path / "out", time=["t.none"])
    t = tables["t"]
    assert "1180591620717411303424" in t["h"].tolist()
    assert "18446744073709551615" in t["u"].tolist()
    row = t[t["d"].notna()].iloc[0]
    assert list(row["l"]) == ["1", "2"]
    assert row["iv"] == 3600
    assert row["c"] == 60
    assert row["tz"] == pd.Timestamp("2020-01-01 10:00")
    assert row["ns"] == pd.Timestamp("2020-01-01 00:00:00.123456")
    assert {"s", "m", "b"}.isdisjoint(t)


def test_types_of_mysql(mysql: str, tmp_path: Path) -> None:
    import pymysql

    socket = mysql.partition("unix_socket=")[2]
    with pymysql.connect(unix_socket=socket, user="root") as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE OR REPLACE DATABASE dirt CHARACTER SET utf8mb4")
        cursor.execute("SET sql_mode = '', time_zone = '+02:00'")
        cursor.execute(
            "CREATE TABLE dirt.t (id BIGINT UNSIGNED PRIMARY KEY, ok TINYINT(1), stars TINYINT(1), "
            "ts TIMESTAMP NULL, dt DATETIME, y YEAR, e ENUM('a', 'b'), s SET('x', 'y'), j JSON, "
            "bl BLOB, t TIME, bit1 BIT(1), de DECIMAL(10, 2))"
        )
        cursor.execute(
            "INSERT INTO dirt.t VALUES (18446744073709551615, 1, 5, '2020-01-01 12:00', "
            "'0000-00-00', 2020, 'a', 'x,y', '{\"a\": 1}', 'x', '10:00:01', 1, 1.25), "
            "(1, 0, 3, NULL, '2020-05-05', 2021, 'b', 'x', NULL, NULL, NULL, 0, NULL)"
        )
        connection.commit()
    address = mysql.replace("/mysql?", "/dirt?")
    _, tables = imported(address, tmp_path / "out", time=["t.none"])
    t = tables["t"].set_index("id_key" if "id_key" in tables["t"] else "e")
    row = t[t["de"].notna()].iloc[0]
    assert row["ok"]
    assert row["stars"] == 5
    assert row["ts"] == pd.Timestamp("2020-01-01 10:00")
    assert pd.isna(row["dt"])
    assert row["y"] == 2020
    assert row["s"] == "x,y"
    assert row["t"] == 36001
    assert row["bit1"]
    keys = source_keys(tmp_path / "out", "t")
    assert keys is not None
    assert "18446744073709551615" in keys["id"].astype(str).tolist()


def test_sqlite_lets_anything_stand_anywhere(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, r REAL, untyped, b BOOLEAN, at TIMESTAMP,"
        " raw TEXT);"
        "INSERT INTO t VALUES (1, 5, 1.5, 'x', 1, 1600000000, 'ok'), "
        "(2, 'abc', NULL, 3, 0, 1600000100, CAST(x'ff6f6b' AS TEXT)), (3, 2.5, 2, 4.5, NULL, 0, 'z');",
    )
    result, tables = imported(address, tmp_path / "out", time=["t.none"])
    t = tables["t"]
    assert t["n"].tolist() == ["5", "abc", "2.5"]
    assert t["untyped"].tolist() == ["x", "3", "4.5"]
    assert t["b"].tolist() == [True, False, None]
    assert t["raw"].iloc[1].endswith("ok")
    assert "1 of 3 values are not numbers, such as 'abc'" in said(result, "note", "t.n")
    assert "not UTF-8" in said(result, "note", "t")
    assert t["at"].iloc[0] == pd.Timestamp("2020-09-13 12:26:40")


def test_csv_types_are_found_by_looking(tmp_path: Path) -> None:
    address = csv_folder(
        tmp_path / "csv",
        t="id,int,gap,num,bool,zip,mixed,const,none,big\n"
        "1,1,1,1.5,true,01234,1,x,,123456789012345678901\n"
        "2,2,NA,2,false,12345,2,x,NULL,2\n"
        "3,-3,3,1e3,TRUE,00001,oops,x,,3\n",
    )
    result, tables = imported(address, tmp_path / "out")
    t = tables["t"]
    assert t["int"].tolist() == [1, 2, -3]
    assert t["gap"].tolist()[0] == 1
    assert math.isnan(t["gap"].tolist()[1])
    assert t["num"].tolist() == [1.5, 2, 1000]
    assert t["bool"].tolist() == [True, False, True]
    assert t["zip"].tolist() == ["01234", "12345", "00001"]
    assert t["mixed"].tolist() == ["1", "2", "oops"]
    assert t["big"].tolist()[0] == "123456789012345678901"
    assert {"const", "none"}.isdisjoint(t)
    assert "1 of 3 values are not numbers, such as 'oops'" in said(result, "note", "t.mixed")
    assert "the same value in every row ('x')" in said(result, "left out", "t.const")
    assert said(result, "left out", "t.none")


def test_csv_in_other_dialects(tmp_path: Path) -> None:
    folder = tmp_path / "csv"
    csv_folder(
        folder,
        semi="id;ort\n1;Köln\n2;Bonn\n".encode("latin-1"),
        bom="\ufeffid,v\n1,a\n2,b\n".encode(),
        quoted='id,v\n1,"line\nbreak, ""x"""\n2,""\n',
        header="id,v\n",
        nothing="",
    )
    (folder / "tab.tsv").write_text("id\tv\n1\ta\n2\tb\n")
    result, tables = imported(str(folder), tmp_path / "out")
    assert tables["semi"]["ort"].tolist() == ["Köln", "Bonn"]
    assert "cp1252" in said(result, "note", "semi")
    assert list(tables["bom"]) == ["id", "v"]
    assert tables["quoted"]["v"].tolist() == ['line\nbreak, "x"', ""]
    assert tables["tab"]["v"].tolist() == ["a", "b"]
    assert len(tables["header"]) == 0
    assert len(tables["nothing"]) == 0


def test_a_ragged_line_is_named(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", t="a,b\n1,2\n3,4,5\n")
    with pytest.raises(SourceError, match=r"t\.csv, line 3: .*'3,4,5'"):
        import_database(address, tmp_path / "out")


def test_a_hundred_thousand_categories(tmp_path: Path) -> None:
    rows = "".join(f"{i},category {i}\n" for i in range(100_000))
    _, tables = imported(csv_folder(tmp_path / "csv", t="id,c\n" + rows), tmp_path / "out")
    assert tables["t"]["c"].nunique() == 100_000


def test_tables_that_differ_in_case_alone(fresh_postgres: str, tmp_path: Path) -> None:
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        for name in ("Users", "users"):
            connection.execute(f'CREATE TABLE "{name}" (id INTEGER PRIMARY KEY, "A" TEXT, a TEXT)')
            connection.execute(f"INSERT INTO \"{name}\" VALUES (1, '{name}', 'x'), (2, 'y', 'z')")
    result, tables = imported(fresh_postgres, tmp_path / "out")
    assert sorted(tables) == ["Users", "users_2"]
    assert tables["Users"]["A"].iloc[0] == "Users"
    assert list(tables["users_2"]) == ["id", "A", "a_2"]
    assert "named users_2" in said(result, "changed", "users")
    assert check(tmp_path / "out").ok


def test_a_table_called_timestamps(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", timestamps="id,v\n1,2\n2,3\n")
    _, tables = imported(address, tmp_path / "out")
    assert list(tables) == ["timestamps_2"]


def test_a_database_without_any_time(tmp_path: Path) -> None:
    result, _ = imported(csv_folder(tmp_path / "csv", t="id,v\n1,2\n2,3\n"), tmp_path / "out")
    assert result.span is None
    assert "--time TABLE.COLUMN" in said(result, "note")
    assert check(tmp_path / "out").ok


def test_empty_tables_and_empty_folders(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE p (id INTEGER PRIMARY KEY, created_at TIMESTAMP, v REAL);"
        "CREATE TABLE c (p INTEGER REFERENCES p (id), at TIMESTAMP);",
    )
    _, tables = imported(address, tmp_path / "out")
    assert [len(t) for t in tables.values()] == [0, 0]
    assert list(tables["p"]) == ["id", "created_at", "v"]
    (tmp_path / "nothing").mkdir()
    with pytest.raises(SourceError, match="is empty"):
        import_database(str(tmp_path / "nothing"), tmp_path / "no")
    with pytest.raises(SourceError, match="there are no tables"):
        import_database(
            sqlite(tmp_path / "b.db", "CREATE TABLE t (a); DROP TABLE t;"), tmp_path / "no"
        )


def test_parquet_parts_and_floats_as_keys(tmp_path: Path) -> None:
    folder = tmp_path / "pq"
    (folder / "orders").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), folder / "people.parquet")
    for part, values in enumerate([[1.0, None], [2.0, 1.0]]):
        table = pa.table({"person_id": values, "v": [part, part]})
        pq.write_table(table, folder / "orders" / f"part-{part}.parquet")
    result, tables = imported(str(folder), tmp_path / "out")
    assert tables["orders"]["person_id"].tolist() == [0, pd.NA, 1, 0]
    key = result.mapping.tables["orders"].foreign_keys[0]
    assert key.origin == "proposed"


def test_two_kinds_of_files_in_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    csv_folder(folder, t="a\n1\n")
    pq.write_table(pa.table({"a": [1]}), folder / "u.parquet")
    with pytest.raises(SourceError, match="holds both"):
        import_database(str(folder), tmp_path / "out")


def test_the_destination_must_not_lie_in_the_source(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", t="a\n1\n")
    with pytest.raises(DatasetError, match="lies inside the source"):
        import_database(address, tmp_path / "csv" / "out")


def test_keys_match_as_the_database_matches_them(
    mysql: str, fresh_postgres: str, tmp_path: Path
) -> None:
    import pymysql

    socket = mysql.partition("unix_socket=")[2]
    with pymysql.connect(unix_socket=socket, user="root") as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE OR REPLACE DATABASE loose CHARACTER SET utf8mb4")
        cursor.execute("CREATE TABLE loose.p (code VARCHAR(9) PRIMARY KEY, n INTEGER)")
        cursor.execute(
            "CREATE TABLE loose.c (id INTEGER PRIMARY KEY, code VARCHAR(9), "
            "FOREIGN KEY (code) REFERENCES loose.p (code))"
        )
        cursor.execute("INSERT INTO loose.p VALUES ('AB1', 1), ('CD2', 2)")
        cursor.execute("INSERT INTO loose.c VALUES (1, 'ab1'), (2, 'cd2'), (3, 'CD2')")
        connection.commit()
    with psycopg.connect(fresh_postgres, autocommit=True) as padded:
        padded.execute("CREATE TABLE p (code CHAR(9) PRIMARY KEY, n INTEGER)")
        padded.execute(
            "CREATE TABLE c (id INTEGER PRIMARY KEY, code VARCHAR(9) REFERENCES p (code))"
        )
        padded.execute("INSERT INTO p VALUES ('AB1', 1), ('CD2', 2)")
        padded.execute("INSERT INTO c VALUES (1, 'AB1'), (2, 'CD2'), (3, 'CD2')")
    for number, address in enumerate([mysql.replace("/mysql?", "/loose?"), fresh_postgres]):
        result, tables = imported(address, tmp_path / str(number))
        assert tables["c"]["code"].tolist() == [0, 1, 1]
        assert "only if case, accents" in said(result, "changed", "c.code")


def test_binary_keys_are_read_as_digits(fresh_postgres: str, tmp_path: Path) -> None:
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE p (id BYTEA PRIMARY KEY, n INTEGER)")
        connection.execute("CREATE TABLE c (id INTEGER PRIMARY KEY, p BYTEA REFERENCES p (id))")
        connection.execute("INSERT INTO p VALUES ('\\x0102', 1), ('\\xff00', 2)")
        connection.execute("INSERT INTO c VALUES (1, '\\xff00'), (2, '\\x0102'), (3, NULL)")
    local = sqlite(
        tmp_path / "b.db",
        "CREATE TABLE p (id BLOB PRIMARY KEY, n INTEGER);"
        "CREATE TABLE c (id INTEGER PRIMARY KEY, p BLOB REFERENCES P (ID));"
        "INSERT INTO p VALUES (x'0102', 1), (x'ff00', 2);"
        "INSERT INTO c VALUES (1, x'ff00'), (2, x'0102'), (3, NULL);",
    )
    for number, address in enumerate([fresh_postgres, local]):
        _, tables = imported(address, tmp_path / str(number))
        assert tables["c"]["p"].tolist() == [1, 0, pd.NA]
        keys = source_keys(tmp_path / str(number), "p")
        assert keys is not None
        assert keys["id"].tolist() == ["0102", "ff00"]


def test_a_declared_key_that_cannot_hold_is_left_out(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE p (id INTEGER PRIMARY KEY, n INTEGER);"
        "CREATE TABLE c (id INTEGER PRIMARY KEY, x INTEGER REFERENCES p (nope), y INTEGER "
        "REFERENCES gone (id)); INSERT INTO p VALUES (1, 2), (2, 3); INSERT INTO c VALUES (1, 1, 1);",
    )
    result, _ = imported(address, tmp_path / "out")
    assert result.tables[0].fkeys == {}
    assert "nope" in said(result, "left out", "c.x")
    assert "gone is left out" in said(result, "left out", "c.y")


def test_keys_that_are_spelled_differently_are_the_same(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", p="id,v\n1,a\n1.0,b\n 2,c\n3,d\n")
    with pytest.raises(SchemaError, match="1 duplicate keys"):
        import_database(address, tmp_path / "out", pk=["p.id"])
    result, _ = imported(address, tmp_path / "out")
    assert result.mapping.tables["p"].primary_key == ()


def test_file_names_are_not_patterns(tmp_path: Path) -> None:
    folder = tmp_path / "csv"
    csv_folder(folder, **{"sales[1]": "id,v\n1,right\n2,x\n", "sales1": "id,v\n1,wrong\n2,y\n"})
    _, tables = imported(str(folder), tmp_path / "out")
    assert tables["sales[1]"]["v"].tolist() == ["right", "x"]


@pytest.mark.parametrize(
    ("values", "first", "proposed"),
    [
        (range(1950, 1960), "1950-12-31", "year"),
        (range(930101, 930111), "1993-01-01", None),
    ],
)
def test_years_and_short_dates_as_times(
    values: range, first: str, proposed: str | None, tmp_path: Path
) -> None:
    rows = "".join(f"{i},{v}\n" for i, v in enumerate(values))
    address = csv_folder(tmp_path / "csv", t="id,year\n" + rows)
    assert plan_import(address).mapping.tables["t"].time == proposed
    _, tables = imported(address, tmp_path / "out", time=["t.year"])
    assert str(tables["t"]["year"].iloc[0].date()) == first


def test_one_bad_date_is_said_and_can_be_overruled(tmp_path: Path) -> None:
    rows = "".join(f"{i},2020-01-{i:02d}\n" for i in range(1, 29))
    address = csv_folder(tmp_path / "csv", t=f"id,created\n{rows}40,not yet\n41,0000-00-00\n")
    result, _ = imported(address, tmp_path / "out")
    text = said(result, "note", "t.created")
    assert "1 of 29 values are not times, such as 'not yet'" in text
    result, tables = imported(address, tmp_path / "two", time=["t.created"])
    assert "2 of 30 rows have no time" in said(result, "leak", "t.created")
    assert len(tables["t"]) == 30


def test_csv_of_other_origins(tmp_path: Path) -> None:
    folder = tmp_path / "csv"
    csv_folder(
        folder,
        euro="id,v\n1,€ “x”\n2,y\n".encode("cp1252"),
        wide="id,v\n1,ä\n2,y\n".encode("utf-16"),
        mixed=b"id,v\r\n1,a\n2,b\r\n",
        slashes=b'id,v\n1,"say \\"hi\\", all"\n2,b\n',
        twice="a,a,a_2\n1,2,3\n4,5,6\n",
    )
    _, tables = imported(str(folder), tmp_path / "out")
    assert tables["euro"]["v"].tolist()[0] == "€ “x”"
    assert tables["wide"]["v"].tolist()[0] == "ä"
    assert tables["mixed"]["v"].tolist() == ["a", "b"]
    assert tables["slashes"]["v"].tolist()[0] == 'say "hi", all'
    assert list(tables["twice"]) == ["a", "a_2", "a_2_2"]


def test_a_blob_among_texts_is_named(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT);"
        "INSERT INTO t VALUES (1, 'a'), (2, x'00ff'), (3, 'b');",
    )
    result, _ = imported(address, tmp_path / "out")
    assert "TEXT with binary values" in said(result, "left out", "t.v")


def test_dates_before_the_year_1000_and_outliers(tmp_path: Path) -> None:
    rows = "".join(f"{i},0{700 + i}-01-01\n" for i in range(100))
    result, _ = imported(csv_folder(tmp_path / "old", t="id,created\n" + rows), tmp_path / "a")
    assert result.mapping.val.startswith("07")
    rows = "".join(f"{i},2020-01-{i % 28 + 1:02d}\n" for i in range(5000))
    result, _ = imported(
        csv_folder(tmp_path / "odd", t=f"id,created\n{rows}6000,0001-01-01\n"), tmp_path / "b"
    )
    assert "0001-01-01" in said(result, "note")
    assert result.mapping.val.startswith("2020")


def test_sqlite_numbers_that_change_late_are_not_cut(tmp_path: Path) -> None:
    # The Arrow driver fixes types by the first batch; these change after it.
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, price NUMERIC, n INTEGER, flag BOOLEAN, day TEXT);"
        "WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 80000) "
        "INSERT INTO t SELECT i, CASE WHEN i < 70000 THEN 10 ELSE 9.99 END, "
        "CASE WHEN i < 70000 THEN NULL ELSE i END, CASE WHEN i = 79999 THEN 2 ELSE i % 2 END, "
        "CASE WHEN i = 79998 THEN 'never' ELSE date('2020-01-01', (i % 900) || ' days') END FROM k;",
    )
    result, tables = imported(address, tmp_path / "out")
    t = tables["t"]
    assert t["price"].value_counts().to_dict() == {10.0: 69_999, 9.99: 10_001}
    assert t["n"].dropna().tolist() == list(range(70_000, 80_001))
    assert sorted(t["flag"].unique()) == [0, 1, 2]
    assert "1 of 80,000 values are not times, such as 'never'" in said(result, "note", "t.day")


def test_sqlite_numbers_beside_text_keep_their_digits(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v DECIMAL, w);"
        "INSERT INTO t VALUES (1, 0.1234567890123, 1.23456789012345), (2, 'n/a', 'abc'), "
        "(3, 1234567.891, 123456789.125);",
    )
    _, tables = imported(address, tmp_path / "out")
    assert tables["t"]["v"].tolist()[0] == 0.1234567890123
    assert tables["t"]["w"].tolist() == ["1.23456789012345", "abc", "123456789.125"]


def test_a_key_that_is_also_the_time_stays_both(tmp_path: Path) -> None:
    rows = ", ".join(f"('2020-01-{i:02d}', {i % 3})" for i in range(1, 29))
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE days (day TEXT PRIMARY KEY, holiday INTEGER);"
        f"INSERT INTO days VALUES {rows};"
        "CREATE TABLE log (id INTEGER PRIMARY KEY, day TEXT REFERENCES days (day));"
        "INSERT INTO log VALUES (1, '2020-01-05'), (2, '2020-01-03');",
    )
    result, tables = imported(address, tmp_path / "out")
    days = next(t for t in result.tables if t.name == "days")
    assert (days.pkey, days.time_col) == ("day", "day_time")
    assert tables["days"]["day_time"].iloc[0] == pd.Timestamp("2020-01-01")
    assert tables["log"]["day_days"].tolist() == [2, 4]
    assert check(tmp_path / "out").ok


def test_a_table_of_blobs_keeps_its_rows(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE t (b BLOB); INSERT INTO t VALUES (x'00'), (x'01'), (NULL);",
    )
    _, tables = imported(address, tmp_path / "out")
    assert tables["t"]["t_id"].tolist() == [0, 1, 2]


def test_data_of_one_moment_is_the_same_to_import_and_check(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", t="id,created\n1,2020-01-01\n2,2020-01-01\n")
    result, _ = imported(address, tmp_path / "out", time=["t.created"])
    assert "no before and after" in said(result, "note")
    report = check(tmp_path / "out")
    assert report.ok
    assert "no before and after" in report.findings[0].text
