"""Small random databases for tests, with every awkward shape that real ones have.

Composite, text, UUID and big-integer keys; tables without a key and without rows; several foreign
keys to one table, to itself, in a circle, and as the primary key; NULL and dangling keys; ties in
time and rows without one; constants, columns of NULLs; names with spaces, quotes, accents, Chinese,
and reserved words. Only shapes that every database can hold are in here: names with emoji or that
differ in case alone, and types of single databases, have tests of their own.
"""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import random
import sqlite3
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["FakeDatabase", "FakeTable", "random_database"]

#: Per kind the type in SQLite, PostgreSQL, DuckDB and MySQL.
_TYPES = {
    "integer": ("INTEGER", "INTEGER", "INTEGER", "INTEGER"),
    "bigint": ("BIGINT", "BIGINT", "BIGINT", "BIGINT"),
    "text": ("TEXT", "TEXT", "VARCHAR", "VARCHAR(200)"),
    "uuid": ("CHAR(36)", "UUID", "UUID", "CHAR(36)"),
    "number": ("REAL", "DOUBLE PRECISION", "DOUBLE", "DOUBLE"),
    "decimal": ("DECIMAL(12, 2)", "NUMERIC(12, 2)", "DECIMAL(12, 2)", "DECIMAL(12, 2)"),
    "boolean": ("BOOLEAN", "BOOLEAN", "BOOLEAN", "BOOLEAN"),
    "time": ("TIMESTAMP", "TIMESTAMP", "TIMESTAMP", "DATETIME(6)"),
    "date": ("DATE", "DATE", "DATE", "DATE"),
}
_DIALECTS = ("sqlite", "postgresql", "duckdb", "mysql")


@dataclass
class FakeTable:
    """A table with its rows.

    Attributes:
        name: Its name.
        columns: Per column its kind: integer, bigint, text, uuid, number, decimal, boolean, time
            or date.
        rows: One list of values per row.
        primary_key: Its columns.
        foreign_keys: (columns, parent, parent's columns) each.
    """

    name: str
    columns: dict[str, str]
    rows: list[list[Any]]
    primary_key: tuple[str, ...] = ()
    foreign_keys: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = field(default_factory=list)

    def values(self, column: str) -> list[Any]:
        """The values of a column, row by row."""
        index = list(self.columns).index(column)
        return [row[index] for row in self.rows]


@dataclass
class FakeDatabase:
    """Tables, and ways to write them where databases are found."""

    tables: dict[str, FakeTable]

    def to_sqlite(self, path: Path) -> str:
        """Write a SQLite file with declared keys; returns its address."""
        connection = sqlite3.connect(path)
        try:
            for table in self.tables.values():
                connection.execute(self._create(table, "sqlite"))
                marks = ", ".join("?" * len(table.columns))
                insert = f"INSERT INTO {_quoted(table.name)} VALUES ({marks})"
                connection.executemany(insert, [list(map(_as_text, row)) for row in table.rows])
            connection.commit()
        finally:
            connection.close()
        return f"sqlite:///{path}"

    def to_postgresql(self, connection: Any) -> None:
        """Write into a PostgreSQL database through a psycopg connection, with declared keys.

        Foreign keys are declared NOT VALID, so that rows may dangle.
        """
        cursor = connection.cursor()
        for table in self.tables.values():
            cursor.execute(self._create(table, "postgresql"))
            marks = ", ".join(["%s"] * len(table.columns))
            cursor.executemany(f"INSERT INTO {_quoted(table.name)} VALUES ({marks})", table.rows)
        for table in self.tables.values():
            for clause in self._foreign_keys(table, "postgresql"):
                cursor.execute(f"ALTER TABLE {_quoted(table.name)} ADD {clause} NOT VALID")
        connection.commit()

    def to_mysql(self, connection: Any) -> None:
        """Write into a MySQL or MariaDB database through a PyMySQL connection."""
        with connection.cursor() as cursor:
            cursor.execute("SET FOREIGN_KEY_CHECKS = 0")
            for table in self.tables.values():
                cursor.execute(self._create(table, "mysql"))
                marks = ", ".join(["%s"] * len(table.columns))
                insert = f"INSERT INTO {_quoted(table.name, '`')} VALUES ({marks})"
                cursor.executemany(insert, [list(map(_as_text, row)) for row in table.rows])
        connection.commit()

    def to_duckdb(self, path: Path) -> str:
        """Write a DuckDB file without foreign keys, which it would enforce."""
        import duckdb

        connection = duckdb.connect(str(path))
        try:
            for table in self.tables.values():
                connection.execute(self._create(table, "duckdb"))
                if table.rows:
                    marks = ", ".join("?" * len(table.columns))
                    insert = f"INSERT INTO {_quoted(table.name)} VALUES ({marks})"
                    connection.executemany(insert, table.rows)
        finally:
            connection.close()
        return f"duckdb:///{path}"

    def to_csv(self, folder: Path) -> str:
        """Write a folder of CSV files; it knows neither keys nor types."""
        folder.mkdir(parents=True, exist_ok=True)
        for table in self.tables.values():
            path = folder / f"{table.name}.csv"
            with open(path, "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(table.columns)
                writer.writerows([_as_text(v) for v in row] for row in table.rows)
        return str(folder)

    def to_parquet(self, folder: Path) -> str:
        """Write a folder of Parquet files; it knows no keys."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {
            "integer": pa.int32(),
            "bigint": pa.int64(),
            "number": pa.float64(),
            "decimal": pa.decimal128(12, 2),
            "boolean": pa.bool_(),
            "time": pa.timestamp("ns"),
            "date": pa.date32(),
        }
        folder.mkdir(parents=True, exist_ok=True)
        for table in self.tables.values():
            columns = {}
            for name, kind in table.columns.items():
                values = table.values(name)
                if kind == "uuid":
                    values = [None if v is None else str(v) for v in values]
                elif kind == "decimal":
                    values = [None if v is None else decimal.Decimal(str(v)) for v in values]
                columns[name] = pa.array(values, types.get(kind, pa.string()))
            pq.write_table(pa.table(columns), folder / f"{table.name}.parquet")
        return str(folder)

    def _create(self, table: FakeTable, dialect: str) -> str:
        mark = "`" if dialect == "mysql" else '"'
        index = _DIALECTS.index(dialect)
        parts = [f"{_quoted(n, mark)} {_TYPES[kind][index]}" for n, kind in table.columns.items()]
        if table.primary_key:
            parts.append(f"PRIMARY KEY ({_listed(table.primary_key, mark)})")
        if dialect in ("sqlite", "mysql"):
            parts += self._foreign_keys(table, dialect)
        return f"CREATE TABLE {_quoted(table.name, mark)} ({', '.join(parts)})"

    def _foreign_keys(self, table: FakeTable, dialect: str) -> list[str]:
        mark = "`" if dialect == "mysql" else '"'
        return [
            f"FOREIGN KEY ({_listed(columns, mark)}) REFERENCES {_quoted(parent, mark)} "
            f"({_listed(parent_columns, mark)})"
            for columns, parent, parent_columns in table.foreign_keys
        ]


def _quoted(name: str, mark: str = '"') -> str:
    return mark + name.replace(mark, mark * 2) + mark


def _listed(names: Iterable[str], mark: str) -> str:
    return ", ".join(_quoted(name, mark) for name in names)


def _as_text(value: Any) -> Any:
    """Values that SQLite and CSV have no type for."""
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    if isinstance(value, dt.date | uuid.UUID):
        return str(value)
    return value


def random_database(seed: int, size: int = 30) -> FakeDatabase:
    """A database with every awkward shape, and random rows.

    Args:
        seed: The same seed gives the same database.
        size: About how many rows the larger tables have.
    """
    rng = random.Random(seed)
    start = dt.datetime(2020, 1, 1)

    def some(low: int = 0) -> int:
        return rng.randint(low, max(low, size))

    def moment() -> dt.datetime:
        # Few different times, so that there are ties.
        return start + dt.timedelta(hours=6 * rng.randint(0, 4 * size))

    def maybe(value: Any, share: float = 0.2) -> Any:
        return None if rng.random() < share else value

    def one_of(values: list[Any]) -> Any:
        return rng.choice(values) if values else None

    tables: dict[str, FakeTable] = {}

    def add(
        name: str,
        columns: dict[str, str],
        rows: list[list[Any]],
        key: tuple[str, ...] = (),
        foreign: Iterable[tuple[tuple[str, ...], str, tuple[str, ...]]] = (),
    ) -> list[list[Any]]:
        tables[name] = FakeTable(name, columns, rows, key, list(foreign))
        return rows

    countries = add(
        "countries",
        {"code": "text", "naïve café": "text"},
        [[f"{a}{b}", maybe(f'Land, "{a}" 国 {b}')] for a in "ABCD" for b in "XYZ"][: some(2)],
        ("code",),
    )
    codes = [row[0] for row in countries]
    customers = add(
        "customers",
        {
            "id": "integer",
            "created_at": "time",
            "country": "text",
            "score": "number",
            "vip": "boolean",
            "名字": "text",
        },
        [
            [
                i * 3 + 7,
                moment(),
                maybe(rng.choice([*codes, "??"])),
                maybe(rng.gauss(0, 10)),
                maybe(rng.random() < 0.5),
                maybe(rng.choice(["张伟", "O'Neil", "zoë", "x" * 40])),
            ]
            for i in range(some(3))
        ],
        ("id",),
        [(("country",), "countries", ("code",))],
    )
    ids = [row[0] for row in customers]
    rng.shuffle(customers)
    add(
        "profiles",  # one row per customer: its key is a foreign key
        {"customer_id": "integer", "birth_date": "date", "height": "decimal"},
        [
            [
                i,
                maybe(dt.date(1980, 1, 1) + dt.timedelta(days=some())),
                maybe(rng.randint(0, 999) / 4),
            ]
            for i in ids
            if rng.random() < 0.7
        ],
        ("customer_id",),
        [(("customer_id",), "customers", ("id",))],
    )
    # "order" is a reserved word; its key has two columns; it names countries twice.
    orders = add(
        "order",
        {
            "customer_id": "integer",
            "number": "integer",
            "placed at": "time",
            "ship_to": "text",
            "bill_to": "text",
            "group": "text",
        },
        [
            [i, n, moment(), maybe(one_of(codes)), maybe(one_of(codes)), rng.choice("abc")]
            for i in ids
            for n in range(rng.randint(0, 3))
        ],
        ("customer_id", "number"),
        [
            (("customer_id",), "customers", ("id",)),
            (("ship_to",), "countries", ("code",)),
            (("bill_to",), "countries", ("code",)),
        ],
    )
    devices = add(
        "devices",
        {"uid": "uuid", "owner": "integer", "seen": "time"},
        [
            [uuid.UUID(int=rng.getrandbits(128)), maybe(rng.choice([*ids, -1])), moment()]
            for _ in range(some())
        ],
        ("uid",),
        [(("owner",), "customers", ("id",))],
    )
    serials = add(
        "serials",
        {"serial": "bigint", "label": "text"},
        [[2**53 + 2 * i + 1, f"s{i}"] for i in range(some(1))],
        ("serial",),
    )
    add(
        "order lines",  # no key of its own; its foreign key has two columns
        {
            "order_customer": "integer",
            "order_number": "integer",
            "device": "uuid",
            "serial": "bigint",
            "amount": "decimal",
            'say "hi"': "text",
            "at": "time",
        },
        [
            [
                maybe(one_of([o[0] for o in orders])),
                maybe(rng.randint(0, 3)),
                maybe(one_of([d[0] for d in devices])),
                maybe(one_of([s[0] for s in serials])),
                maybe(rng.randint(-500, 500) / 4),
                maybe(rng.choice(["🐸", "it's", "a, b", "two\nlines"])),
                maybe(moment(), 0.1),
            ]
            for _ in range(some(2) * 2)
        ],
        (),
        [
            (("order_customer", "order_number"), "order", ("customer_id", "number")),
            (("device",), "devices", ("uid",)),
            (("serial",), "serials", ("serial",)),
        ],
    )
    people = some(2)
    teams = rng.randint(1, 4)
    add(
        "staff",  # names itself, and stands in a circle with teams
        {"id": "integer", "manager_id": "integer", "team_id": "integer", "hired": "date"},
        [
            [
                i,
                maybe(rng.randint(0, people - 1)),
                maybe(rng.randint(1, teams)),
                dt.date(2020, 1, 1) + dt.timedelta(days=some()),
            ]
            for i in range(people)
        ],
        ("id",),
        [(("manager_id",), "staff", ("id",)), (("team_id",), "teams", ("id",))],
    )
    add(
        "teams",
        {"id": "integer", "lead": "integer", "name": "text"},
        [[i, maybe(rng.randint(0, people - 1)), f"team {i}"] for i in range(1, teams + 1)],
        ("id",),
        [(("lead",), "staff", ("id",))],
    )
    add(
        "empty",
        {"id": "integer", "staff_id": "integer", "created_at": "time", "note": "text"},
        [],
        ("id",),
        [(("staff_id",), "staff", ("id",))],
    )
    add(
        "log",  # no key at all; a constant, and a column of NULLs
        {"logged_at": "time", "level": "text", "app": "text", "nothing": "number", "ms": "bigint"},
        [
            [moment(), rng.choice(["info", "warn"]), "web", None, maybe(rng.getrandbits(40))]
            for _ in range(some(4))
        ],
    )
    return FakeDatabase(tables)
