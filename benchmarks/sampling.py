"""How fast the graph is built and sampled.

    python benchmarks/sampling.py --out benchmarks/sampling.json

`--growth` prints only how the cost of a seed grows with the database, and writes no file.

Reads the databases in ../shared/data. Where pyg-lib is installed, its sampler runs beside ours.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import relbench
from relbench.base import Database, Table

import reading
from relfrog.graph.loader import Loader
from relfrog.graph.relational import RelationalGraph, build_graph, open_graph
from relfrog.graph.sampler import TemporalSampler, halving

DATA = Path(__file__).parents[1].parent / "shared" / "data"

#: dataset, task, neighbours, hops, batch, and pyg-lib's seeds/s on such a machine where known.
SETTINGS: list[tuple[str, str, int, int, int, int | None]] = [
    ("rel-f1", "driver-dnf", 128, 2, 512, 55_000),
    ("rel-f1", "driver-dnf", 128, 4, 64, 1_300),
    ("travel-exchange", "user-engagement", 128, 2, 512, 143_000),
    ("flights", "plane-delay", 128, 2, 512, None),
    ("olist-sample", "seller-sales", 128, 2, 512, None),
]


def load(name: str, task_name: str) -> tuple[Database, str, np.ndarray, pd.Series]:
    """A database, and the training seeds of a task."""
    data = relbench.load_dataset(str(DATA / name))
    task = data.load_task(task_name)
    frame = task.get_table("train").df
    rows = frame[task.entity_col].astype(int).to_numpy()
    return data.get_db(upto_test_timestamp=False), task.entity_table, rows, frame[task.time_col]


def exhaust(batches: Iterable[Any], seconds: float) -> tuple[int, float]:
    """Batches read within some time, and the time."""
    began = time.perf_counter()
    count = 0
    for _ in batches:
        count += 1
        if time.perf_counter() - began > seconds:
            break
    return count, time.perf_counter() - began


def measure(
    graph: RelationalGraph, table: str, rows: np.ndarray, times: Any, **how: Any
) -> dict[str, float]:
    """Speed of a shuffled epoch, or as much of it as fits into `seconds`."""
    sampler = TemporalSampler(graph, table, how["fanouts"], how["mode"])
    loader = Loader(
        sampler, rows, times, how["batch"], workers=how["workers"], ahead=how.get("ahead", 4)
    )
    # The first batches fill the threads' memory; they also tell the sizes.
    sizes = [
        (
            len(batch),
            sum(len(part) for part in batch.tables.values()),
            sum(len(part.rows) for part in batch.tables.values()),
            sum(int((pointers >= 0).sum()) for pointers in batch.parents.values()),
        )
        for batch in islice(loader.epoch(0), 30)
    ]
    seeds, occurrences, distinct, edges = np.sum(sizes, axis=0)
    best = 0.0
    for epoch in range(3):
        count, spent = exhaust(loader.epoch(epoch), how["seconds"])
        read = min(count * how["batch"], len(rows))
        best = max(best, read / spent)
    return {
        "seeds_per_s": round(best),
        "rows_per_s": round(best * occurrences / seeds),
        "edges_per_s": round(best * edges / seeds),
        "rows_per_seed": round(float(occurrences / seeds), 1),
        "distinct_rows_per_batch": round(distinct / len(sizes)),
    }


def sample_databases(seconds: float) -> list[dict[str, Any]]:
    """All settings, separate and shared, one worker and two."""
    results = []
    for name, task, neighbors, hops, batch, pyg_lib in SETTINGS:
        db, table, rows, times = load(name, task)
        graph = build_graph(db)
        for mode in ("separate", "shared"):
            for workers in (1, 2):
                found = measure(
                    graph, table, rows, times, fanouts=halving(neighbors, hops), mode=mode,
                    batch=batch, workers=workers, seconds=seconds,
                )  # fmt: skip
                row = {"dataset": name, "task": task, "fanouts": halving(neighbors, hops)}
                row |= {"batch": batch, "mode": mode, "workers": workers} | found
                results.append(row | {"pyg_lib_seeds_per_s": pyg_lib})
                show(results[-1])
        if importlib.util.find_spec("pyg_lib"):
            results.append(measure_pyg(graph, table, rows, times, neighbors, hops, batch, seconds))
            show(results[-1])
    return results


def measure_pyg(
    graph: RelationalGraph,
    table: str,
    rows: np.ndarray,
    times: pd.Series,
    neighbors: int,
    hops: int,
    batch: int,
    seconds: float,
) -> dict[str, Any]:
    """pyg-lib through PyTorch Geometric, as RelBench's examples use it."""
    import torch
    from torch_geometric.loader import NeighborLoader

    unix = (times.astype("datetime64[us]").astype("int64") // 1_000_000).to_numpy()
    loader = NeighborLoader(
        graph.to_pyg(),
        num_neighbors=list(halving(neighbors, hops)),
        input_nodes=(table, torch.from_numpy(rows)),
        input_time=torch.from_numpy(unix.copy()),
        time_attr="time",
        temporal_strategy="uniform",
        batch_size=batch,
        shuffle=True,
    )
    count, spent = exhaust(loader, 3 * seconds)
    read = min(count * batch, len(rows))
    return {"sampler": "pyg-lib", "batch": batch, "seeds_per_s": round(read / spent)}


def scaled(db: Database, factor: int) -> tuple[Database, dict[str, np.ndarray]]:
    """So many copies of a database one after the other, then sorted by time; keys and times only.

    Returns:
        The database, and per table the new number of row r of copy c. Shape [factor, rows].
    """
    places = {}
    for name, part in db.table_dict.items():
        order = np.arange(len(part.df) * factor)
        if part.time_col is not None:
            order = np.argsort(np.tile(part.df[part.time_col].to_numpy(), factor), kind="stable")
        places[name] = np.empty(len(order), np.int64)
        places[name][order] = np.arange(len(order))
    places = {name: place.reshape(factor, -1) for name, place in places.items()}
    tables = {}
    for name, part in db.table_dict.items():
        here = places[name].ravel()
        frame = pd.DataFrame({part.pkey_col or "row": np.arange(len(here))})
        for column, parent in part.fkey_col_to_pkey_table.items():
            values = part.df[column].to_numpy(np.int64, na_value=-1)
            moved = np.empty(len(here), np.int64)
            moved[here] = np.where(values < 0, -1, places[parent][:, values]).ravel()
            frame[column] = pd.arrays.IntegerArray(moved, moved < 0)
        if part.time_col is not None:
            times = np.tile(part.df[part.time_col].to_numpy(), factor)
            frame[part.time_col] = np.sort(times, kind="stable")
        tables[name] = Table(frame, part.fkey_col_to_pkey_table, part.pkey_col, part.time_col)
    return Database(tables), places


def measure_reads(
    graph: RelationalGraph, table: str, rows: np.ndarray, times: Any, **how: Any
) -> dict[str, float]:
    """Cost of what a shuffled epoch reads, or its first batches, and of nothing else."""
    sampler = TemporalSampler(graph, table, how["fanouts"], how["mode"])
    loader = Loader(sampler, rows, times, how["batch"], workers=0)
    with reading.watched() as walks:
        seeds = sum(len(batch) for batch in islice(loader.epoch(0), how["batches"]))
    reads = [reading.reads_of(walk) for walk in walks]
    arrays = [getattr(graph, name) for name in reading.ARRAYS]
    reading.read_alone(*arrays, *reads[0])  # compiles it
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for one in reads:
            reading.read_alone(*arrays, *one)
        best = min(best, time.perf_counter() - began)
    return {
        "reads_per_seed": round(sum(len(one.elements) for one in reads) / seeds, 1),
        "reads_alone_us_per_seed": round(1e6 * best / seeds, 2),
    }


def growth(seconds: float) -> list[dict[str, Any]]:
    """Cost per seed as the database grows, beside that of its reads alone.

    Separate subgraphs only: fewer seeds of a batch have rows in common when they come from
    different copies, so sharing would measure the copies.

    The rows that a seed needs are the same in every copy, so a sampler's own work does not grow.
    What grows is how long the machine takes to read them once they do not fit into its caches:
    "reads_alone" measures that on the same arrays, at the same places, in the same order, and
    "added_us" says how many microseconds more than in the smallest database each takes.
    """
    results: list[dict[str, Any]] = []
    for name, task, neighbors, hops, batch, _ in SETTINGS[:2]:
        db, table, rows, times = load(name, task)
        smallest: dict[str, Any] = {}
        for factor in (1, 10, 100):
            larger, places = scaled(db, factor)
            began = time.perf_counter()
            graph = build_graph(larger)
            built = time.perf_counter() - began
            copies = np.random.default_rng(0).integers(0, factor, len(rows))
            seeds = places[table][copies, rows]
            how = {"fanouts": halving(neighbors, hops), "mode": "separate", "batch": batch}
            found = measure(graph, table, seeds, times, workers=1, seconds=seconds, **how)
            # Enough to read far more than a cache holds from a large graph.
            reads = measure_reads(graph, table, seeds, times, batches=20, **how)
            row = {
                "dataset": f"{name} x{factor}",
                "fanouts": halving(neighbors, hops),
                "rows": sum(graph.num_rows.values()),
                "us_per_seed": round(1e6 / found["seeds_per_s"], 1),
                "rows_per_seed": found["rows_per_seed"],
                "build_s": round(built, 2),
            }
            row |= reads
            smallest = smallest or row
            for cost in ("us_per_seed", "reads_alone_us_per_seed"):
                row[cost.replace("us_per_seed", "added_us")] = round(row[cost] - smallest[cost], 2)
            results.append(row)
            show(results[-1])
    return results


def build_large(rows: int = 10_000_000) -> list[dict[str, Any]]:
    """A table with two foreign keys: time to build, save and open, and memory."""
    results = []
    rng = np.random.default_rng(0)
    for in_order in (True, False):
        seconds = rng.integers(0, 10**9, rows)
        if in_order:
            seconds.sort()
        facts = pd.DataFrame(
            {
                "customer": pd.array(rng.integers(0, 1_000_000, rows), dtype="Int64"),
                "product": pd.array(rng.integers(0, 100_000, rows), dtype="Int64"),
                "when": seconds.astype("datetime64[s]"),
            }
        )
        keys = {"customer": "customers", "product": "products"}
        db = Database(
            {
                "facts": Table(facts, keys, None, "when"),
                "customers": Table(pd.DataFrame({"id": np.arange(1_000_000)}), {}, "id"),
                "products": Table(pd.DataFrame({"id": np.arange(100_000)}), {}, "id"),
            }
        )
        began = time.perf_counter()
        graph = build_graph(db)
        built = time.perf_counter() - began
        with tempfile.TemporaryDirectory() as folder:
            graph.save(folder)
            began = time.perf_counter()
            open_graph(folder)
            opened = time.perf_counter() - began
        allowed = 16 * 2 * rows + 8 * sum(graph.num_rows.values())
        results.append(
            {
                "rows": rows,
                "foreign_keys": 2,
                "rows_in_time_order": in_order,
                "build_s": round(built, 2),
                "open_ms": round(1e3 * opened, 1),
                "bytes": graph.nbytes,
                "bytes_allowed": allowed,
                "bytes_per_fact": round(graph.nbytes / rows, 1),
            }
        )
        show(results[-1])
    return results


START_UP = """
import time, numpy as np, pandas as pd
from relbench.base import Database, Table
began = time.perf_counter()
from relfrog.graph.relational import build_graph
from relfrog.graph.sampler import TemporalSampler
imported = time.perf_counter()
times = pd.to_datetime(["2020-01-01"] * 3)
child = pd.DataFrame({"p": [0, 0, 0], "t": times})
parent = Table(pd.DataFrame({"id": [0]}), {}, "id")
db = Database({"a": parent, "b": Table(child, {"p": "a"}, None, "t")})
TemporalSampler(build_graph(db), "a").sample([0], times[:1])
print(imported - began, time.perf_counter() - imported)
"""


def start_up() -> dict[str, float]:
    """First batch of a new installation, and of every process after it."""
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("compile", "from_cache"):
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            done = subprocess.run(
                [sys.executable, "-c", START_UP],
                env=environment, capture_output=True, text=True, check=True,
            )  # fmt: skip
            imported, first = map(float, done.stdout.split())
            found[f"import_s_{name}"] = round(imported, 2)
            found[f"first_batch_s_{name}"] = round(first, 2)
    show(found)
    return found


def show(row: dict[str, Any]) -> None:
    print("  ".join(f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
                    for name, value in row.items()), flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    parser.add_argument("--growth", action="store_true", help="measure growth alone")
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement (default 2)")
    arguments = parser.parse_args()
    if not DATA.is_dir():
        sys.exit("needs the databases in ../shared/data")
    if arguments.growth:
        if arguments.out:
            parser.error("--growth is only printed: leave out --out")
        growth(arguments.seconds)
        return
    results = {
        "command": "python benchmarks/sampling.py --out benchmarks/sampling.json",
        "machine": {
            "cores": os.cpu_count(),
            "busy_before": round(os.getloadavg()[0], 1),
            "platform": platform.machine(),
            "python": platform.python_version(),
        },
        "build": build_large(),
        "start_up": start_up(),
        "sampling": sample_databases(arguments.seconds),
        "growth": growth(arguments.seconds),
        "pyg_lib": "beside ours" if importlib.util.find_spec("pyg_lib") else "not installed",
    }
    results["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
