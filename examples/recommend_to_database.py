"""Recommend products and write the lists to a database, as a nightly job would.

    python examples/recommend_to_database.py [FOLDER]

Everything goes into FOLDER, `relfrog-example` by default. Takes a few seconds.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import relfrog
from relfrog.io import write_frame
from shop import BASKET, write_shop

here = Path(sys.argv[1] if len(sys.argv) > 1 else "relfrog-example")
relfrog.import_database(str(write_shop(here / "csv")), here / "shop", overwrite=True)
relfrog.add_task(
    here / "shop", "basket", BASKET, type="recommendation", source="customers",
    target="products.product_id", horizon="30 days", k=5, overwrite=True,
)  # fmt: skip

settings = {"epochs": 2, "channels": 16, "lr": 0.01, "average": 0.0, "neighbors": 8}
for model in ("popularity", "frog"):
    run = relfrog.train(
        here / "shop", "basket", here / model, overwrite=True, model=model,
        settings=settings if model == "frog" else None,
    )  # fmt: skip
    # Metrics are computed on the first five entries of a list (k=5).
    shown = {name: f"{value:.3f}" for name, value in run.metrics["test"]["rolling"].items()}
    print(model, shown)

# Three products for every customer, also those who rarely buy; none they bought before. The table
# is replaced all or nothing.
lists = run.predict(everyone=True, k=3, exclude_known=True)
write_frame(lists, f"sqlite:///{here / 'lists.db'}", table="suggested", overwrite=True)

with closing(sqlite3.connect(here / "lists.db")) as database:
    for row in database.execute('SELECT * FROM suggested ORDER BY customer_id, "rank" LIMIT 3'):
        print(*row)
