"""What a run was trained on, in a few lines of JSON: enough to draw it when the data are gone."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd

from relfrog.preparing import Prepared
from relfrog.tasks import read_task_manifest
from relfrog.times import MISSING

__all__ = ["describe_database", "fingerprint"]


def describe_database(prepared: Prepared, name: str) -> dict[str, Any]:
    """Tables, foreign keys, split times and the task of this name, for `database.json`."""
    graph, task, dataset = prepared.graph, prepared.task, prepared.dataset
    manifest = dataset.manifest
    tables = []
    for table, rows in graph.num_rows.items():
        first, last = _span(prepared, table)
        spec = manifest.tables.get(table)
        columns = prepared.columns.tables.get(table)  # not there where nothing was encoded
        tables.append(
            {
                "name": table, "rows": rows, "history": table == prepared.history,
                "primary_key": None if spec is None else spec.pkey,
                "time_column": "window_end" if spec is None else spec.time_col,
                "first_time": first, "last_time": last,
                "columns": len({c.name for c in columns.columns}) if columns else None,
            }
        )  # fmt: skip
    keys = [
        {
            "table": key.table, "column": key.column, "parent": key.parent,
            "filled": float((graph.parent(key) >= 0).mean()) if graph.num_rows[key.table] else 0.0,
        }
        for key in graph.foreign_keys
    ]  # fmt: skip
    ranks = task.task_type.value == "recommendation"
    return {
        "name": manifest.name,
        "val_timestamp": str(dataset.val_timestamp),
        "test_timestamp": str(dataset.test_timestamp),
        "newest": None if prepared.newest is None else str(prepared.newest),
        "task": {
            "description": read_task_manifest(dataset, name)[0].description,
            "entity_table": task.entity_table,
            "target_table": task.dst_entity_table if ranks else None,
            "label": task.target_col,
            "horizon_seconds": task.timedelta.total_seconds(),
            "k": int(task.eval_k) if ranks else None,
        },
        "tables": tables,
        "foreign_keys": keys,
        "fingerprint": fingerprint(prepared),
    }


def _span(prepared: Prepared, table: str) -> tuple[str | None, str | None]:
    times = prepared.graph.time(table)
    known = None if times is None else times[times != MISSING]
    if known is None or not len(known):
        return None, None
    unit = f"datetime64[{prepared.graph.unit}]"
    first, last = np.array([known.min(), known.max()]).astype(unit)
    return str(pd.Timestamp(first)), str(pd.Timestamp(last))


def fingerprint(prepared: Prepared) -> str:
    """A name for exactly these data: another value, row, key or time gives another name."""
    digest = hashlib.blake2b(digest_size=12)
    graph = prepared.graph
    for part in (graph.parents, graph.times):
        digest.update(np.ascontiguousarray(part).data)
    for name in sorted(prepared.features):
        features = prepared.features[name]
        digest.update(f"{name} {graph.num_rows[name]}".encode())
        for tensor in (
            features.dense, features.codes, features.moments,
            features.bag_offsets, features.bag_values,
        ):  # fmt: skip
            if tensor is not None and tensor.numel():
                digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()
