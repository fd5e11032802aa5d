"""A shop whose dataset has no task yet, and the SQL of two."""

from __future__ import annotations

from pathlib import Path

from helpers import sqlite
from relfrog import import_database

BUYS = """
SELECT t.timestamp, p.id, CAST(count(o.id) > 2 AS INTEGER) AS buys
FROM timestamps t CROSS JOIN people p
LEFT JOIN orders o ON o.person = p.id AND o.ordered_at > t.timestamp
    AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'
GROUP BY ALL
"""
LIST = """
SELECT t.timestamp, o.person AS id, LIST(DISTINCT o.thing) AS thing
FROM timestamps t JOIN orders o ON o.ordered_at > t.timestamp
    AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'
GROUP BY ALL
"""


def make_bare_shop(folder: Path) -> Path:
    """A year of orders by thirty people for twelve things."""
    orders = ", ".join(
        f"({i}, {i * 7 % 30 + 1}, {(i * 5 + i // 30) % 12 + 1}, {i % 17}, '2020-01-01', {i})"
        for i in range(1, 1200)
    )
    address = sqlite(
        folder / "shop.db",
        "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT);"
        "CREATE TABLE things (id INTEGER PRIMARY KEY, title TEXT);"
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, person INTEGER REFERENCES people (id), "
        "thing INTEGER REFERENCES things (id), price REAL, ordered_at TIMESTAMP, n INTEGER);"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30) "
        "INSERT INTO people SELECT i, 'p' || i FROM n;"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12) "
        "INSERT INTO things SELECT i, 't' || i FROM n;"
        f"INSERT INTO orders VALUES {orders};"
        "UPDATE orders SET ordered_at = datetime('2020-01-01', (id * 7) || ' hours')",
    )
    import_database(address, folder / "ds", val="2020-09-01", test="2020-11-01")
    return folder / "ds"
