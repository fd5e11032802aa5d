"""One database through every source gives one dataset; and sources are only ever read."""

from __future__ import annotations

from pathlib import Path

import duckdb
import psycopg
import pyarrow.parquet as pq
import pytest
import relbench
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from helpers import assert_same_dataset, examples, sqlite
from relfrog import import_database
from relfrog.errors import SourceError
from relfrog.importing import plan_import
from relfrog.io.secrets import hide_password, scrub, secrets_in
from relfrog.io.sources import open_source
from relfrog.testing import FakeDatabase, random_database


@pytest.fixture
def fake() -> FakeDatabase:
    return random_database(7, size=60)


@pytest.fixture
def reference(fake: FakeDatabase, tmp_path: Path) -> Path:
    """The dataset that SQLite gives, and the mapping for sources that know no keys."""
    address = fake.to_sqlite(tmp_path / "reference.db")
    mapping = plan_import(address).mapping.to_yaml()
    (tmp_path / "mapping.yaml").write_text(mapping, encoding="utf-8")
    import_database(address, tmp_path / "reference")
    return tmp_path / "reference"


def test_postgresql_gives_the_same(
    fake: FakeDatabase, reference: Path, fresh_postgres: str, tmp_path: Path
) -> None:
    with psycopg.connect(fresh_postgres) as connection:
        fake.to_postgresql(connection)
    import_database(fresh_postgres, tmp_path / "out")
    assert_same_dataset(reference, tmp_path / "out")


@pytest.mark.slow
def test_mysql_gives_the_same(
    fake: FakeDatabase, reference: Path, mysql: str, tmp_path: Path
) -> None:
    import pymysql

    socket = mysql.partition("unix_socket=")[2]
    with pymysql.connect(unix_socket=socket, user="root", charset="utf8mb4") as connection:
        connection.cursor().execute("CREATE OR REPLACE DATABASE shop CHARACTER SET utf8mb4")
        connection.select_db("shop")
        fake.to_mysql(connection)
    import_database(mysql.replace("/mysql?", "/shop?"), tmp_path / "out")
    assert_same_dataset(reference, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["duckdb", "csv", "parquet"])
def test_sources_without_foreign_keys_give_the_same(
    kind: str, fake: FakeDatabase, reference: Path, tmp_path: Path
) -> None:
    address = getattr(fake, f"to_{kind}")(tmp_path / f"source.{kind}")
    import_database(address, tmp_path / "out", mapping=tmp_path / "mapping.yaml")
    assert_same_dataset(reference, tmp_path / "out")


@pytest.mark.slow
@examples(12, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), size=st.integers(4, 40))
def test_any_database_keeps_its_rows_and_its_joins(
    seed: int, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    fake = random_database(seed, size)
    result = import_database(fake.to_sqlite(folder / "any.db"), folder / "out")
    db = relbench.load_dataset(folder / "out").get_db(upto_test_timestamp=False)
    mapped = {t.source: t for t in result.tables}
    keys = {
        t.source: pq.read_table(folder / "out" / "keys" / f"{t.name}.parquet").to_pylist()
        for t in result.tables
        if t.key
    }
    for name, table in fake.tables.items():
        written = mapped[name]
        frame = db.table_dict[written.name].df
        assert len(frame) == len(table.rows)
        if written.time_col is not None:
            assert frame[written.time_col].is_monotonic_increasing
        if table.primary_key:
            wanted = sorted(
                str([str(v) for v in row]) for row in zip(*map(table.values, table.primary_key))
            )
            got = sorted(str([str(v) for v in row.values()]) for row in keys[name])
            assert got == wanted
        # Every child still names the parent it named: a join by row numbers is the join by values.
        for columns, parent, parent_columns in table.foreign_keys:
            column = next(
                c
                for c, (sources, role) in written.sources.items()
                if role == "fkey" and sources == columns and written.fkeys[c] == mapped[parent].name
            )
            known = {str([str(row[c]) for c in parent_columns]) for row in keys[parent]}
            wanted = sorted(
                key
                for row in zip(*map(table.values, columns))
                if None not in row
                for key in [str([str(v) for v in row])]
                if key in known
            )
            got = sorted(
                str([str(keys[parent][int(i)][c]) for c in parent_columns])
                for i in frame[column].dropna()
            )
            assert got == wanted


def test_sqlite_is_opened_read_only(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sqlite(path, "CREATE TABLE t (a INTEGER)")
    before = path.read_bytes()
    with open_source(f"sqlite:///{path}") as source, pytest.raises(Exception, match="readonly"):
        source._connection.exec_driver_sql("INSERT INTO t VALUES (1)")  # type: ignore[attr-defined]
    assert path.read_bytes() == before


def test_duckdb_is_opened_read_only(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (a INTEGER)")
    with open_source(str(path)) as source, pytest.raises(duckdb.Error, match="read-only"):
        source._connection.execute("INSERT INTO t VALUES (1)")  # type: ignore[attr-defined]


def test_postgresql_refuses_to_write(fresh_postgres: str) -> None:
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a INTEGER)")
    with open_source(fresh_postgres) as source, pytest.raises(Exception, match="read-only"):
        source._connection.exec_driver_sql("INSERT INTO t VALUES (1)")  # type: ignore[attr-defined]


def test_mysql_refuses_to_write(mysql: str) -> None:
    import pymysql

    socket = mysql.partition("unix_socket=")[2]
    with pymysql.connect(unix_socket=socket, user="root") as connection:
        connection.cursor().execute("CREATE OR REPLACE DATABASE shut")
        connection.cursor().execute("CREATE TABLE shut.t (a INTEGER)")
    address = mysql.replace("/mysql?", "/shut?")
    with open_source(address) as source, pytest.raises(Exception, match="READ ONLY"):
        source._connection.exec_driver_sql("INSERT INTO t VALUES (1)")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name", ['"; DROP TABLE x; --', "a b", "naïve", "表", "💥", "select", "100%", "it's"]
)
def test_names_are_quoted_by_the_library(name: str, fresh_postgres: str, tmp_path: Path) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    ddl = [
        "CREATE TABLE x (id INTEGER PRIMARY KEY, v TEXT)",
        f"CREATE TABLE {quoted} (id INTEGER PRIMARY KEY, {quoted} INTEGER REFERENCES x (id), n REAL)",
        "INSERT INTO x VALUES (1, 'a'), (2, 'b')",
        f"INSERT INTO {quoted} VALUES (1, 2, 0.5), (2, 1, 0.25)",
    ]
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        for statement in ddl:
            connection.cursor().execute(statement)  # type: ignore[arg-type]
    sqlite(tmp_path / "n.db", *ddl)
    for number, address in enumerate([fresh_postgres, f"sqlite:///{tmp_path / 'n.db'}"]):
        result = import_database(address, tmp_path / f"out{number}")
        table = next(t for t in result.tables if t.source == name)
        assert table.rows == 2
        assert table.fkeys == {name: "x"}
        db = relbench.load_dataset(tmp_path / f"out{number}").get_db()
        assert db.table_dict[table.name].df[name].tolist() == [1, 0]
    with psycopg.connect(fresh_postgres) as connection:
        row = connection.execute("SELECT count(*) FROM x").fetchone()
        assert row is not None
        assert row[0] == 2


def test_parts_of_a_partitioned_table_are_not_counted_twice(
    fresh_postgres: str, tmp_path: Path
) -> None:
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE m (id BIGINT, at TIMESTAMP, v TEXT) PARTITION BY RANGE (at)"
        )
        connection.execute(
            "CREATE TABLE m_2020 PARTITION OF m FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')"
        )
        connection.execute("INSERT INTO m VALUES (1, '2020-03-01', 'a'), (2, '2020-02-01', 'b')")
    result = import_database(fresh_postgres, tmp_path / "out")
    assert [(t.name, t.rows) for t in result.tables] == [("m", 2)]


def test_schemas_and_views_are_read_when_named(fresh_postgres: str, tmp_path: Path) -> None:
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS sales CASCADE")
        connection.execute("CREATE SCHEMA sales")
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, n TEXT)")
        connection.execute(
            "CREATE TABLE sales.orders (id INTEGER PRIMARY KEY, "
            "person INTEGER REFERENCES public.people (id))"
        )
        connection.execute("CREATE VIEW young AS SELECT * FROM people")
        connection.execute("CREATE MATERIALIZED VIEW kept AS SELECT * FROM people")
        connection.execute("INSERT INTO people VALUES (1, 'a'), (2, 'b')")
        connection.execute("INSERT INTO sales.orders VALUES (1, 2), (2, 2)")
    both = import_database(fresh_postgres, tmp_path / "both", schema=["public", "sales"])
    assert [t.name for t in both.tables] == ["public.people", "sales.orders"]
    assert both.tables[1].fkeys == {"person": "public.people"}
    one = import_database(fresh_postgres, tmp_path / "one", schema=["sales"])
    assert one.tables[0].fkeys == {}
    assert any("not imported" in n.text for n in one.notices)
    view = import_database(fresh_postgres, tmp_path / "view", tables=["young", "kept"])
    assert sorted(t.name for t in view.tables) == ["kept", "young"]
    with pytest.raises(SourceError, match="no table in schema nowhere"):
        import_database(fresh_postgres, tmp_path / "none", schema=["nowhere"])


def test_other_schemas_are_read_where_the_default_one_is_empty(
    fresh_postgres: str, tmp_path: Path
) -> None:
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        for name in ("sales", "stock"):
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
            connection.execute(f"CREATE SCHEMA {name}")
        connection.execute("CREATE TABLE stock.things (id INTEGER PRIMARY KEY)")
        connection.execute(
            "CREATE TABLE sales.orders (id INTEGER PRIMARY KEY, "
            "thing INTEGER REFERENCES stock.things (id))"
        )
        found = import_database(fresh_postgres, tmp_path / "both")
        assert [t.name for t in found.tables] == ["sales.orders", "stock.things"]
        assert found.tables[0].fkeys == {"thing": "stock.things"}
        connection.execute("DROP SCHEMA sales CASCADE")
        alone = import_database(fresh_postgres, tmp_path / "one")
        assert [t.name for t in alone.tables] == ["things"]
        connection.execute("DROP SCHEMA stock CASCADE")
        with pytest.raises(SourceError, match="no tables that this user may see"):
            import_database(fresh_postgres, tmp_path / "none")


def test_other_schemas_of_duckdb(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute("CREATE SCHEMA s; CREATE TABLE s.t (id INTEGER PRIMARY KEY)")
        connection.execute("CREATE SCHEMA r; CREATE TABLE r.t (id INTEGER PRIMARY KEY)")
    found = import_database(f"duckdb:///{tmp_path / 'a.duckdb'}", tmp_path / "out")
    assert [t.name for t in found.tables] == ["r.t", "s.t"]


def test_declared_keys_of_duckdb(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute("CREATE TABLE p (a INTEGER, b INTEGER, PRIMARY KEY (a, b))")
        connection.execute(
            "CREATE TABLE c (n INTEGER PRIMARY KEY, x INTEGER, y INTEGER, "
            "FOREIGN KEY (x, y) REFERENCES p (a, b))"
        )
        connection.execute("INSERT INTO p VALUES (1, 2), (2, 1)")
        connection.execute("INSERT INTO c VALUES (5, 2, 1), (6, 1, 2)")
    result = import_database(f"duckdb:///{tmp_path / 'a.duckdb'}", tmp_path / "out")
    child = result.tables[0]
    assert child.fkeys == {"p_id": "p"}
    db = relbench.load_dataset(tmp_path / "out").get_db()
    assert db.table_dict["c"].df["p_id"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nothing/here", "neither a database nor a folder"),
        ("oracle://u@h/d", "neither a database nor a folder"),
        ("sqlite:///missing.db", "no SQLite file"),
        ("duckdb:///missing.duckdb", "no DuckDB file"),
        ("postgresql://u@127.0.0.1:1/d", "cannot be opened"),
        ("mysql://u@127.0.0.1:1/d", "cannot be opened"),
        ("mysql://u@127.0.0.1:1", "has no database name"),
    ],
)
def test_wrong_addresses_say_what_to_do(address: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=words):
        import_database(address, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://user@srv:CANARYpw@127.0.0.1:1/db",
        "PostgreSQL://me:CANARYpw@127.0.0.1:1/db",
        "postgresql://u:p@CANARYpart@127.0.0.1:1/db",
        "mysql://u:my@CANARY1:CANARY2/x@127.0.0.1/d",
        "postgresql:/u:CANARYpw@h/db",
        "postgresql//u:CANARYpw@h/db",
        "host=x user=u password=CANARYpw dbname=d",
        "mysql://u@127.0.0.1:1/d?password=CANARYpw&x=1",
    ],
)
def test_no_form_of_address_shows_its_password(address: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        import_database(address, tmp_path / "out")
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("password", ["canary", "p@ss:w/rd%?", "ünï"])
def test_passwords_never_show(password: str) -> None:
    from urllib.parse import quote

    for written in {password, quote(password, safe="")}:
        address = f"postgresql://me:{written}@host/db?sslpassword={quote(written)}"
        shown = hide_password(address)
        assert password not in shown
        assert written not in shown
        assert shown.startswith("postgresql://me:***@host/db")
        said = scrub(f"failed with {password} or {written}", secrets_in(address))
        assert password not in said


@pytest.mark.parametrize(
    "address",
    ["mysql://root@localhost/h?unix_socket=/tmp/s.sock", "sqlite:///a:b@c.db", "postgresql:///db"],
)
def test_an_address_without_a_password_is_shown_as_it_is(address: str) -> None:
    if not address.startswith("sqlite"):
        assert hide_password(address) == address


def test_the_canary_password_stays_out_of_everything(
    fresh_postgres: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    canary = "c4n4ry-p4ss"
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    address = fresh_postgres.replace("postgres:@", f"postgres:{canary}@")
    assert canary in address
    import_database(address, tmp_path / "out")
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            assert canary.encode() not in path.read_bytes(), path
    wrong = f"postgresql://me:{canary}@127.0.0.1:1/db"
    with pytest.raises(SourceError) as caught:
        import_database(wrong, tmp_path / "none")
    assert canary not in str(caught.value)
    out, err = capfd.readouterr()
    assert canary not in out + err


@pytest.mark.slow
def test_the_order_of_many_rows_is_kept(tmp_path: Path) -> None:
    # More than one row group, so that parallel scans would show.
    rows = 400_000
    lines = "".join(f"{i * 7919 % 1000},{i}\n" for i in range(rows))
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "t.csv").write_text("k,n\n" + lines)
    for number in range(3):
        import_database(str(tmp_path / "csv"), tmp_path / f"out{number}")
        table = pq.read_table(tmp_path / f"out{number}" / "db" / "t.parquet")
        assert table.column("n").to_pylist() == list(range(rows))
