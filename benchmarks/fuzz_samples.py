"""A dataset of a few rows, of which the fuzzer changes files."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import yaml

__all__ = ["LABELS", "add_lists", "tiny_dataset"]

#: Whether somebody orders within the horizon.
LABELS = """SELECT t.timestamp, p.id, CAST(count(o.id) > 0 AS INTEGER) AS y
    FROM timestamps t CROSS JOIN people p LEFT JOIN orders o ON o.who = p.id
    AND o.at > t.timestamp AND o.at <= t.timestamp + INTERVAL '{timedelta}' GROUP BY 1, 2"""


def tiny_dataset(folder: Path) -> Path:
    """A dataset of two small tables and a task with stored labels."""
    (folder / "db").mkdir(parents=True)
    days = pd.date_range("2020-01-01", periods=12)
    pd.DataFrame({"id": range(4), "name": list("abcd")}).to_parquet(folder / "db/people.parquet")
    pd.DataFrame(
        {"id": range(12), "who": pd.array([0, 1, 2, None] * 3, "Int64"), "at": days, "x": range(12)}
    ).to_parquet(folder / "db/orders.parquet")
    manifest = {
        "name": "tiny", "val_timestamp": "2020-01-06", "test_timestamp": "2020-01-09",
        "tables": {
            "people": {"pkey": "id", "time_col": None, "fkeys": {}},
            "orders": {"pkey": "id", "time_col": "at", "fkeys": {"who": "people"}},
        },
    }  # fmt: skip
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    task = folder / "tasks" / "buys"
    task.mkdir(parents=True)
    about = {
        "name": "buys", "kind": "forecast", "task_type": "binary_classification",
        "entity_table": "people", "entity_col": "id", "target_col": "y", "time_col": "timestamp",
        "timedelta": "1 day", "num_eval_timestamps": 2, "sql": LABELS, "remove_columns": [],
    }  # fmt: skip
    (task / "manifest.yaml").write_text(yaml.safe_dump(about))
    for split, days in (("train", range(1, 6)), ("val", (6, 7)), ("test", (9, 10))):
        rows = [(pd.Timestamp(2020, 1, day), who, int(day % 4 == who < 3))
                for day in days for who in range(4)]  # fmt: skip
        frame = pd.DataFrame(rows, columns=["timestamp", "id", "y"])
        frame.to_parquet(task / f"{split}.parquet")
    columns = {c: {"source": [c], "role": "value"} for c in ("id", "who", "at", "x", "name")}
    record = {name: {"key": ["id"], "columns": columns} for name in ("people", "orders")}
    (folder / "keys").mkdir()
    for name, rows in (("people", 4), ("orders", 12)):
        pd.DataFrame({"id": range(rows)}).to_parquet(folder / "keys" / f"{name}.parquet")
    (folder / "import.json").write_text(json.dumps({"tables": record}))
    return folder


def add_lists(folder: Path) -> Path:
    """Add a task whose labels are lists of orders."""
    task = folder / "tasks" / "likes"
    task.mkdir()
    about = {
        "name": "likes", "kind": "external", "task_type": "recommendation", "timedelta": "1 day",
        "src_entity_table": "people", "src_entity_col": "id", "dst_entity_table": "orders",
        "dst_entity_col": "order", "time_col": "timestamp", "num_eval_timestamps": 1, "eval_k": 2,
    }  # fmt: skip
    (task / "manifest.yaml").write_text(yaml.safe_dump(about))
    for split, days in (("train", range(1, 6)), ("val", (6,)), ("test", (9,))):
        rows = [(pd.Timestamp(2020, 1, day), who, [who, who + 4])
                for day in days for who in range(4)]  # fmt: skip
        frame = pd.DataFrame(rows, columns=["timestamp", "id", "order"])
        frame.to_parquet(task / f"{split}.parquet")
    return folder
