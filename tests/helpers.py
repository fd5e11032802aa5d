"""Small ways to make a source, to run a command, and to read what became of it."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import relbench
import yaml
from hypothesis import settings

from relfrog import import_database
from relfrog.cli import main
from relfrog.importing.result import ImportResult


def examples(count: int, **more: Any) -> settings:
    """So many random examples; of which the profiles `quick` and `thorough` make fewer and more."""
    return settings(max_examples=max(count * settings.default.max_examples // 100, 5), **more)


def sqlite(path: Path, *statements: str) -> str:
    """A SQLite file from SQL; returns its address."""
    connection = sqlite3.connect(path)
    try:
        for statement in statements:
            connection.executescript(statement)
        connection.commit()
    finally:
        connection.close()
    return f"sqlite:///{path}"


def csv_folder(folder: Path, **tables: str | bytes) -> str:
    """A folder of CSV files from their texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in tables.items():
        raw = text if isinstance(text, bytes) else text.encode()
        (folder / f"{name}.csv").write_bytes(raw)
    return str(folder)


def imported(
    address: str, out: Path, **options: Any
) -> tuple[ImportResult, dict[str, pd.DataFrame]]:
    """Import, and load the whole database as RelBench does."""
    result = import_database(address, out, **options)
    db = relbench.load_dataset(out).get_db(upto_test_timestamp=False)
    return result, {name: table.df for name, table in db.table_dict.items()}


def said(result: ImportResult, kind: str, place: str = "") -> str:
    """What was noticed of a kind at a place."""
    return "\n".join(n.text for n in result.notices if n.kind == kind and n.place.startswith(place))


def some_results(rows: int = 5) -> pd.DataFrame:
    """One column of each kind, with awkward values and a missing one."""
    numbers = np.arange(rows)[::-1]
    return pd.DataFrame(
        {
            "id": numbers * 3 + 2**53 + 1,
            "code": [None if i == 1 else f"00{i}é,'\"\\\n🐸" for i in numbers],
            "at": [pd.NaT if i == 2 else pd.Timestamp("2020-01-01") + pd.Timedelta(i * 1_000_007, "us") for i in numbers],
            "score": [np.nan if i == 0 else 1 / (i + 3) for i in numbers],
            "sure": numbers % 2 == 0,
            "count": pd.array([None if i == 3 else 2**60 + int(i) for i in numbers], "Int64"),
            "top": [None if i == 1 else [int(i), 2**60] for i in numbers],
            "names": [[] if i == 2 else [f'"{i}"', "ä"] for i in numbers],
        },
        index=numbers + 100,
    )  # fmt: skip


def plain_rows(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """The rows as Python values; None where a value is missing."""

    def plain(value: Any) -> Any:
        if isinstance(value, list | np.ndarray):
            return [plain(v) for v in value]
        if value is None or pd.isna(value):
            return None
        if isinstance(value, pd.Timestamp):
            return value.to_pydatetime()
        return value.item() if isinstance(value, np.generic) else value

    columns = [[plain(v) for v in frame[name].astype(object)] for name in frame]
    return list(zip(*columns))


def dataset_content(folder: Path) -> dict[str, object]:
    """Everything in a dataset folder that does not name the source."""
    content: dict[str, object] = {
        str(path.relative_to(folder)): pq.read_table(path) for path in folder.glob("*/*.parquet")
    }
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text(encoding="utf-8"))
    content["manifest"] = {k: v for k, v in manifest.items() if k not in ("description", "name")}
    return content


def assert_same_dataset(one: Path, two: Path) -> None:
    """The same tables, keys and manifest; they may be called differently."""
    first, second = dataset_content(one), dataset_content(two)
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert value == second[key], key


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in a language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def followed(page: Path, capfd: pytest.CaptureFixture[str], skip: str = "$^") -> str:
    """What is said if one does what a page says, here; commands that match `skip` are not run."""
    text = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    steps = [
        step[0]
        for step in re.finditer(r"^(?:cat > \S+ <<'(\w+)'.*?^\1$|\S.*?$)", text, re.M | re.S)
        if not re.match(skip, step[0])
    ]
    said = ""
    for ours, some in itertools.groupby(steps, lambda step: step.startswith("relfrog ")):
        if ours:  # not in a process of its own, which would import libraries for seconds
            for step in some:
                code, out, err = inside(capfd, *shlex.split(step)[1:])
                assert code == 0, (step, err)
                said += out + err
        else:
            shell = ["bash", "-euo", "pipefail", "-c", "\n".join(some)]
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            env = {**os.environ, "PATH": path}
            done = subprocess.run(shell, env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            said += done.stdout
    return said


def shape(text: str) -> set[str]:
    """Lines without numbers, roles and planes, which depend on the machine; without columns."""
    found = set()
    for line in text.splitlines():
        line = re.sub(r"\bN\d\w+|-?\d[\d,.]*(e-\d+)?|\*|\b(edge|node|undecided)$", "#", line)
        line = re.sub(r"#+", "#", line)  # a comma before a number without a sign is part of it
        line = re.sub(r"# (s|min) left", "# s left", line)
        line = re.sub(r"-{3,}", "---", line)  # as long as the longest cell
        found.add(re.sub(r"\s+", " ", line).replace(" #", "#").rstrip())
    return found


def inside(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """A command in this process: exit code, output, errors. Importing libraries takes seconds."""
    capfd.readouterr()
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    before, sys.argv = sys.argv, ["relfrog", *arguments]
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.argv = before
        signal.set_wakeup_fd(-1)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    out, err = capfd.readouterr()
    return code, out, err
