"""What several workers cost and bring in training, measured on one machine, and what limits more.

    python benchmarks/paper_databases.py rel-hm data/rel-hm --scale 0.05
    python benchmarks/cluster.py --on ../shared/data/rel-f1:driver-dnf data/rel-hm:user-churn

Every case is trained for some steps: by one process without workers, which samples in other
threads, or by 1 or 2 workers, each a process that computes on one thread and samples in others, in
a network namespace of its own where the system allows it: the bytes on its wire are theirs alone.
No process is bound to a core, as `relfrog train` binds none; with `--pin` each of several workers
is, which on a machine with other work leaves it where the other work is. Steps are measured in
blocks, and the fastest block of all `--rounds` counts, with `--more` also of earlier calls. On a
busy machine seconds say little; those of the processor are there, too.

`pieces` is the work on a worker's shards, `rest` what all workers repeat (clipping, the optimizer),
`sum` the all-reduce, `beside` sampling and copying in other threads. A model of these parts, fitted
to one worker alone, predicts two; then 8, 64 and 512. What the clock has beyond that is told apart:
`waits` is for the other worker, in the sums of a step, and `uneven` the part of it that is there
because one of them had more to compute in that step.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
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

from cluster_model import BATCH, NETWORKS, modelled
from measuring import machine

#: Steps of a block, blocks that are measured, and steps before.
STEPS, BLOCKS, WARM = 6, 3, 2
#: Workers and shards that are measured: 0 for a whole batch, without workers. Sizes of sums, in
#: numbers of 8 bytes.
CASES = [(1, 0), (1, 2), (2, 2), (1, 4), (2, 4), (1, 8), (2, 8)]
SIZES = [1 << n for n in (10, 14, 17, 20, 22)]

#: Tells workers of `--short`.
SHORT = "CLUSTER_SHORT"


def shorten() -> None:
    """Measure two steps of four cases, and sums of two sizes, in this process and its workers."""
    global STEPS, BLOCKS, WARM
    STEPS, BLOCKS, WARM = 2, 1, 1
    CASES[:], SIZES[:] = CASES[:4], SIZES[:2]
    os.environ[SHORT] = "yes"


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


class Enough(Exception):
    """The steps are over."""


class Clock:
    """What a worker's steps have taken by the end of each."""

    def __init__(self) -> None:
        self.steps = self.pieces = self.sum = self.waits = 0.0
        self.marks: list[list[float]] = []

    def mark(self) -> None:
        """A step is over."""
        now = [time.process_time(), time.perf_counter(), bytes_sent()]
        self.marks.append([*now, self.steps, self.pieces, self.sum, self.waits])
        if len(self.marks) == WARM + STEPS * BLOCKS:
            raise Enough

    def fastest(self) -> dict[str, float]:
        """The block of steps that took the least time, per step."""
        ends = self.marks[WARM - 1 :: STEPS]
        blocks = [
            [(last - first) / STEPS for first, last in zip(*pair, strict=True)]
            for pair in itertools.pairwise(ends)
        ]
        cpu, wall, sent, steps, pieces, added, waits = min(blocks, key=lambda block: block[1])
        return {
            "cpu_ms": 1e3 * cpu, "wall_ms": 1e3 * wall, "pieces_ms": 1e3 * pieces,
            "sum_ms": 1e3 * added, "rest_ms": 1e3 * (steps - pieces - added),
            "beside_ms": 1e3 * (cpu - steps), "waits_ms": 1e3 * waits, "namespace_bytes": sent,
        }  # fmt: skip

    def work(self) -> list[float]:
        """Milliseconds of the processor on the pieces of each step that is measured."""
        pieces = [mark[4] for mark in self.marks[WARM - 1 :]]
        return [1e3 * (last - first) for first, last in itertools.pairwise(pieces)]


def timed(kind: type[Any], clock: Clock) -> type[Any]:
    """A trainer that looks at the clock of its thread."""

    class Timed(kind):  # type: ignore[misc]
        def train_step(self, plans: Any) -> float:
            start = time.thread_time()
            loss: float = super().train_step(plans)
            clock.steps += time.thread_time() - start
            clock.mark()
            return loss

        def _add_piece(self, piece: Any, totals: Any) -> None:
            start = time.thread_time()
            super()._add_piece(piece, totals)
            clock.pieces += time.thread_time() - start

    return Timed


def train_worker(rank: int, size: int, folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    """Train for some steps, and say what they took."""
    from relfrog.config import resolve
    from relfrog.support.threads import thread_limit
    from relfrog.training.opened_task import open_task
    from relfrog.training.sharded_trainer import ShardedTrainer
    from relfrog.training.trainer import Trainer

    clock, collective = Clock(), join(rank, size, folder)
    add = collective.add

    def timed_add(values: Any) -> None:
        start, begun = time.thread_time(), time.perf_counter()
        add(values)
        took = time.thread_time() - start
        clock.sum += took
        clock.waits += time.perf_counter() - begun - took

    collective.add = timed_add
    shards = max(case["shards"], 1)
    settings = {"model": "frog", "shards": shards, "batch_size": BATCH, "seed": 0}
    opened = open_task(case["dataset"], case["task"], **settings)
    config = resolve(len(opened.seeds("train")), settings=settings, kind=opened.kind)
    prepared = opened.prepare(replace(config, loss="l1"))
    kind, more = (ShardedTrainer, {"collective": collective}) if case["shards"] else (Trainer, {})
    trainer = timed(kind, clock)(prepared, folder, **more)
    with thread_limit(1), contextlib.suppress(Enough):
        for trainer.at.epoch in itertools.count():
            trainer.at.step = 0
            for plans in trainer.batches(trainer.loader):
                trainer.train_step(plans)
                trainer.at.step += 1
    payload = trainer.sum.values.numel() * 8 if case["shards"] else 0
    about = {"payload_bytes": payload, "channels": config.channels}
    return {**clock.fastest(), **about, "work": clock.work()}


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
                [*core(case, rank), sys.executable, __file__, "--rank", str(rank), "--folder",
                 folder, "--case", json.dumps(case)], stdout=subprocess.PIPE,
            )
            for rank in range(case["workers"])
        ]  # fmt: skip
        said = [worker.communicate()[0] for worker in workers]
    print(json.dumps([json.loads(text.splitlines()[-1]) for text in said]))


def core(case: dict[str, Any], rank: int) -> list[str]:
    """What binds a worker to a core of its own, if that was asked for; who is alone has all."""
    if not case.get("pin") or case["workers"] == 1:
        return []
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(cores[rank % len(cores)])]


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


def mean(workers: list[dict[str, Any]]) -> dict[str, float]:
    """The mean of the workers, and what the one with more to do in a step has beyond it."""
    work = np.array([w.pop("work") for w in workers])
    found = {name: float(np.mean([w[name] for w in workers])) for name in workers[0]}
    return found | {"uneven_ms": float((work.max(0) - work.mean(0)).mean())}


def measured(
    place: str, rounds: int, pin: bool, before: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """All cases on one database, given as FOLDER:TASK: one after the other, in several rounds.

    Args:
        place: the database and the task.
        rounds: how many rounds.
        pin: whether each of several workers is bound to a core.
        before: databases of earlier rounds.
    """
    folder, _, task = place.rpartition(":")
    about = {"what": "train", "dataset": str(Path(folder).resolve()), "task": task}
    run({**about, "workers": 1, "shards": 2})  # prepares the data, and compiles
    fastest: dict[tuple[int, int], dict[str, Any]] = {
        (case["workers"], case["shards"]): case
        for database in before or ()
        if (database["name"], database["task"]) == (Path(folder).name, task)
        for case in database["cases"]
    }
    for _ in range(rounds):
        for workers, shards in CASES:
            case = {**about, "workers": workers, "shards": shards, "pin": pin}
            each = run(case)
            found = {"workers": workers, "shards": shards, "own_network": case["own_network"],
                     "mean": mean(each), "each": each}  # fmt: skip
            print(place, workers, shards, found["mean"], file=sys.stderr)
            before = fastest.setdefault((workers, shards), found)
            if found["mean"]["wall_ms"] < before["mean"]["wall_ms"]:
                fastest[workers, shards] = found
    return {"name": Path(folder).name, "task": task, "cases": list(fastest.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", nargs="+", default=["../shared/data/rel-f1:driver-dnf"])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--model", action="store_true", help="only model what is in --out again")
    parser.add_argument("--rounds", type=int, default=1, help="how often all cases are measured")
    parser.add_argument("--more", action="store_true", help="add rounds to those that are in --out")
    parser.add_argument("--pin", action="store_true", help="bind each of two workers to a core")
    parser.add_argument("--short", action="store_true", help="try it: few steps of few cases")
    parser.add_argument("--host", type=json.loads)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--case", type=json.loads)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if given.short or os.environ.get(SHORT):
        shorten()
    if given.host is not None:
        host(given.host)
        return
    if given.rank is not None:
        work = sum_worker if given.case["what"] == "sum" else train_worker
        print(json.dumps(work(given.rank, given.case["workers"], given.folder, given.case)))
        sys.stdout.flush()
        os._exit(0)  # a group whose members have left may take its time
    if given.model:
        result = json.loads(given.out.read_text())
    else:
        about = machine()  # the load before this adds to it
        before = json.loads(given.out.read_text()) if given.more else {}
        result = {
            "machine": about, "steps": STEPS, "blocks": BLOCKS, "batch_size": BATCH,
            "rounds": given.rounds + before.get("rounds", 0), "pinned": given.pin,
            "databases": [
                measured(place, given.rounds, given.pin, before.get("databases"))
                for place in given.on
            ],
            "sums": run({"what": "sum", "workers": 2})[0], "networks": NETWORKS,
        }  # fmt: skip
    for database in result["databases"]:
        database |= modelled(database)
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
