"""Importing a large SQLite table: time and memory, beside ``pandas.read_sql`` and ``to_parquet``.

    python benchmarks/importing.py --rows 10000000 --out benchmarks/importing.json

Each side runs in a process of its own, one after the other, on the same file; memory is the
largest resident set the operating system saw.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import command_line

PANDAS = """
import sqlite3, sys
import pandas as pd
frame = pd.read_sql("SELECT * FROM events", sqlite3.connect(sys.argv[1]))
frame.to_parquet(sys.argv[2])
"""


def make_database(path: Path, rows: int) -> None:
    """Users and their events: two foreign keys, a time, text, numbers."""
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, signup_date DATE);"
        "CREATE TABLE items (id INTEGER PRIMARY KEY, title TEXT);"
        "CREATE TABLE events (id INTEGER PRIMARY KEY, user_id INTEGER REFERENCES users (id), "
        "item_id INTEGER REFERENCES items (id), created_at TIMESTAMP, amount REAL, kind TEXT);"
    )
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) "
    connection.execute(
        f"INSERT INTO users {numbers.format(100_000)} "
        "SELECT i, 'user ' || i, date('2015-01-01', (i % 900) || ' days') FROM n"
    )
    connection.execute(f"INSERT INTO items {numbers.format(20_000)} SELECT i, 'item ' || i FROM n")
    connection.execute(
        f"INSERT INTO events {numbers.format(rows)} "
        "SELECT i, (i * 7919) % 100000 + 1, (i * 104729) % 20000 + 1, "
        "datetime('2018-01-01', ((i * 31) % 150000000) || ' seconds'), "
        "(i % 1000) / 8.0, 'kind ' || (i % 12) FROM n"
    )
    connection.commit()
    connection.close()


def measure(command: list[str]) -> dict[str, float]:
    """Seconds and megabytes of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        time.sleep(0.05)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{command} failed")
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(after.ru_utime - before.ru_utime, 1),
        "peak_mb": round(peak),
    }


def resident(process: int) -> float:
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="relfrog-"))
    try:
        database = folder / "events.db"
        make_database(database, arguments.rows)
        ours = measure(
            [sys.executable, "-m", "relfrog", "import", f"sqlite:///{database}", str(folder / "ds")]
        )
        theirs = measure([sys.executable, "-c", PANDAS, str(database), str(folder / "p.parquet")])
    finally:
        shutil.rmtree(folder)
    import duckdb
    import pandas

    import relfrog

    result = {
        "command": command_line(),
        "rows": arguments.rows,
        "relfrog_import": ours,
        "pandas_read_sql_to_parquet": theirs,
        "speed_ratio": round(theirs["seconds"] / ours["seconds"], 2),
        "memory_ratio": round(theirs["peak_mb"] / ours["peak_mb"], 2),
        "versions": {
            "relfrog": relfrog.__version__,
            "python": platform.python_version(),
            "duckdb": duckdb.__version__,
            "pandas": pandas.__version__,
        },
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
