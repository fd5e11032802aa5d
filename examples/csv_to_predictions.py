"""From a folder of CSV files to predictions: which customers will not come back?

    python examples/csv_to_predictions.py [FOLDER]

Everything goes into FOLDER, `relfrog-example` by default. Takes a few seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import relfrog
from shop import CHURN, write_shop

here = Path(sys.argv[1] if len(sys.argv) > 1 else "relfrog-example")
files = write_shop(here / "csv")

# 1. Import the files. Undeclared keys and time columns are found, or suggested.
found = relfrog.import_database(str(files), here / "shop", overwrite=True)
for table in found.tables:
    print(f"{table.name}: {table.rows:,} rows")

# 2. Define a task. The SQL is tried on all splits before it is saved.
relfrog.add_task(
    here / "shop", "churn", CHURN, type="binary", entity="customers", horizon="30 days",
    overwrite=True,
)  # fmt: skip

# 3. Train. These settings take a few seconds; leave them out for a real model.
settings = {"epochs": 8, "channels": 16, "lr": 0.01, "average": 0.0}
run = relfrog.train(here / "shop", "churn", here / "churn", settings=settings, overwrite=True)
for regime in ("frozen", "rolling"):
    print(f"test, {regime}: ROC-AUC {run.metrics['test'][regime]['roc_auc']:.2f}")

# 4. Predict at the newest time for the customers whom the task asks about, with their own keys.
predicted = run.predict().sort_values("prediction", ascending=False)
predicted.to_csv(here / "churn.csv", index=False)
print(predicted.head(3).to_string(index=False))
