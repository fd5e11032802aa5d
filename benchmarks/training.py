"""How fast networks learn, beside the same network written plainly on PyTorch Geometric.

    python benchmarks/training.py --out benchmarks/training.json

Reads rel-f1 in ../shared/data. Every case has a process of its own, in which rounds of training
steps of ours come before rounds of the plain network (`plain_network.py`); a step is sampling, both
phases of the alternation and the optimisers. The profile goes to training_profile.json beside the
results.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

import relfrog
from relfrog.config import resolve
from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.tasks import load_task
from relfrog.graph.loader import Loader
from relfrog.graph.relational import build_graph
from relfrog.graph.sampler import TemporalSampler, halving
from relfrog.nn.dependency import Dependencies
from relfrog.training.opened_task import OpenedTask
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds
from relfrog.training.trainer import Trainer

DATA = Path(__file__).parents[1].parent / "shared" / "data"
DATASET = "rel-f1"


@dataclass(frozen=True)
class Case:
    """Something to train.

    Attributes:
        name: for people, and for `--cases`.
        task: of rel-f1.
        settings: those that differ from `relfrog train`.
        preset: where they come from, too.
        weights: the fewest channels, a multiple of 8, with which the network has so many weights.
    """

    name: str
    task: str
    settings: dict[str, Any] = field(default_factory=dict)
    preset: str | None = None
    weights: int = 0


#: Settings of RelBench's example: uniform neighbours, sums, nothing dropped, no label history.
EXAMPLE: dict[str, Any] = {
    "channels": 128, "layers": 2, "neighbors": 128, "hops": 2, "strategy": "uniform",
    "aggregation": "sum", "dropout": 0.0, "column_dropout": 0.0, "average": 0.0,
    "history": "off", "batch_size": 512,
}  # fmt: skip
SAGE = {**EXAMPLE, "model": "sage"}
CASES = [
    Case("paper", "driver-top3", preset="paper/rel-f1-driver-top3"),
    Case("sage", "driver-dnf", SAGE),
    Case("frog", "driver-dnf", EXAMPLE),
    Case("sage-0.7M", "driver-dnf", SAGE, weights=700_000),
    Case("sage-0.7M-1024", "driver-dnf", {**SAGE, "batch_size": 1024}, weights=700_000),
    Case("frog-0.7M", "driver-dnf", EXAMPLE, weights=700_000),
    Case("frog-0.7M-1024", "driver-dnf", {**EXAMPLE, "batch_size": 1024}, weights=700_000),
    Case("frog-3M", "driver-dnf", EXAMPLE, weights=3_000_000),
    Case("frog-3M-1024", "driver-dnf", {**EXAMPLE, "batch_size": 1024}, weights=3_000_000),
    Case("default-dnf", "driver-dnf"),
    Case("default-top3", "driver-top3"),
    Case("recommend", "driver-circuit-compete"),
    Case("recommend-paper", "driver-circuit-compete", {"ranking": "sampled"}),
]
#: Known figures of others, from other runs on two cores or from what they have published.
REFERENCES = [
    {"of": "the authors' released code, driver-top3, batch 64", "seeds_per_s": [1.2]},
    {"of": "RelBench's GraphSAGE example, driver-dnf, batch 512", "seeds_per_s": [180]},
    {
        "of": "Kumo Engine 1.0.0, driver-dnf, small plans (0.6 to 0.8 M weights)",
        "seeds_per_s": [1400, 1750],
    },
    {
        "of": "Kumo Engine 1.0.0, driver-dnf, large plans (3 to 13 M weights)",
        "seeds_per_s": [250, 650],
    },
]


# Preparing.


def prepare_case(case: Case, data: Path) -> Prepared:
    """The data of a case, with its settings."""
    dataset = open_dataset(data / DATASET)
    task = load_task(dataset, case.task)
    seeds = len(OpenedTask(task.dataset, task).seeds("train"))
    kind = task.task_type.value
    given = {"model": "frog", **case.settings}
    config = resolve(seeds, preset=case.preset, settings=given, kind=kind)
    prepared = OpenedTask(dataset, task).prepare(config)
    if not case.weights:
        return prepared
    sizes = ((c, weights(with_channels(prepared, c))) for c in range(8, 513, 8))
    return with_channels(prepared, next(c for c, size in sizes if size >= case.weights))


def with_channels(prepared: Prepared, channels: int) -> Prepared:
    return replace(prepared, config=replace(prepared.config, channels=channels))


def weights(prepared: Prepared) -> int:
    """Weights of the network, without those of the regulariser."""
    assert prepared.train_seeds is not None
    with torch.device("meta"):
        network = nn.ModuleList([prepared.network(prepared.describe_labels(prepared.train_seeds))])
    return number_of_weights(network)


def number_of_weights(module: nn.Module | None) -> int:
    return sum(p.numel() for p in module.parameters()) if module is not None else 0


def make_trainer(prepared: Prepared) -> Trainer:
    """A trainer that writes nothing."""
    return Trainer(prepared, Path(tempfile.gettempdir()), checkpoint_seconds=float("inf"))


# Measuring.


class Runner:
    """Takes training steps, one epoch after the other."""

    def __init__(self, step: Callable[[Any], float], epoch: Callable[[int], Iterator[Any]]) -> None:
        self.step = step
        self.batches = (batch for number in count() for batch in epoch(number))

    def run(self, steps: int) -> float:
        """Seeds per second over some steps."""
        began, seeds = time.perf_counter(), 0
        for _ in range(steps):
            batch = next(self.batches)
            self.step(batch)
            seeds += len(batch.batch)
        return seeds / (time.perf_counter() - began)


def run_case(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Both sides of a case, ours first."""
    from plain_network import PlainTrainer

    prepared = prepare_case(case, options.data)
    config = prepared.config
    trainer = make_trainer(prepared)
    row = {
        "case": case.name, "task": case.task, "model": config.model,
        "channels": config.channels, "layers": config.layers,
        "fanouts": trainer.loader.sampler.fanouts,
        "batch": config.batch_size, "aggregation": config.aggregation,
        "strategy": config.strategy, "history": config.history, "dropout": config.dropout,
        "weights": number_of_weights(trainer.network),
        "fd_weights": number_of_weights(trainer.dependencies),
        "rows_per_batch": rows_per_batch(trainer),
    }  # fmt: skip
    ours = Runner(trainer.train_step, trainer.loader.epoch)
    ours.run(options.warmup)
    speeds, plain_speeds = [ours.run(options.steps) for _ in range(options.rounds)], []
    row["peak_mb"] = peak_mb()
    if options.plain_steps:
        # Not in turns: once the plain network has used its gigabytes, memory comes more slowly to
        # both, and ours takes twice as long a step.
        other = PlainTrainer(trainer)
        plain = Runner(other.train_step, other.loader.epoch)
        plain.run(1)
        plain_speeds = [plain.run(options.plain_steps) for _ in range(options.rounds)]
    row["seeds_per_s"] = significant(statistics.median(speeds))
    row["rounds"] = [significant(speed) for speed in speeds]
    if plain_speeds:
        row["plain_seeds_per_s"] = significant(statistics.median(plain_speeds))
        row["plain_rounds"] = [significant(speed) for speed in plain_speeds]
        row["times_faster"] = significant(row["seeds_per_s"] / row["plain_seeds_per_s"])
        row["peak_mb_with_plain"] = peak_mb()
    return row


def rows_per_batch(trainer: Trainer) -> dict[str, int]:
    """Of one batch: rows that are sampled, that are needed, and that are encoded."""
    plan = next(trainer.loader.epoch(0))
    return {
        "sampled": sum(len(rows) for rows in plan.batch.tables.values()),
        "needed": sum(plan.sizes.values()),
        "distinct": sum(
            len(rows.index[: plan.sizes[name]].unique()) for name, rows in plan.batch.tables.items()
        ),
    }


def check(data: Path) -> dict[str, float]:
    """How far the plain network is from ours: relative differences on a batch of rel-f1."""
    from plain_network import differences, stir

    prepared = prepare_case(Case("check", "driver-dnf", EXAMPLE), data)
    seeds = prepared.train_seeds
    assert seeds is not None
    torch.manual_seed(0)
    network = prepared.network(prepared.describe_labels(seeds))
    stir(network)
    dependencies = Dependencies(prepared.graph.foreign_keys, prepared.config.channels)
    sampler = TemporalSampler(
        prepared.graph, prepared.task.entity_table, halving(128, 2), "separate",
        routes=prepared.routes,
    )  # fmt: skip
    chosen = np.arange(0, len(seeds), len(seeds) // 16)
    batch = sampler.sample(seeds.rows[chosen], seeds.times[chosen])
    found = differences(network, batch, prepared.features, dependencies)
    if max(found.values()) > 1e-4:
        sys.exit(f"the plain network computes something else: {found}")
    return {name: float(f"{value:.1e}") for name, value in found.items()}


# Growth.


def run_growth(factor: int, options: argparse.Namespace) -> dict[str, Any]:
    """Training on so many copies of the database.

    Twice: with the seeds of a batch all in one copy, where they share as many rows as in the
    original, and each anywhere, where they share fewer, as in a larger database.
    """
    from sampling import scaled

    prepared = prepare_case(next(case for case in CASES if case.name == "frog"), options.data)
    seeds, table = prepared.train_seeds, prepared.task.entity_table
    assert seeds is not None
    larger, places = scaled(prepared.dataset.get_db(upto_test_timestamp=False), factor)
    graph = build_graph(larger)
    features = {}
    for name, own in prepared.features.items():
        copies = np.empty(places[name].size, np.int64)
        copies[places[name].ravel()] = np.tile(np.arange(len(own)), factor)
        chosen = torch.from_numpy(copies)
        assert own.bag_offsets is None
        features[name] = replace(
            own, dense=own.dense[chosen], codes=own.codes[chosen], moments=own.moments[chosen]
        )
    del larger
    batch_of = np.empty(len(seeds), np.int64)
    for number, plan in enumerate(prepared.loader(seeds).epoch(0)):
        batch_of[plan.batch.seed_ids] = number
    prepared = replace(prepared, graph=graph, features=features)
    trainer = make_trainer(replace(prepared, train_seeds=seeds))
    rng = np.random.default_rng(0)

    def loader(copy: np.ndarray) -> Loader:
        return prepared.loader(Seeds(places[table][copy, seeds.rows], seeds.times, seeds.labels))

    def one_copy(_: int) -> Iterator[Any]:
        return loader(rng.integers(0, factor, batch_of.max() + 1)[batch_of]).epoch(0)

    def anywhere(number: int) -> Iterator[Any]:
        return loader(rng.integers(0, factor, len(seeds))).epoch(number)

    row: dict[str, Any] = {
        "dataset": f"{DATASET} x{factor}", "rows": sum(graph.num_rows.values()),
        "graph_mb": graph.nbytes // 2**20, "features_mb": megabytes(prepared),
    }  # fmt: skip
    for name, epoch in (("one_copy", one_copy), ("anywhere", anywhere)):
        runner = Runner(trainer.train_step, epoch)
        runner.run(options.warmup)
        speeds = [runner.run(options.steps) for _ in range(options.rounds)]
        row[f"ms_per_seed_{name}"] = significant(1e3 / statistics.median(speeds))
        runner.batches.close()
    row["peak_mb"] = peak_mb()
    return row


def run_seeds(factor: int, options: argparse.Namespace) -> dict[str, Any]:
    """Training on the same database with so many times its seeds: again some minutes later."""
    prepared = prepare_case(next(case for case in CASES if case.name == "frog"), options.data)
    seeds = prepared.train_seeds
    assert seeds is not None
    assert seeds.labels is not None
    again = np.tile(np.arange(len(seeds)), factor)
    minutes = pd.to_timedelta(np.repeat(np.arange(factor), len(seeds)), "min")
    times = seeds.times[again] + minutes
    more = Seeds(seeds.rows[again], times, seeds.labels[again])
    trainer = make_trainer(replace(prepared, train_seeds=more))
    runner = Runner(trainer.train_step, trainer.loader.epoch)
    runner.run(options.warmup)
    speeds = [runner.run(options.steps) for _ in range(options.rounds)]
    runner.batches.close()
    return {
        "dataset": DATASET, "seeds": len(more),
        "ms_per_seed": significant(1e3 / statistics.median(speeds)), "peak_mb": peak_mb(),
    }  # fmt: skip


def megabytes(prepared: Prepared) -> int:
    parts = [t for f in prepared.features.values() for t in (f.dense, f.codes, f.moments)]
    return sum(part.nbytes for part in parts) // 2**20


# The frame around it.


def peak_mb() -> int:
    """The largest resident set of this process so far."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) // 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (2**20 if sys.platform == "darwin" else 1024)


def significant(value: float) -> float:
    """Three digits that count."""
    rounded = float(f"{value:.3g}")
    return int(rounded) if rounded >= 100 else rounded


def in_process(part: str, name: str, argv: list[str]) -> Any:
    """Run a part in a process of its own."""
    command = [sys.executable, __file__, *argv, "--part", part, "--name", name]
    waiting = {"GOMP_SPINCOUNT": "100000"}  # as the command line has it
    env = {**waiting, **os.environ}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env)
    if done.returncode:
        print(f"{part} {name} failed (exit {done.returncode})", file=sys.stderr, flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def show(row: dict[str, Any]) -> None:
    print("  ".join(f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
                    for name, value in row.items()), flush=True)  # fmt: skip


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds rel-f1")
    parser.add_argument("--steps", type=int, default=10, help="of ours per round (default 10)")
    parser.add_argument("--plain-steps", type=int, default=2,
                        help="of the plain network per round, 0 for none (default 2)")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, help="whose median counts (default 3)")
    parser.add_argument("--warmup", type=int, default=3, help="steps before (default 3)")
    parser.add_argument("--cases", nargs="*", choices=[case.name for case in CASES],
                        default=[case.name for case in CASES], help="by default all")  # fmt: skip
    parser.add_argument("--factors", nargs="*", type=int, default=[1, 10, 100],
                        help="copies of the database (default 1 10 100)")  # fmt: skip
    parser.add_argument("--seed-factors", nargs="*", type=int, default=[1, 10, 100],
                        help="times the seeds, on one database (default 1 10 100)")  # fmt: skip
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1,
                        help="of PyTorch, on both sides (default: one per core)")  # fmt: skip
    parser.add_argument("--no-profile", action="store_true")
    parser.add_argument("--part", choices=["check", "case", "growth", "seeds", "profile"],
                        help=argparse.SUPPRESS)  # fmt: skip
    parser.add_argument("--name", default="", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def run_part(options: argparse.Namespace) -> Any:
    torch.set_num_threads(options.threads)
    if options.part == "check":
        return check(options.data)
    if options.part == "case":
        return run_case(next(case for case in CASES if case.name == options.name), options)
    if options.part == "growth":
        return run_growth(int(options.name), options)
    if options.part == "seeds":
        return run_seeds(int(options.name), options)
    from training_profile import profile

    prepared = prepare_case(next(case for case in CASES if case.name == options.name), options.data)
    return profile(make_trainer(prepared), options.warmup, options.steps)


def main() -> None:
    argv = sys.argv[1:]
    options = parse(argv)
    if not (options.data / DATASET).is_dir():
        sys.exit(f"needs {DATASET} in {options.data}: --data FOLDER")
    if options.part:
        print(json.dumps(run_part(options)))
        return
    results: dict[str, Any] = {
        "command": command(argv),
        "machine": {
            "cores": os.cpu_count(),
            "torch_threads": options.threads,
            "busy_before": round(os.getloadavg()[0], 1),
            "platform": platform.machine(),
        },
        "versions": {
            "relfrog": relfrog.__version__,
            "python": platform.python_version(),
            **{
                name: importlib.metadata.version(name)
                for name in ("torch", "torch-geometric", "numpy", "pyg-lib", "torch-scatter")
                if importlib.util.find_spec(name.replace("-", "_"))
            },
        },
        "references_not_of_this_run": REFERENCES,
    }
    results["check"] = in_process("check", "", argv)
    if results["check"] is None:
        sys.exit(1)
    show({"plain network and ours apart by at most": max(results["check"].values())})
    for part, kept, names in (
        ("case", "cases", options.cases),
        ("growth", "growth", options.factors),
        ("seeds", "seeds", options.seed_factors),
    ):
        results[kept] = []
        for name in names:
            row = in_process(part, str(name), argv)
            if row is not None:
                show(row)
                results[kept].append(row)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.no_profile:
        return
    found = in_process("profile", "frog", argv)
    if found is not None:
        print(found.pop("table"))
        print(found["next"], flush=True)
        if options.out:
            path = options.out.with_name("training_profile.json")
            about = {name: results[name] for name in ("command", "machine", "versions")}
            text = json.dumps({**about, "case": "frog", **found}, indent=1)
            path.write_text(text + "\n", encoding="utf-8")


def command(argv: list[str]) -> str:
    """What was typed, but for where the data are."""
    kept = list(argv)
    if "--data" in kept:
        at = kept.index("--data")
        del kept[at : at + 2]
    return shlex.join(["python", "benchmarks/training.py", *kept])


if __name__ == "__main__":
    main()
