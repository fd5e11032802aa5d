"""Reports with something special: evil names, forty tables, a dataset that is gone."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd

from relfrog import Run
from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import find_routes
from relfrog.reporting import report
from relfrog.reporting.schema_layout import Join
from small_store import copied, fit

EVIL = "<script>alert(1)</script>"


def moved(run: Run, folder: Path, *, kept: bool = False) -> Path:
    """The run folder somewhere else, with a dataset that is gone."""
    place = Path(shutil.copytree(run.folder, folder / "moved"))
    if not kept:
        (place / "shown.json").unlink(missing_ok=True)
    about = json.loads((place / "run.json").read_text())
    (place / "run.json").write_text(json.dumps({**about, "dataset": str(folder / "nowhere")}))
    return place


def evil_report(store: Path, tmp_path: Path) -> Path:
    """The report on a store in which all names are scripts."""
    shop = copied(store, tmp_path)
    keys = shop / "keys" / "people.parquet"
    frame = pd.read_parquet(keys)
    frame["code"] = [f"{EVIL}{i}" for i in range(len(frame))]
    frame.to_parquet(keys, index=False)
    for table, column in (("things", "title"), ("orders", "channel"), ("reviews", "words")):
        path = shop / "db" / f"{table}.parquet"
        part = pd.read_parquet(path)
        part[column] = EVIL
        part.to_parquet(path, index=False)
    manifest = shop / "tasks" / "buys" / "manifest.yaml"
    manifest.write_text(re.sub(r"(?m)^description:.*$", "", manifest.read_text()) +
                        f"\ndescription: 'Will <img src=x onerror=alert(1)> {EVIL} buy?'\n")  # fmt: skip
    return report(fit(shop, tmp_path / "run", epochs=1))


def business(seed: int) -> tuple[dict[str, tuple[float, float]], list[Join]]:
    """Forty tables as a company has them: master data, documents, and lines of documents."""
    rng = random.Random(seed)
    names = [f"table_{i}" for i in range(40)]
    joins = [Join("table_3", "table_3", 3.0)]
    for i, name in enumerate(names[12:], 12):
        pool = names[:12] if i < 28 else names[:28]
        for parent in rng.sample(pool, rng.randint(1, 4)):
            joins.append(Join(name, parent, rng.choice([2.0, 10.0, 18.0])))
        if 16 < i < 28 and rng.random() < 0.3:
            joins.append(Join(name, rng.choice(names[12:i]), 4.0))
    return {name: (rng.uniform(92, 180), rng.uniform(40, 76)) for name in names}, joins


def forty() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """`database.json` and `roles.json` of a schema with forty tables."""
    sizes, joins = business(2)
    tables = [
        {"name": name, "rows": 10 ** (i % 7), "history": False, "primary_key": "id", "columns": 3,
         "time_column": None, "first_time": None, "last_time": None}
        for i, name in enumerate(sizes)
    ]  # fmt: skip
    keys = [
        {"table": j.child, "column": f"key_{i}", "parent": j.parent, "filled": 1.0}
        for i, j in enumerate(joins)
    ]
    database = {
        "name": "forty", "tables": tables, "foreign_keys": keys, "newest": None,
        "val_timestamp": "2020-01-01", "test_timestamp": "2020-02-01", "fingerprint": "",
        "task": {"description": None, "entity_table": "table_1", "target_table": None,
                 "label": "late", "horizon_seconds": 86400.0, "k": None},
    }  # fmt: skip
    found = find_routes(ForeignKey(k["table"], k["column"], k["parent"]) for k in keys)
    roles = [
        {"route": str(r), "paradigm": r.paradigm.name, **dict(zip("uvw", r.tables)), "gate": i / len(found)}
        for i, r in enumerate(found)
    ]  # fmt: skip
    return database, roles
