"""Predictions for every entity at one time: layer by layer, and in batches of sampled subgraphs.

    python benchmarks/everyone.py --rows 3.4e6 17e6 --before REF --out benchmarks/everyone.json
    python benchmarks/everyone.py --runs RUN ... --out benchmarks/everyone.json

With `--rows`, time and memory on databases like rel-hm (`paper_databases.py`): all customers at the
newest time, with a network of the default size, whose weights do not matter here. Batches are
predicted for `--sample` customers at most; with `--before` also by an earlier state of the code,
which knew no other way. With `--runs`, what the two ways are worth: the scores of trained runs.
What was measured before and is not measured again stays in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
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
from measuring import Worktree, machine
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


def peak() -> int:
    """The largest resident set of this process so far, in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


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


def speed(data: Path, sample: int, both: bool = True) -> dict[str, Any]:
    """Both ways on one database, or batches alone."""
    opened = open_task(str(data), "user-churn")
    settings = {"model": "frog"}
    prepared = opened.prepare(resolve(100_000, settings=settings, kind=opened.kind))
    torch.manual_seed(0)
    network = prepared.network(prepared.describe_labels(prepared.seeds("val"))).eval()
    newest = prepared.newest
    assert newest is not None
    count = prepared.graph.num_rows["customer"]

    def loader(rows: Any, alone: bool) -> Loader:
        times = pd.Series(np.repeat(newest.to_datetime64(), len(rows)))
        return prepared.loader(Seeds(rows, times), **({"alone": True} if alone else {}))

    everyone = np.arange(count)
    some = np.sort(np.random.default_rng(0).permutation(count)[:sample])
    with thread_limit(prepared.config.threads):
        few = everyone[:2000]  # compiles what is compiled at the first call
        predict_seeds(network, loader(few, False), prepared.features, CPU)
        found: dict[str, Any] = {"prepared_mb": peak()}
        if both:
            layerwise(network, loader(few, True), prepared.features)
            own = timed(
                lambda: layerwise(network, loader(everyone, True), prepared.features), count
            )
            found["layerwise"] = own | {"peak_mb": peak()}
        found["batches"] = timed(
            lambda: predict_seeds(network, loader(some, False), prepared.features, CPU), len(some)
        )
    return {"rows": sum(prepared.graph.num_rows.values()), "customers": count, **found}


def speed_before(data: Path, sample: int, reference: str) -> dict[str, Any]:
    """Batches by an earlier state of the code."""
    with Worktree(reference) as state:
        done = subprocess.run(
            [sys.executable, __file__, "--batches", str(data), "--sample", str(sample)],
            env={**os.environ, **state.environment}, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    return {"commit": state.commit, **found["batches"]}


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
    parser.add_argument("--batches", type=Path, help="a database: print what batches cost there")
    parser.add_argument("--runs", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    if arguments.batches is not None:
        print(json.dumps(speed(arguments.batches, arguments.sample, both=False)))
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
        entry = {
            "command": "python benchmarks/everyone.py --rows "
            f"{rows:g} --sample {arguments.sample}",
            "load": round(os.getloadavg()[0], 1), **speed(data, arguments.sample),
        }  # fmt: skip
        if arguments.before:
            entry["command"] += f" --before {arguments.before}"
            entry["before"] = speed_before(data, arguments.sample, arguments.before)
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
