"""A small made-up shop as a folder of CSV files: the data of the other examples.

It declares no keys or times; `relfrog.import_database` finds them.
"""

from __future__ import annotations

import csv
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

CATEGORIES = ("tea", "books", "tools", "plants")
START, DAYS = datetime(2024, 1, 1), 420

#: Will a customer who ordered in the last 60 days order nothing in the next 30?
CHURN = """
SELECT t.timestamp, c.customer_id,
    CAST(count(o.order_id) FILTER (o.ordered_at > t.timestamp) = 0 AS INTEGER) AS churn
FROM timestamps t
JOIN orders o ON o.ordered_at > t.timestamp - INTERVAL '60 days'
    AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'
JOIN customers c ON c.customer_id = o.customer_id
GROUP BY t.timestamp, c.customer_id
HAVING count(o.order_id) FILTER (o.ordered_at <= t.timestamp) > 0
"""
#: How many stars will the reviews of a product have on average over the next 30 days?
STARS = """
SELECT t.timestamp, o.product_id, avg(r.stars) AS stars
FROM timestamps t
JOIN reviews r ON r.written_at > t.timestamp
    AND r.written_at <= t.timestamp + INTERVAL '{timedelta}'
JOIN orders o ON o.order_id = r.order_id
WHERE o.product_id IS NOT NULL
GROUP BY t.timestamp, o.product_id
"""
#: Which products will a customer buy in the next 30 days?
BASKET = """
SELECT t.timestamp, o.customer_id, LIST(DISTINCT o.product_id) AS product_id
FROM timestamps t
JOIN orders o ON o.ordered_at > t.timestamp
    AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'
WHERE o.customer_id IS NOT NULL AND o.product_id IS NOT NULL
GROUP BY t.timestamp, o.customer_id
"""


def write_shop(folder: Path, seed: int = 0) -> Path:
    """Write customers, products, orders and reviews as CSV files."""
    draw = random.Random(seed)
    products = [
        {"product_id": f"SKU-{i:03d}", "category": CATEGORIES[i % 4], "quality": draw.gauss(0, 1),
         "price": round(draw.uniform(4, 60), 2)}
        for i in range(24)
    ]  # fmt: skip
    customers, orders, reviews = [], [], []
    for i in range(160):
        taste, pace = draw.choice(CATEGORIES), draw.choice((5, 10, 50))
        day = draw.uniform(0, 240)
        customers.append({
            "customer_id": f"C{i:04d}", "signed_up": _time(day),
            "city": draw.choice(("Oslo", "Rome", "Lyon")), "newsletter": draw.random() < 0.4,
        })  # fmt: skip
        while (day := day + draw.expovariate(1 / pace)) < DAYS:
            fitting = [p for p in products if p["category"] == taste or draw.random() < 0.1]
            product = draw.choice(fitting)
            key = len(orders) + 1
            orders.append({
                "order_id": key, "customer_id": f"C{i:04d}", "product_id": product["product_id"],
                "ordered_at": _time(day), "pieces": draw.choice((1, 1, 1, 2, 3)),
            })  # fmt: skip
            happy = product["quality"] + draw.gauss(0, 0.7)
            if draw.random() < 0.4:
                reviews.append({
                    "review_id": len(reviews) + 1, "order_id": key,
                    "written_at": _time(day + draw.uniform(1, 9)),
                    "stars": max(1, min(5, round(3.5 + happy))),
                })  # fmt: skip
            if draw.random() < (0.12 if happy < -0.5 else 0.02):
                break  # gone for good, more often after a bad experience
    for product in products:
        del product["quality"]  # hidden from the model
    folder.mkdir(parents=True, exist_ok=True)
    tables = {"customers": customers, "products": products, "orders": orders, "reviews": reviews}
    for name, rows in tables.items():
        _write(folder / f"{name}.csv", rows)
    return folder


def _time(day: float) -> str:
    return f"{START + timedelta(days=day):%Y-%m-%d %H:%M:%S}"


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
