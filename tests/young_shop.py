"""A shop with two years of orders, and people who were there long before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from helpers import csv_folder
from relfrog import import_database

BUYS = """
SELECT t.timestamp, p.person_id, CAST(count(o.order_id) > 0 AS INTEGER) AS buys
FROM timestamps t CROSS JOIN people p
LEFT JOIN orders o ON o.person_id = p.person_id AND o.ordered_at > t.timestamp
    AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'
GROUP BY ALL
"""
TASK: dict[str, Any] = {"type": "binary", "entity": "people", "horizon": "20 days"}


def young_shop(folder: Path, **options: Any) -> Path:
    """Two years of orders, and people who were there ten years before."""
    days = pd.date_range("2020-01-01", periods=730, freq="D")
    address = csv_folder(
        folder / "csv",
        people="person_id,town,joined\n"
        + "".join(f"{i},t{i % 3},20{10 + i % 10}-03-{1 + i % 28:02d}\n" for i in range(40)),
        orders="order_id,person_id,ordered_at,amount\n"
        + "".join(
            f"{2 * i + j},{(7 * i + 11 * j * j) % 40},{day:%Y-%m-%d},{i % 9}\n"
            for i, day in enumerate(days)
            for j in range(2)
        ),
    )
    import_database(address, folder / "ds", **options)
    return folder / "ds"
