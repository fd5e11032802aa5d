"""Tables of what several machines bring: `cluster.json`, `per_row.json` and `everyone.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: Assumed of a node, and of its way to the data: cores, bytes per second.
CORES, NETWORK = 32, 10e9 / 8
#: Values that a table of the arithmetic is made for.
ROWS = (1e9, 1e10, 1e11)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / name).read_text(encoding="utf-8"))
    return found


def cluster() -> str:
    """One and two workers, measured and by the model; then more, by the model."""
    found = _read("cluster.json")
    parts, first = found["parts"], found["checked"][0]
    payload = found["cases"][0]["mean"]["payload_bytes"]
    load = found["machine"]["load"][0]
    lines = [
        f"FROG on {found['dataset']} {found['task']}, a batch of {found['batch_size']} seeds per "
        f"step, on one machine with two cores (`{found['machine']['command']}`). It was busy (load "
        f"{load:g}), so these are milliseconds of the processor per worker and step, not of the "
        "clock. The model of a step is fitted to one worker alone: "
        f"{parts['batch_ms']:.0f} ms for the seeds and {parts['shard_ms']:.0f} ms per shard, both "
        f"divided over workers, and {parts['rest_ms']:.0f} ms that every worker repeats.",
        "",
        "| workers | shards | measured | by the model | all-reduce | bytes sent per worker | of a "
        "ring |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for one in found["checked"]:
        lines.append(
            f"| {one['workers']} | {one['shards']} | {one['measured_ms']:.0f} | "
            f"{one['predicted_ms']:.0f} | {one['sum_ms']:.1f} | "
            f"{_bytes(one['bytes_per_worker'])} | {_bytes(one['ring_bytes'])} |"
        )
    both = {(c["workers"], c["shards"]): c["measured_ms"] + c["sum_ms"] for c in found["checked"]}
    pairs = [
        f"{both[1, shards] / both[2, shards]:.2f} times with {shards} shards"
        for _, shards in both
        if (1, shards) in both and (2, shards) in both and (_, shards) == (1, shards)
    ]
    largest = found["sums"][-1]
    lines += [
        "",
        f"Two workers do a step with less of each one's processor: {', '.join(pairs)} (more than "
        "2 is the noise of a busy machine). The all-reduce adds up "
        f"{_bytes(payload)} of gradients in double precision; alone, it takes "
        f"{largest['cpu_ms'] / largest['bytes'] * 1e6:.1f} ms of the processor per MB. What costs "
        f"is cutting: with {first['shards']} shards a step of one worker takes "
        f"{both[1, first['shards']]:.0f} ms, with 8 it takes {both[1, 8]:.0f} ms. A shard has a "
        "price of its own: thousands of small operations for few rows, and rows that several "
        "seeds share are computed in each of their shards.",
        "",
        "More workers by the same model, with a core each and as many shards as workers (8 at "
        "least), a ring, and what a network is said to do. *Faster* is than one worker with 8 "
        "shards, and than one with 2:",
        "",
        "| workers | network | step | seeds | a shard's own | repeated | wire | latency | faster | "
        "limited by |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    words = {
        "seeds": "its seeds", "shard": "a shard's own cost", "rest": "what is repeated",
        "wire": "the wire", "latency": "latency",
    }  # fmt: skip
    for one in found["forecast"]:
        times = " | ".join(
            f"{one[name]:.1f}"
            for name in ("step_ms", "seeds_ms", "shard_ms", "rest_ms", "wire_ms", "latency_ms")
        )
        lines.append(
            f"| {one['workers']} | {one['network']} | {times} | {one['speedup']:.1f}, "
            f"{one['speedup_of_two_shards']:.1f} | {words[one['limit']]} |"
        )
    lines += [
        "",
        "So a batch of this size is worth a few workers, not many: at 8 the price of the one shard "
        "that each has left is most of a step, and neither more workers nor a faster network helps "
        "against it; at 512 a plain ring also waits for its thousand messages. Larger batches "
        "(`--set batch_size`) divide better, and trainings side by side (`experiment`, `tune`) "
        "divide without a loss.",
    ]
    return "\n".join(lines)


def billions() -> str:
    """From costs per row that were measured to databases that were not."""
    rows, everyone = _read("per_row.json"), _read("everyone.json")
    training = _read("cluster.json")
    each = rows["per_row"]
    predicted = everyone["speed"][-1]["layerwise"]["cpu_us_per_seed"]
    one = next(c for c in training["checked"] if (c["workers"], c["shards"]) == (1, 8))
    step = one["measured_ms"] / 1e3
    seeds = training["batch_size"] / step
    eight = next(one for one in training["forecast"] if one["workers"] == 8)
    together = training["batch_size"] / eight["step_ms"] * 1e3
    sizes = " and ".join(f"{case['rows'] / 1e6:.1f}" for case in rows["cases"])
    copied = rows["cases"][-1]
    per_gb = copied["copy_cpu_seconds"] / copied["copied_bytes"] * 1e9
    lines = [
        f"Measured between {sizes} million rows of a database like rel-hm "
        f"(`{rows['machine']['command']}`): {each['database_bytes']:.0f} bytes of Parquet and "
        f"{each['store_bytes']:.0f} bytes prepared per row, and "
        f"{each['prepare_cpu_seconds'] * 1e6:.1f} µs of the processor to prepare one; "
        f"{per_gb:.1f} s to copy and verify a GB. Predictions for everybody take "
        f"{predicted:.0f} µs per entity ([benchmarks](benchmarks.md)), and a core trains on "
        f"{seeds:,.0f} seeds per second (above, 8 shards). Multiplied, on nodes of {CORES} cores "
        "with 10 Gbit/s, one entity per 15 rows:",
        "",
        "| | 1 billion rows | 10 billion | 100 billion |",
        "|---|--:|--:|--:|",
    ]
    entities = [count / 15 for count in ROWS]
    disk = [count * (each["database_bytes"] + each["store_bytes"]) for count in ROWS]
    table: list[tuple[str, list[str]]] = [
        ("on the disk of every node", [_bytes(size) for size in disk]),
        ("of it Parquet", [_bytes(count * each["database_bytes"]) for count in ROWS]),
        (
            "prepare, one process as today",
            [_time(count * each["prepare_cpu_seconds"]) for count in ROWS],
        ),
        (
            "prepare, divided over the cores of a node (not built)",
            [_time(count * each["prepare_cpu_seconds"] / CORES) for count in ROWS],
        ),
        ("copy to a node", [_time(size / NETWORK) for size in disk]),
        ("verify the copy, one process", [_time(size / 1e9 * per_gb) for size in disk]),
        (
            "predict for every entity, 1 node",
            [_time(count * predicted / 1e6 / CORES) for count in entities],
        ),
        (
            "predict for every entity, 16 nodes",
            [_time(count * predicted / 1e6 / CORES / 16) for count in entities],
        ),
        ("seeds per second in training, 8 workers", [f"{together:,.0f}"] * 3),
    ]
    lines += [f"| {what} | {' | '.join(cells)} |" for what, cells in table]
    lines += [
        "",
        "Rows of that database are narrow: a few numbers and keys. Wide rows and text take more. "
        "Seeds per second do not depend on the number of rows as long as what is "
        "sampled is in memory; once it is not, rows are reads from a disk, and its reads per "
        "second are the limit. All of this is multiplication, not measurement: the largest "
        "database that was predicted for here has 20 million rows.",
    ]
    return "\n".join(lines)


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "bytes" else f"{count:.0f} bytes"
        count /= 1000
    return f"{count:,.3g} TB"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86_400:,.0f} days"
