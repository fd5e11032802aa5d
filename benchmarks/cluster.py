"""What several workers cost and bring in training, measured on one machine, and what limits more.

    python benchmarks/cluster.py --dataset ../shared/data/rel-f1 --task driver-dnf

Every case is trained for some steps by 1 or 2 workers, each a process with one thread, in a network
namespace of its own where the system allows it: the bytes on its wire are theirs alone. On a
busy machine seconds say little: compared are seconds of the processor, per worker and step.

`pieces` is the work on a worker's shards, `rest` what all workers repeat (clipping, the optimizer),
`sum` the all-reduce, `beside` sampling and copying in other threads. A model of these parts, fitted
to one worker alone, predicts two; then 8, 64 and 512.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from measuring import machine

#: Steps that are measured after some that are not.
STEPS, WARM = 10, 2
#: Workers and shards that are measured, and sizes of sums, in numbers of 8 bytes.
CASES = [(1, 2), (1, 8), (2, 8), (1, 16), (2, 16)]
SIZES = [1 << n for n in (10, 14, 17, 20, 22)]
#: Networks of the prediction: gigabits per second, and seconds per message.
NETWORKS = {"10 Gbit/s": (10.0, 50e-6), "100 Gbit/s": (100.0, 10e-6)}


# In a worker.


def bytes_sent() -> int:
    """Bytes that went out over the loopback device of this network namespace."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    return 0


def join(rank: int, size: int, folder: Path) -> Any:
    """The group of workers."""
    import torch.distributed as dist

    from relfrog.cluster.torch_collective import TorchCollective
    from relfrog.training.collective import Collective

    if size == 1:
        return Collective()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(str(folder / "meeting"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    return TorchCollective()


def train_worker(rank: int, size: int, folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    """Train for some steps, and say what they took."""
    from relfrog.cluster.team import Follower, TrainingJob
    from relfrog.config import resolve
    from relfrog.training.opened_task import open_task
    from relfrog.training.sharded_trainer import ShardedTrainer

    class Enough(Exception):
        """The steps are over."""

    marks: list[tuple[float, ...]] = []
    spent = {"pieces": 0.0, "sum": 0.0, "steps": 0.0, "bytes": 0.0}

    class Timed(ShardedTrainer):
        """Looks at the clock of its thread."""

        def train_step(self, plans: Any) -> float:
            start = time.thread_time()
            loss = super().train_step(plans)
            spent["steps"] += time.thread_time() - start
            spent["bytes"] = self.sum.values.numel() * self.sum.values.element_size()
            now = (time.process_time(), time.perf_counter(), bytes_sent())
            marks.append((*now, spent["steps"], spent["pieces"], spent["sum"]))
            if len(marks) == WARM + STEPS:
                raise Enough
            return loss

        def _add_piece(self, piece: Any, totals: Any) -> None:
            start = time.thread_time()
            super()._add_piece(piece, totals)
            spent["pieces"] += time.thread_time() - start

    collective = join(rank, size, folder)
    add = collective.add

    def timed_add(values: Any) -> None:
        start = time.thread_time()
        add(values)
        spent["sum"] += time.thread_time() - start

    collective.add = timed_add
    settings = {
        "model": "frog", "shards": case["shards"], "epochs": 9, "steps_per_epoch": WARM + STEPS,
        "batch_size": 512, "seed": 0,
    }  # fmt: skip
    opened = open_task(case["dataset"], case["task"], **settings)
    config = resolve(len(opened.seeds("train")), size="small", settings=settings, kind=opened.kind)
    config = replace(config, loss="l1")
    prepared = opened.prepare(config)
    assert prepared.train_seeds is not None
    labels = prepared.describe_labels(prepared.train_seeds)
    job = TrainingJob(case["dataset"], case["task"], config, labels)
    trainer = Follower(collective, rank, folder).trainer(job, Timed)
    try:
        trainer.fit()
    except Enough:
        pass
    cpu, wall, sent, steps, pieces, added = (
        (last - first) / STEPS for first, last in zip(marks[WARM - 1], marks[-1], strict=True)
    )
    return {
        "cpu_ms": 1e3 * cpu, "wall_ms": 1e3 * wall, "pieces_ms": 1e3 * pieces,
        "sum_ms": 1e3 * added, "rest_ms": 1e3 * (steps - pieces - added),
        "beside_ms": 1e3 * (cpu - steps), "namespace_bytes": sent, "payload_bytes": spent["bytes"],
    }  # fmt: skip


def sum_worker(rank: int, size: int, folder: Path, case: dict[str, Any]) -> list[dict[str, Any]]:
    """Sums alone, of several sizes."""
    import torch

    collective, found = join(rank, size, folder), []
    for count in SIZES:
        values = torch.ones(count, dtype=torch.float64)
        for _ in range(3):
            collective.add(values)
        start, cpu, sent = time.perf_counter(), time.process_time(), bytes_sent()
        repeats = 20
        walls = []
        for _ in range(repeats):
            begun = time.perf_counter()
            collective.add(values)
            walls.append(time.perf_counter() - begun)
        found.append(
            {"bytes": 8 * count, "wall_ms": 1e3 * (time.perf_counter() - start) / repeats,
             "fastest_ms": 1e3 * min(walls), "cpu_ms": 1e3 * (time.process_time() - cpu) / repeats,
             "namespace_bytes": (bytes_sent() - sent) / repeats}
        )  # fmt: skip
    return found


# Around the workers.


def host(case: dict[str, Any]) -> None:
    """Start the workers of a case, and print what they say."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False, capture_output=True)
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", str(rank), "--folder", folder, "--case",
                 json.dumps(case)], stdout=subprocess.PIPE,
            )
            for rank in range(case["workers"])
        ]  # fmt: skip
        said = [worker.communicate()[0] for worker in workers]
    print(json.dumps([json.loads(text.splitlines()[-1]) for text in said]))


def run(case: dict[str, Any]) -> list[Any]:
    """Run a case where nobody else uses the network."""
    command = [sys.executable, __file__, "--host", json.dumps(case)]
    alone = subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True)
    case["own_network"] = alone.returncode == 0
    if case["own_network"]:
        command = ["unshare", "-n", *command]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# The model.


def ring_bytes(payload: float, workers: int) -> float:
    """What a worker sends in a ring all-reduce."""
    return 2 * (workers - 1) / workers * payload


def fitted(cases: list[dict[str, Any]]) -> dict[str, float]:
    """The parts of a step, from one worker alone: work on a batch, on each shard, and the rest."""
    alone = [case for case in cases if case["workers"] == 1]
    shards = np.array([case["shards"] for case in alone], float)
    work = np.array([case["mean"]["pieces_ms"] + case["mean"]["beside_ms"] for case in alone])
    design = np.stack([np.ones_like(shards), shards], 1)
    batch, shard = np.linalg.lstsq(design, work, rcond=None)[0]
    rest = float(np.mean([case["mean"]["rest_ms"] for case in alone]))
    return {"batch_ms": float(batch), "shard_ms": float(shard), "rest_ms": rest}


def predicted(parts: dict[str, float], workers: int, shards: int) -> float:
    """Milliseconds of the processor per worker and step, without the sum."""
    mine = -(-shards // workers)  # of the worker that has most
    return parts["rest_ms"] + mine * (parts["batch_ms"] / shards + parts["shard_ms"])


def forecast(parts: dict[str, float], payload: float) -> list[dict[str, Any]]:
    """Steps of more workers than there are here, on networks that there are elsewhere."""
    found = []
    for workers in (1, 8, 64, 512):
        shards = max(8, workers)
        mine = -(-shards // workers)
        for name, (gigabits, latency) in NETWORKS.items():
            times = {
                "seeds_ms": mine * parts["batch_ms"] / shards, "shard_ms": mine * parts["shard_ms"],
                "rest_ms": parts["rest_ms"],
                "wire_ms": 1e3 * ring_bytes(payload, workers) * 8 / (gigabits * 1e9),
                "latency_ms": 1e3 * 2 * (workers - 1) * latency,
            }  # fmt: skip
            limit = max(times, key=lambda part: times[part]).removesuffix("_ms")
            about = {"workers": workers, "shards": shards, "network": name}
            found.append({**about, **times, "step_ms": sum(times.values()), "limit": limit})
    few = predicted(parts, 1, 2)  # one worker that need not cut its batch into eight
    for entry in found:
        first = next(e for e in found if e["workers"] == 1 and e["network"] == entry["network"])
        entry["speedup"] = first["step_ms"] / entry["step_ms"]
        entry["speedup_of_two_shards"] = few / entry["step_ms"]
    return found


def modelled(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The model, how it fits what was measured, and what it says of more."""
    parts = fitted(cases)
    payload = cases[0]["mean"]["payload_bytes"]
    checked = [
        {"workers": c["workers"], "shards": c["shards"],
         "measured_ms": c["mean"]["pieces_ms"] + c["mean"]["beside_ms"] + c["mean"]["rest_ms"],
         "predicted_ms": predicted(parts, c["workers"], c["shards"]),
         "bytes_per_worker": c["mean"]["namespace_bytes"] / c["workers"],
         "ring_bytes": ring_bytes(payload, c["workers"]), "sum_ms": c["mean"]["sum_ms"]}
        for c in cases
    ]  # fmt: skip
    return {"parts": parts, "checked": checked, "forecast": forecast(parts, payload),
            "networks": NETWORKS}  # fmt: skip


def mean(workers: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([w[name] for w in workers])) for name in workers[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="../shared/data/rel-f1")
    parser.add_argument("--task", default="driver-dnf")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--model", action="store_true", help="only model what is in --out again")
    parser.add_argument("--host", type=json.loads)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--case", type=json.loads)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if given.host is not None:
        host(given.host)
        return
    if given.rank is not None:
        work = sum_worker if given.case["what"] == "sum" else train_worker
        print(json.dumps(work(given.rank, given.case["workers"], given.folder, given.case)))
        sys.stdout.flush()
        os._exit(0)  # a group whose members have left may take its time
    if given.model:
        known = json.loads(given.out.read_text())
        given.out.write_text(json.dumps(known | modelled(known["cases"]), indent=1) + "\n")
        return
    dataset = str(Path(given.dataset).resolve())
    about = {"what": "train", "dataset": dataset, "task": given.task}
    run({**about, "workers": 1, "shards": 2})  # prepares the data, and compiles
    cases = []
    for workers, shards in CASES:
        case = {**about, "workers": workers, "shards": shards}
        each = run(case)
        cases.append({"workers": workers, "shards": shards, "own_network": case["own_network"],
                      "mean": mean(each), "each": each})  # fmt: skip
        print(workers, shards, cases[-1]["mean"], file=sys.stderr)
    sums = run({"what": "sum", "workers": 2})[0]
    result = {
        "machine": machine(), "dataset": Path(dataset).name, "task": given.task, "steps": STEPS,
        "batch_size": 512, "cases": cases, "sums": sums, **modelled(cases),
    }  # fmt: skip
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
