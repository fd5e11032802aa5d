"""What a row costs: bytes on disk, seconds to prepare it, seconds to copy it to another node.

    python benchmarks/per_row.py --rows 1e6 4e6 --out benchmarks/per_row.json

On databases like rel-hm (`paper_databases.py`), each in a process and a cache folder of its own.
Costs per row are the slope between the smallest and the largest database: what every command costs
does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from measuring import machine
from paper_databases import read_schema, write


def size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def one(data: Path, work: Path) -> dict[str, Any]:
    """Prepare a task and copy it, in this process."""
    from relfrog.cluster.replica import obtain, replicate
    from relfrog.config import resolve
    from relfrog.store.parts import open_store
    from relfrog.training.opened_task import open_task

    warnings.filterwarnings("ignore")
    os.environ["RELFROG_CACHE"] = str(work / "head")
    cpu, wall = time.process_time(), time.perf_counter()
    opened = open_task(str(data), "user-churn")
    opened.prepare(resolve(100_000, settings={"model": "frog"}, kind=opened.kind))
    found: dict[str, Any] = {
        "rows": sum(len(table) for table in opened.db.table_dict.values()),
        "database_bytes": size(data / "db"),
        "prepare_cpu_seconds": time.process_time() - cpu,
        "prepare_seconds": time.perf_counter() - wall,
    }
    store = open_store()
    kinds: Counter[str] = Counter()
    for part in store.parts():
        kinds[part.kind] += part.bytes
    found["store_bytes"] = sum(kinds.values())
    found["store_bytes_by_kind"] = dict(kinds)
    sent = replicate({"dataset": data}, store.used)
    os.environ["RELFROG_CACHE"] = str(work / "node")
    cpu, wall = time.process_time(), time.perf_counter()
    obtain(sent)
    found["copied_bytes"] = sent.bytes
    found["copy_cpu_seconds"] = time.process_time() - cpu
    found["copy_seconds"] = time.perf_counter() - wall
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="*", default=[1e6, 4e6])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--one", type=Path, nargs=2)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if given.one:
        print(json.dumps(one(*given.one)))
        return
    schema = read_schema("rel-hm")
    full = sum(schema.rows(table) for table in schema.tables)
    cases = []
    with tempfile.TemporaryDirectory(prefix="relfrog-per-row-") as base:
        small = Path(base) / "small"
        write("rel-hm", small, 0.001)
        sizes = [(0.001, small)]
        for rows in given.rows:
            write("rel-hm", Path(base) / f"{rows:.0f}", rows / full)
            sizes.append((rows / full, Path(base) / f"{rows:.0f}"))
        for scale, data in sizes:  # the first one compiles
            work = Path(base) / "work" / data.name
            work.mkdir(parents=True)
            command = [sys.executable, __file__, "--one", str(data), str(work)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            case = {"scale": scale, **json.loads(done.stdout.splitlines()[-1])}
            print(case, file=sys.stderr)
            if data != small:
                cases.append(case)
    first, last = cases[0], cases[-1]
    names = ("database_bytes", "store_bytes", "prepare_cpu_seconds", "copy_cpu_seconds")
    more = last["rows"] - first["rows"]
    per_row = {name: (last[name] - first[name]) / more for name in names}
    result = {"machine": machine(), "cases": cases, "per_row": per_row}
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
