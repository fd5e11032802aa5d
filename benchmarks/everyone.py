"""Predictions for every entity at one time: layer by layer, and in batches of sampled subgraphs.

    python benchmarks/everyone.py --rows 3.4e6 17e6 --before REF --out benchmarks/everyone.json
    python benchmarks/everyone.py --runs RUN ... --out benchmarks/everyone.json

With `--rows`, time and memory on databases like rel-hm (`paper_databases.py`): all customers at the
newest time, with a network of the default size, whose weights do not matter here. Batches are
predicted for `--sample` customers at most; with `--before` also by an earlier state of the code,
which knew no other way. Each way is measured in a process of its own. With `--runs`, what the two
ways are worth: the scores of trained runs. What was measured before and is not measured again stays
in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import relfrog
from measuring import Worktree, machine, measure
from paper_databases import read_schema, write
from relfrog.config import resolve
from relfrog.graph.loader import Loader
from relfrog.models.network_model import NetworkModel
from relfrog.nn.network import Network
from relfrog.support.threads import thread_limit
from relfrog.training.inference import predict_seeds
from relfrog.training.opened_task import open_task
from relfrog.training.seeds import Seeds

CPU = torch.device("cpu")


def timed(do: Callable[[], Any], seeds: int) -> dict[str, float]:
    """Seconds, seconds of the processor, and microseconds of it per seed."""
    start, cpu = time.perf_counter(), time.process_time()
    do()
    cpu = time.process_time() - cpu
    return {
        "seeds": seeds, "seconds": round(time.perf_counter() - start, 2),
        "cpu_seconds": round(cpu, 2), "cpu_us_per_seed": round(cpu / seeds * 1e6, 2),
    }  # fmt: skip


def layerwise(network: Network, loader: Loader, features: Any) -> Any:
    """Predict layer by layer."""
    from relfrog.training.layerwise import LayerwiseInference  # earlier states have none

    inference = LayerwiseInference(network, loader.sampler, features, CPU)
    return inference.predict(np.asarray(loader.rows), loader.times, loader.cutoffs)


def speed(data: Path, way: str, sample: int) -> dict[str, Any]:
    """One way on one database, in this process: "layerwise" for everybody, or in "batches"."""
    opened = open_task(str(data), "user-churn")
    settings = {"model": "frog"}
    prepared = opened.prepare(resolve(100_000, settings=settings, kind=opened.kind))
    torch.manual_seed(0)
    network = prepared.network(prepared.describe_labels(prepared.seeds("val"))).eval()
    newest = prepared.newest
    assert newest is not None
    count = prepared.graph.num_rows["customer"]

    def predict(rows: Any) -> Any:
        times = pd.Series(np.repeat(newest.to_datetime64(), len(rows)))
        if way == "layerwise":
            return layerwise(
                network, prepared.loader(Seeds(rows, times), alone=True), prepared.features
            )
        return predict_seeds(network, prepared.loader(Seeds(rows, times)), prepared.features, CPU)

    asked = np.arange(count)
    if way == "batches":
        asked = np.sort(np.random.default_rng(0).permutation(count)[:sample])
    with thread_limit(prepared.config.threads):
        predict(asked[:5000])  # compiles what is compiled at the first call
        found = timed(lambda: predict(asked), len(asked))
    return {"rows": sum(prepared.graph.num_rows.values()), "customers": count, **found}


def measured(data: Path, way: str, sample: int, cache: Path, state: Worktree) -> dict[str, Any]:
    """`speed` in a process of its own, which finds everything prepared, and its memory."""
    command = [sys.executable, __file__, "--way", way, str(data), "--sample", str(sample)]
    environment = {**state.environment, "RELFROG_CACHE": str(cache)}
    done = measure(command, environment)
    if "failed" in done:
        raise SystemExit(f"{way} at {state.commit}: {done['failed']}")
    found: dict[str, Any] = json.loads(done["output"].splitlines()[-1])
    return found | {name: done[name] for name in ("peak_mb", "private_mb")}


def both_ways(data: Path, sample: int, cache: Path, before: str | None) -> dict[str, Any]:
    """Both ways on one database, and batches by an earlier state of the code."""
    now = Worktree(None)
    # The first process prepares what the others find.
    measured(data, "batches", 5000, cache, now)
    found: dict[str, Any] = {"commit": now.commit}
    for way in ("layerwise", "batches"):
        own = measured(data, way, sample, cache, now)
        found |= {name: own.pop(name) for name in ("rows", "customers")}
        found[way] = own
    if before is not None:
        with Worktree(before) as state:
            own = measured(data, "batches", sample, cache / "before", state)
            del own["rows"], own["customers"]
            found["before"] = {"commit": state.commit} | own
    return found


def scores(folder: Path) -> dict[str, Any]:
    """Test scores of a run: in shared and in separate subgraphs, and layer by layer."""
    run = relfrog.load_run(folder)
    model = run.model
    assert isinstance(model, NetworkModel)
    seeds = model.prepared.seeds("test")
    found: dict[str, Any] = {}
    for regime in ("rolling", "frozen"):
        cutoff = model.prepared.cutoff("test", regime)
        for way in ("shared", "separate", "layerwise"):
            sharing = "shared" if way == "layerwise" else way
            ready = replace(model.prepared, config=replace(model.prepared.config, sharing=sharing))
            batches = ready.loader(seeds, cutoff=cutoff, alone=way == "layerwise")
            if way == "layerwise":
                predicted = layerwise(model.network, batches, model.features)
            else:
                predicted = predict_seeds(model.network, batches, model.features, CPU)
            metrics = model.metrics(seeds, model.postprocessing.apply(predicted))
            found.setdefault(regime, {})[way] = metrics[model.kind.metric]
    about = run.about
    name = f"{Path(about['dataset']).name} {about['task']}, seed {run.config.seed}"
    return {"run": name, "metric": model.kind.metric, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="*", default=[])
    parser.add_argument("--sample", type=int, default=300_000)
    parser.add_argument("--folder", type=Path, help="where databases are kept between runs")
    parser.add_argument("--before", help="a commit whose batches are measured, too")
    parser.add_argument("--way", nargs=2, metavar=("WAY", "DATA"), help="only this, here")
    parser.add_argument("--runs", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    if arguments.way is not None:
        way, data = arguments.way
        print(json.dumps(speed(Path(data), way, arguments.sample)))
        return
    kept: dict[str, Any] = {"speed": [], "scores": []}
    if arguments.out.exists():
        kept = json.loads(arguments.out.read_text(encoding="utf-8"))
    schema = read_schema("rel-hm")
    full = sum(schema.rows(table) for table in schema.tables)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="relfrog-everyone-"))
    for rows in arguments.rows:
        data = folder / f"rel-hm-{rows:.0f}"
        if not (data / "manifest.yaml").exists():
            write("rel-hm", data, rows / full)
        command = f"python benchmarks/everyone.py --rows {rows:g} --sample {arguments.sample}"
        if arguments.before:
            command += f" --before {arguments.before}"
        entry = {
            "command": command, "load": round(os.getloadavg()[0], 1),
            **both_ways(data, arguments.sample, folder / "cache", arguments.before),
        }  # fmt: skip
        print(json.dumps(entry), file=sys.stderr, flush=True)
        others = [one for one in kept["speed"] if one["customers"] != entry["customers"]]
        kept["speed"] = sorted([*others, entry], key=lambda one: one["rows"])
        _write(arguments.out, kept)
    for run in arguments.runs:
        entry = scores(run)
        print(json.dumps(entry), file=sys.stderr, flush=True)
        others = [one for one in kept["scores"] if one["run"] != entry["run"]]
        kept["scores"] = sorted([*others, entry], key=lambda one: one["run"])
        _write(arguments.out, kept)


def _write(out: Path, kept: dict[str, Any]) -> None:
    found = {"machine": machine(), **{name: kept[name] for name in ("speed", "scores")}}
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
