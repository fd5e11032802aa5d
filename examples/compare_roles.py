"""Compare the roles that two tasks learn on the same database.

    python examples/compare_roles.py [FOLDER]

Everything goes into FOLDER, `relfrog-example` by default. Takes a few seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import relfrog
from shop import CHURN, STARS, write_shop

here = Path(sys.argv[1] if len(sys.argv) > 1 else "relfrog-example")
relfrog.import_database(str(write_shop(here / "csv")), here / "shop", overwrite=True)
relfrog.add_task(
    here / "shop",
    "churn",
    CHURN,
    type="binary",
    entity="customers",
    horizon="30 days",
    overwrite=True,
)
relfrog.add_task(
    here / "shop",
    "stars",
    STARS,
    type="regression",
    entity="products",
    horizon="30 days",
    overwrite=True,
)

# A smaller alpha lets the gates move within these few steps.
settings = {"epochs": 4, "channels": 16, "lr": 0.01, "average": 0.0, "alpha": 0.9, "history": "off"}
gates = {}
for task in ("churn", "stars"):
    run = relfrog.train(
        here / "shop", task, here / task, model="frog", settings=settings, overwrite=True
    )
    gates[task] = run.roles().set_index("route")["gate"]

print("gate: 0 is node, 1 is edge")
for route in gates["churn"].index:
    churn, stars = gates["churn"][route], gates["stars"][route]
    print(f"{route:40} churn {churn:.2f}  stars {stars:.2f}  difference {stars - churn:+.2f}")

# The roles learned for one task, fixed for the other.
settings["epochs"] = 2
moved = relfrog.train(
    here / "shop",
    "churn",
    here / "moved",
    model="frog",
    settings=settings,
    roles=here / "stars",
    overwrite=True,
)
print(f"churn with the roles of stars: ROC-AUC {moved.metrics['val']['rolling']['roc_auc']:.2f}")
