"""What a step of workers is made of, fitted to one worker alone, and what that says of many."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

#: Seeds of a batch, and of a shard where the batch grows with the workers.
BATCH, SEEDS = 512, 256
#: Networks of the prediction: gigabits per second, and seconds per message.
NETWORKS = {"10 Gbit/s": (10.0, 50e-6), "100 Gbit/s": (100.0, 10e-6)}


def ring_bytes(payload: float, workers: int) -> float:
    """What a worker sends in a ring all-reduce."""
    return 2 * (workers - 1) / workers * payload


def fitted(cases: list[dict[str, Any]]) -> dict[str, float]:
    """The parts of a step, from one worker alone: work on a batch, on each shard, and the rest."""
    alone = [case for case in cases if case["workers"] == 1 and case["shards"]]
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


def forecast(parts: dict[str, float], payload: float, whole: float) -> list[dict[str, Any]]:
    """Steps of more workers than there are here, on networks that there are elsewhere.

    A batch of one size is cut into as many shards as there are workers; or it grows with them, by
    the seeds of a shard.

    Args:
        parts: of a step.
        payload: bytes that are added up.
        whole: milliseconds of a step of one process without workers, which samples on other cores.
    """
    found = []
    for workers, grows in itertools.product((2, 8, 64, 512), (False, True)):
        times_larger = workers * SEEDS / BATCH if grows else 1.0
        if grows and times_larger == 1.0:
            continue
        for name, (gigabits, latency) in NETWORKS.items():
            times = {
                "seeds_ms": parts["batch_ms"] * times_larger / workers,
                "shard_ms": parts["shard_ms"], "rest_ms": parts["rest_ms"],
                "wire_ms": 1e3 * ring_bytes(payload, workers) * 8 / (gigabits * 1e9),
                "latency_ms": 1e3 * 2 * (workers - 1) * latency,
            }  # fmt: skip
            limit = max(times, key=lambda part: times[part]).removesuffix("_ms")
            step = sum(times.values())
            about = {"workers": workers, "batch": round(BATCH * times_larger), "network": name}
            faster = whole * times_larger / step
            found.append({**about, **times, "step_ms": step, "limit": limit, "faster": faster})
    return found


def modelled(database: dict[str, Any]) -> dict[str, Any]:
    """The model, how it fits what was measured, and what it says of more."""
    cases = database["cases"]
    parts = fitted(cases)
    whole = next(c["mean"] for c in cases if not c["shards"])
    payload = max(c["mean"]["payload_bytes"] for c in cases)
    checked = []
    for c in cases:
        mean, shards = c["mean"], c["shards"]
        about = {
            "workers": c["workers"], "shards": shards, "wall_ms": mean["wall_ms"],
            "cpu_ms": mean["cpu_ms"], "faster": whole["wall_ms"] / mean["wall_ms"],
            "faster_cpu": whole["cpu_ms"] / mean["cpu_ms"],
        }  # fmt: skip
        if shards:
            about |= {
                "work_ms": mean["pieces_ms"] + mean["beside_ms"] + mean["rest_ms"],
                "predicted_ms": predicted(parts, c["workers"], shards),
                "bytes_per_worker": mean["namespace_bytes"] / c["workers"],
                "ring_bytes": ring_bytes(payload, c["workers"]), "sum_ms": mean["sum_ms"],
            }  # fmt: skip
        checked.append(about)
    ahead = forecast(parts, payload, whole["rest_ms"])
    return {"parts": parts, "checked": checked, "forecast": ahead}
