"""A trade in headers and details: orders, their lines, and parts of lines; most have no time."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import sqlite
from oracles.slow_times import slow_known
from relfrog.support.inherited_times import Link
from relfrog.support.times import MISSING

PRODUCTS = 30
VAL, TEST = "2020-07-01", "2020-09-01"

SCHEMA = """
CREATE TABLE products (id INTEGER PRIMARY KEY, title TEXT, price REAL);
CREATE TABLE campaigns (id INTEGER PRIMARY KEY, started_at TIMESTAMP, budget REAL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, campaign INTEGER REFERENCES campaigns (id),
    placed_at TIMESTAMP, channel TEXT);
CREATE TABLE lines (id INTEGER PRIMARY KEY, order_id INTEGER REFERENCES orders (id),
    product INTEGER REFERENCES products (id), quantity INTEGER);
CREATE TABLE parts (id INTEGER PRIMARY KEY, line INTEGER REFERENCES lines (id),
    inside INTEGER REFERENCES parts (id), weight REAL);
CREATE TABLE visits (product INTEGER REFERENCES products (id), seen_with INTEGER REFERENCES orders
    (id), visited_at TIMESTAMP, seconds REAL);
"""
LINKS = {
    Link("orders", ("campaign",), "campaigns"): 1,
    Link("lines", ("order_id",), "orders"): 1,
    Link("lines", ("product",), "products"): 2,
    Link("parts", ("line",), "lines"): 1,
    Link("parts", ("inside",), "parts"): 2,
    Link("visits", ("product",), "products"): 0,
    Link("visits", ("seen_with",), "orders"): 1,
}
TIMES = {"campaigns": 1, "orders": 2, "visits": 2}
#: Units of a product that are ordered within the horizon.
UNITS = """
SELECT t.timestamp, p.id, coalesce(sum(l.quantity), 0) AS units
FROM timestamps t CROSS JOIN products p
LEFT JOIN (SELECT l.product, l.quantity, o.placed_at FROM lines l
    JOIN orders o ON o.id = l.order_id WHERE o.placed_at IS NOT NULL) l
  ON l.product = p.id AND l.placed_at > t.timestamp
    AND l.placed_at <= t.timestamp + INTERVAL '{timedelta}'
GROUP BY ALL
"""

Rows = dict[str, list[tuple[Any, ...]]]


def day(number: int, seconds: int = 0) -> str:
    """A day of 2020, as SQLite writes it."""
    time = pd.Timestamp("2020-01-01") + pd.Timedelta(number, "D") + pd.Timedelta(seconds, "s")
    return f"{time:%Y-%m-%d %H:%M:%S}"


def make_trade(seed: int) -> Rows:
    """Rows of a trade, in no order: NULL times, dangling keys, parts inside each other."""
    rng = random.Random(seed)
    rows: Rows = {
        "products": [(i, f"thing {i % 3}", 1.5 * i) for i in range(PRODUCTS)],
        "campaigns": [(i, day(rng.randrange(330)), rng.random()) for i in range(12)],
        "orders": [], "lines": [], "parts": [], "visits": [],
    }  # fmt: skip
    for number in range(260):
        when = day(rng.randrange(360), rng.randrange(86_400))
        campaign = rng.choice([None, None, 99, *range(12)])
        # Who ordered by mail has no time, but may name a campaign.
        when_known = None if rng.random() < 0.1 else when
        rows["orders"].append((number, campaign, when_known, rng.choice(["web", "mail"])))
    for number in range(1200):
        order = rng.choice([None, 999, *range(260), *range(260)])
        rows["lines"].append((number, order, rng.randrange(PRODUCTS), rng.randrange(1, 9)))
    for number in range(400):
        line = rng.choice([None, *range(1200)])
        inside = rng.choice([5000, *range(400)]) if rng.random() < 0.2 else None
        rows["parts"].append((number, line, inside, rng.random()))
    known = known_from(rows)["orders"]
    for _ in range(300):  # visits have times of their own, and some name later orders
        order = rng.choice([None, *range(260)])
        when = day(rng.randrange(360), rng.randrange(86_400))
        late = MISSING if order is None or rng.random() < 0.02 else known[order]
        if late > pd.Timestamp(when).value // 1000:
            when = f"{pd.Timestamp(late, unit='us'):%Y-%m-%d %H:%M:%S}"
        rows["visits"].append((rng.randrange(PRODUCTS), order, when, rng.random()))
    for some in rows.values():
        rng.shuffle(some)
    return rows


def known_from(rows: Rows) -> dict[str, list[int]]:
    """From when on each row is known, in microseconds, by a plain loop."""
    own = {
        name: [
            MISSING if name not in TIMES or row[TIMES[name]] is None
            else int(pd.Timestamp(row[TIMES[name]]).value // 1000)
            for row in some
        ]
        for name, some in rows.items()
    }  # fmt: skip
    place = {name: {row[0]: i for i, row in enumerate(some)} for name, some in rows.items()}
    pointers = {
        link: [place[link.parent].get(row[column], -1) for row in rows[link.child]]
        for link, column in LINKS.items()
    }
    return slow_known(own, LINKS, pointers)


def without_future(rows: Rows, time: str) -> Rows:
    """The rows that were known at a time: later headers are gone, and all that names them."""
    limit = pd.Timestamp(time).value // 1000
    known = known_from(rows)
    return {
        name: [row for row, at in zip(some, known[name], strict=True) if at <= limit]
        for name, some in rows.items()
    }


def write_trade(path: Path, rows: Rows) -> str:
    """Write a SQLite file; returns its address."""
    address = sqlite(path, SCHEMA)
    connection = sqlite3.connect(path)
    try:
        for name, some in rows.items():
            if some:
                marks = ", ".join("?" * len(some[0]))
                connection.executemany(f"INSERT INTO {name} VALUES ({marks})", some)
        connection.commit()
    finally:
        connection.close()
    return address
