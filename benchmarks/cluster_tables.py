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


#: Parts of a step, as the table calls them.
PARTS = {
    "seeds": "its seeds", "shard": "a shard's own cost", "rest": "what is repeated",
    "wire": "the wire", "latency": "latency",
}  # fmt: skip


def cluster() -> str:
    """One and two workers, measured and by the model; then more, by the model."""
    found = _read("cluster.json")
    about, largest = found["machine"], found["sums"][-1]
    lines = [
        f"FROG with its default settings, batches of {found['batch_size']} seeds, on one machine "
        f"with two cores (`{about['command']}`). Milliseconds per step, of the clock and of each "
        f"worker's processor: the fastest of {found['blocks']} blocks of {found['steps']} steps in "
        f"{found.get('rounds', 1)} rounds. "
        "*No workers* is one process with whole batches, which samples on the other core; *faster* "
        "is than that. The model of the processor is fitted to one worker alone."
        f"{_busy(about['load'][0])}",
        "",
        "| | workers | shards | clock | faster | processor | faster | by the model | "
        "all-reduce | bytes sent, each | of a ring |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for database in found["databases"]:
        name = f"{database['name']} {database['task']}"
        lines += [_measured(name, one) for one in database["checked"]]
    lines += [""]
    for database in found["databases"]:
        lines += [_in_words(database), ""]
    lines += [
        _where_it_does_not_help(found["databases"]),
        "",
        "The all-reduce adds up gradients in double precision; alone, it takes "
        f"{largest['cpu_ms'] / largest['bytes'] * 1e6:.1f} ms of the processor per MB.",
        "",
    ]
    return "\n".join(lines + _forecast(found["databases"][0], found["batch_size"]))


def _where_it_does_not_help(databases: list[dict[str, Any]]) -> str:
    """When workers on one machine are no gain."""
    lost = [
        f"{one['shards']} shards on {database['name']}"
        for database in databases
        for one in database["checked"]
        if one["workers"] == 2 and one["faster_cpu"] < 1
    ]
    cut = f" With {' and '.join(lost)} two are slower than none." if lost else ""
    return (
        "On one machine workers gain where cores are idle, and only with large shards: a process "
        "without workers needs a second core for sampling alone, but two workers need all of "
        "both, and a database with many tables has many small operations per shard, whatever is "
        f"in it.{cut} A machine whose cores are busy, or one with a single core, gains nothing."
    )


def _busy(load: float) -> str:
    """What to think of the clock."""
    if load < 2:  # the mean of a minute, which remembers what was before
        return ""
    return (
        f" Others computed on the machine meanwhile (load {load:g}): their share of the two cores "
        "is in the clock, so believe the processor."
    )


def _measured(name: str, one: dict[str, Any]) -> str:
    """A row of the table of what was measured."""
    who = "no workers" if not one["shards"] else str(one["workers"])
    cells = [name, who, str(one["shards"] or "whole"), f"{one['wall_ms']:.0f}",
             f"{one['faster']:.2f}", f"{one['cpu_ms']:.0f}",
             f"{one['faster_cpu']:.2f}"]  # fmt: skip
    if one["shards"]:
        cells += [f"{one['predicted_ms']:.0f}", f"{one['sum_ms']:.1f}",
                  _bytes(one["bytes_per_worker"]), _bytes(one["ring_bytes"])]  # fmt: skip
    return f"| {' | '.join(cells + [''] * (11 - len(cells)))} |"


def _in_words(database: dict[str, Any]) -> str:
    """What the parts of a step are, and how well they say what two workers take."""
    parts = database["parts"]
    two = [c for c in database["checked"] if c["workers"] == 2]
    off = max(abs(c["work_ms"] / c["predicted_ms"] - 1) for c in two)
    return (
        f"- {database['name']}: {parts['batch_ms']:.0f} ms for the seeds of a batch and "
        f"{parts['shard_ms']:.0f} ms per shard, both divided over workers, and "
        f"{parts['rest_ms']:.0f} ms that every worker repeats. What two workers took of the "
        f"processor is within {100 * off:.0f} % of that. {_clock_of_two(database['cases'])}"
    )


def _clock_of_two(cases: list[dict[str, Any]]) -> str:
    """Where the time of two workers goes that have a shard each, by the clock."""
    two = next(case["mean"] for case in cases if (case["workers"], case["shards"]) == (2, 2))
    own = two["pieces_ms"] + two["rest_ms"] + two["sum_ms"]
    return (
        f"Of {two['wall_ms']:.0f} ms by the clock, with a shard each, a worker computes for "
        f"{own:.0f} and waits for the other and for the wire for {two['waits_ms']:.0f}, "
        f"{two['uneven_ms']:.0f} of them because one has more to compute than the other; in the "
        f"remaining {two['wall_ms'] - own - two['waits_ms']:.0f} others have its core, such as its "
        f"own threads that sample, which take {two['beside_ms']:.0f}."
    )


def _forecast(database: dict[str, Any], batch: int) -> list[str]:
    """More workers, by the model."""
    lines = [
        f"More workers on {database['name']} by the same model, with a core and one shard each, a "
        f"ring, and what a network is said to do: with a batch of {batch} seeds that is cut finer, "
        "and with one that grows, 256 seeds for each worker. *Faster* is seeds per second, than "
        "one process without workers:",
        "",
        "| workers | batch | network | step | seeds | a shard's own | repeated | wire | latency | "
        "faster | limited by |",
        "|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for one in database["forecast"]:
        names = ("step_ms", "seeds_ms", "shard_ms", "rest_ms", "wire_ms", "latency_ms")
        times = " | ".join(f"{one[name]:.1f}" for name in names)
        lines.append(
            f"| {one['workers']} | {one['batch']:,} | {one['network']} | {times} | "
            f"{one['faster']:.1f} | {PARTS[one['limit']]} |"
        )
    return [
        *lines,
        "",
        "So a batch of this size is worth a few workers, not many: what each shard costs by itself "
        "and what every worker repeats stay, however many there are. Batches that grow with the "
        "workers (`--set batch_size`) divide much better, until a plain ring waits for its "
        "thousand messages; they are fewer steps per epoch, so that more epochs or a higher `lr` "
        "may be needed. Trainings side by side (`experiment`, `tune`) divide without a loss.",
    ]


def billions() -> str:
    """From costs per row that were measured to databases that were not."""
    rows, everyone = _read("per_row.json"), _read("everyone.json")
    training = _read("cluster.json")
    each = rows["per_row"]
    predicted = everyone["speed"][-1]["layerwise"]["cpu_us_per_seed"]
    like = next(d for d in training["databases"] if d["name"] == "rel-hm")
    whole = next(c for c in like["checked"] if not c["shards"])
    seeds = training["batch_size"] / whole["cpu_ms"] * 1e3
    eight = next(
        one
        for one in like["forecast"]
        if one["workers"] == 8 and one["batch"] > training["batch_size"]
    )
    together = eight["batch"] / eight["step_ms"] * 1e3
    sizes = " and ".join(f"{case['rows'] / 1e6:.1f}" for case in rows["cases"])
    copied = rows["cases"][-1]
    largest = max(one["rows"] for one in everyone["speed"])
    per_gb = copied["copy_cpu_seconds"] / copied["copied_bytes"] * 1e9
    lines = [
        f"Measured between {sizes} million rows of a database like rel-hm "
        f"(`{rows['machine']['command']}`): {each['database_bytes']:.0f} bytes of Parquet and "
        f"{each['store_bytes']:.0f} bytes prepared per row, and "
        f"{each['prepare_cpu_seconds'] * 1e6:.1f} µs of the processor to prepare one; "
        f"{per_gb:.1f} s to copy and verify a GB. Predictions for everybody take "
        f"{predicted:.0f} µs per entity ([benchmarks](benchmarks.md)), and a core trains on "
        f"{seeds:,.0f} seeds per second (above, without workers). Multiplied, on nodes of {CORES} "
        "cores with 10 Gbit/s, one entity per 15 rows:",
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
        (
            f"seeds per second in training, 8 workers, batches of {eight['batch']:,}",
            [f"{together:,.0f}"] * 3,
        ),
    ]
    lines += [f"| {what} | {' | '.join(cells)} |" for what, cells in table]
    lines += [
        "",
        "Rows of that database are narrow: a few numbers and keys. Wide rows and text take more. "
        "Seeds per second do not depend on the number of rows as long as what is "
        "sampled is in memory; once it is not, rows are reads from a disk, and its reads per "
        "second are the limit. All of this is multiplication, not measurement: the largest "
        f"database that was predicted for here has {largest / 1e6:.0f} million rows.",
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
