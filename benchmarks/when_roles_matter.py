"""When does a role matter? Made-up databases whose labels need one thing each, and who can say it.

Customers have orders, and each order is of a product. A label of a customer hangs on one thing: on
its orders, on their products, on orders together with their products, on how many there are, on the
latest, or on what is two steps down a chain. Every network is trained on three quarters of the
customers and scored on the rest.

    python benchmarks/when_roles_matter.py      # all; writes experiments/when-roles-matter.json
    python benchmarks/when_roles_matter.py --worlds counts chain --seeds 1 --out -

Each run is written as soon as it is finished, and not repeated: an interrupted command continues.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from relbench.base import Database, Table
from sklearn.metrics import roc_auc_score

from relfrog.features.columns import fit_columns
from relfrog.graph.relational import build_graph
from relfrog.graph.routes import Completion, CoOccurrence, find_routes
from relfrog.graph.sampler import TemporalSampler
from relfrog.nn.batch_plan import Plan, make_plan
from relfrog.nn.network import Network
from relfrog.nn.role_layer import LayerOptions
from relfrog.nn.roles import GateOptions
from relfrog.nn.task_heads import HEADS

NOW = pd.Timestamp("2020-01-01")
CUSTOMERS, ORDERS, PRODUCTS = 2000, 5, 100
#: Steps by the number of layers. With one, each learns from 200 customers. Two layers reach nearly
#: all rows from a few customers, by their products: a step may as well learn from all customers,
#: which are then sampled and planned once, fewer steps at a higher rate are enough, and a network
#: whose loss on all of them is below `KNOWN` has learned what there is.
STEPS, RATE, KNOWN = {1: 300, 2: 200}, {1: 0.005, 2: 0.01}, 0.1
OUT = Path(__file__).parents[1] / "experiments" / "when-roles-matter.json"

Numbers = NDArray[np.float64]


class World(NamedTuple):
    """A made-up database and a label per customer."""

    db: Database
    labels: NDArray[np.int64]


def _table(columns: dict[str, Any], keys: dict[str, str] | None = None) -> Table:
    timed = "time" if "time" in columns else None
    frame = pd.DataFrame({"id": np.arange(len(next(iter(columns.values())))), **columns})
    return Table(frame, keys or {}, "id", timed)


def _shop(seed: int, cause: Callable[..., Numbers], *, even: bool = True) -> World:
    """Customers <- orders -> products; `cause(owner, a, b, when)` gives a number per customer.

    Args:
        seed: of everything.
        cause: of the owners of the orders, a number of each order, a number of its product, and
            how many days ago it was.
        even: whether all customers have the same number of orders, so that it says nothing.
    """
    rng = np.random.default_rng(seed)
    many = np.full(CUSTOMERS, ORDERS) if even else rng.integers(1, 2 * ORDERS, CUSTOMERS)
    owner = np.repeat(np.arange(CUSTOMERS), many)
    product = rng.integers(0, PRODUCTS, len(owner))
    orders, products = rng.normal(size=(len(owner), 2)), rng.normal(size=(PRODUCTS, 2))
    days = rng.uniform(1, 1000, len(owner))
    value = cause(owner, orders[:, 0], products[product, 0], days)
    db = Database(
        {
            "customers": _table({"x": rng.normal(size=CUSTOMERS)}),
            "orders": _table(
                {
                    "a": orders[:, 0], "noise": orders[:, 1], "customer": owner,
                    "product": product, "time": NOW - pd.to_timedelta(days, "D"),
                },
                {"customer": "customers", "product": "products"},
            ),
            "products": _table({"b": products[:, 0], "noise": products[:, 1]}),
        }
    )  # fmt: skip
    return World(db, (value > np.median(value)).astype(np.int64))


def _chain(seed: int) -> World:
    """Items -> orders -> customers: the sum over all items of all orders."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(CUSTOMERS), 3)
    order = np.repeat(np.arange(len(owner)), 2)
    item = rng.normal(size=(len(order), 2))
    value = np.bincount(owner[order], item[:, 0], CUSTOMERS)
    db = Database(
        {
            "customers": _table({"x": rng.normal(size=CUSTOMERS)}),
            "orders": _table({"noise": rng.normal(size=len(owner)), "customer": owner},
                             {"customer": "customers"}),
            "items": _table({"b": item[:, 0], "noise": item[:, 1], "order": order},
                            {"order": "orders"}),
        }
    )  # fmt: skip
    return World(db, (value > 0).astype(np.int64))


def _summed(owner: NDArray[np.int64], values: Numbers) -> Numbers:
    return np.bincount(owner, values, CUSTOMERS)


def _latest(owner: NDArray[np.int64], values: Numbers, days: Numbers) -> Numbers:
    order = np.lexsort((-days, owner))  # the latest of each owner comes last
    found = np.empty(CUSTOMERS)
    found[owner[order]] = values[order]
    return found


#: What the label of a customer is, in words, and how it is made.
WORLDS: dict[str, tuple[str, Callable[[int], World]]] = {
    "v alone": ("sum of a number of its orders",
                lambda seed: _shop(seed, lambda owner, a, b, days: _summed(owner, a))),
    "u alone": ("sum of a number of the products of its orders",
                lambda seed: _shop(seed, lambda owner, a, b, days: _summed(owner, b))),
    "u with v": ("sum of the number of each order times that of its product",
                 lambda seed: _shop(seed, lambda owner, a, b, days: _summed(owner, a * b))),
    "counts": ("how many orders it has",
               lambda seed: _shop(seed, lambda owner, a, b, days: _summed(owner, np.ones_like(a))
                                  + 0.01 * _summed(owner, a), even=False)),
    "recency": ("the number of its latest order",
                lambda seed: _shop(seed, lambda owner, a, b, days: _latest(owner, a, days))),
    "chain": ("sum of a number of the items of its orders", _chain),
}  # fmt: skip

#: Roles and messages to compare, as arguments of `learn`. Without routes there are only nodes.
VARIANTS: dict[str, dict[str, Any]] = {
    "node": {"routes": False},
    "edge": {"mode": "edge"},
    "learned": {},
    "learned, normalised": {"normalise": True},
    "learned, by row": {"row_wise": True, "alpha": 0.0},
    "pair message": {"message": "pair"},
}


class Learned(NamedTuple):
    """ROC-AUC on customers that were not learned from, steps taken, and the gates by route."""

    score: float
    steps: int
    gates: Mapping[str, float]


def learn(
    world: World, seed: int, layers: int = 1, *, routes: bool = True, mode: str = "learned",
    message: str = "linear", normalise: bool = False, row_wise: bool = False,
    steps: int | None = None, alpha: float = 0.99, channels: int = 32,
) -> Learned:  # fmt: skip
    """Train a network and score it."""
    graph = build_graph(world.db)
    columns = fit_columns(world.db, before=NOW)
    features = columns.encode(world.db)
    keys = graph.foreign_keys
    some = find_routes(keys, [CoOccurrence(), Completion()]) if routes else ()
    torch.manual_seed(seed)
    head = HEADS["binary_classification"].build({"positive": 0.5}, channels, 0.0)
    timed = [name for name in graph.num_rows if graph.time(name) is not None]
    network = Network(
        columns.tables, timed, keys, some, "customers", head, channels=channels, layers=layers,
        aggregation="recent", mode=mode, alpha=alpha, unit=graph.unit,
        gates=GateOptions(normalise=normalise, row_wise=row_wise),
        layer=LayerOptions(message=message),
    )  # fmt: skip
    sampler = TemporalSampler(graph, "customers", [-1] * (2 * layers), routes=some)

    def plan(rows: NDArray[np.int64]) -> Plan:
        return make_plan(sampler.sample(rows, [NOW] * len(rows)), layers, some)

    optimizer = torch.optim.Adam(network.parameters(), lr=RATE[layers], fused=layers > 1)
    rng, known = np.random.default_rng(seed), len(world.labels) * 3 // 4
    everyone = np.arange(known)
    whole = plan(everyone) if layers > 1 else None
    taken, most = 0, steps or STEPS[layers]
    while taken < most:
        chosen = everyone if whole else rng.choice(known, 200, replace=False)
        out = network(whole or plan(chosen), features).seeds
        optimizer.zero_grad()
        loss = head.loss(out, head.targets(world.labels[chosen]))
        loss.backward()
        optimizer.step()
        taken += 1
        if whole and loss.item() < KNOWN:
            break
    network.eval()
    held_out = np.arange(known, len(world.labels))
    with torch.no_grad():
        predicted = head.predict(network(plan(held_out), features).seeds)
    gates = {}
    if network.roles is not None:
        values = network.roles.average.tolist()
        gates = {str(route): values[number] for route, number in network.roles.number.items()}
    return Learned(float(roc_auc_score(world.labels[held_out], predicted)), taken, gates)


def kept(out: Path, found: list[dict[str, Any]]) -> None:
    """Write all runs so far; whoever is interrupted keeps the file as it was."""
    about = {
        "command": "python benchmarks/when_roles_matter.py",
        "about": "ROC-AUC on made-up customers that were not learned from.",
        "labels": {world: words for world, (words, _) in WORLDS.items()},
        "runs": found,
    }
    beside = out.with_suffix(".new")
    beside.write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    beside.replace(out)


def main() -> None:
    """Run the grid and write what came out, after each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--layers", nargs="*", type=int, default=list(STEPS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default=str(OUT), help="a file, or - for none")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    out = Path(given.out)
    if given.out != "-" and out.is_file():
        found = json.loads(out.read_text("utf-8"))["runs"]
    there = {(run["world"], run["variant"], run["layers"], run["seed"]) for run in found}
    grid = itertools.product(given.layers, range(given.seeds), given.worlds, given.variants)
    for layers, seed, name, variant in grid:
        if (name, variant, layers, seed) in there:
            continue
        started = time.process_time()
        score, steps, gates = learn(WORLDS[name][1](seed), seed, layers, **VARIANTS[variant])
        found.append({
            "world": name, "variant": variant, "layers": layers, "seed": seed,
            "steps": steps, "roc_auc": round(score, 4),
            "gates": {route: round(gate, 4) for route, gate in gates.items()},
            "cpu_seconds": round(time.process_time() - started, 1),
        })  # fmt: skip
        print(name, variant, layers, seed, steps, f"{score:.3f}", flush=True)
        if given.out != "-":
            kept(out, found)


if __name__ == "__main__":
    main()
