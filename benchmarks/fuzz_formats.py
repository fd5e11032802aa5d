"""Damaged and hostile files of every format, made by someone who knows its form.

Each format has a sound sample, a way to change it, and the reader that RelFrog uses. Changes keep
to the form: a branch of a tree is replaced or removed, a column gets another type, a node of a tree
another child; some bytes are simply wrong. A case is read, or refused in words.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

import relfrog
from relfrog.config import Config
from relfrog.datasets.key_views import find_source_keys
from relfrog.datasets.tasks import load_task
from relfrog.features.columns import Columns
from relfrog.graph.relational import build_graph, open_graph
from relfrog.importing.corrections import read_corrections
from relfrog.models.auto import read_blend
from relfrog.models.booster_file import checked_model, load_lightgbm
from relfrog.models.postprocessing.bundle import load_postprocessing
from relfrog.models.run_folder import read_run
from relfrog.models.run_forms import BacktestsFile, Constant, DatabaseFile, TreesFile
from relfrog.runs.run import Run
from relfrog.support.files import load_tensors
from relfrog.support.forms import read_json

__all__ = ["FORMATS", "Format", "make_formats", "mangled", "mutated", "odd"]

OWNED = "relfrog-was-here"


def odd(rng: random.Random) -> Any:
    """A value that nobody expects."""
    return rng.choice([
        None, "", "x", -1, 0, 1, 2**63, 1e308, float("nan"), float("inf"), [], {}, [1], {"a": 1},
        True, "9999-99-99", "NaT", "nan", "../x", "/etc/passwd", 10**30, "\x00", "1 ns", "-1 days",
        "2020-01-01T00:00:00+05:00", "null", "🐸", [[]], "x" * 300, '"; DROP TABLE x; --',
        f"(SELECT 1); COPY (SELECT 1) TO '{OWNED}'; --", f"@pd.io.common.os.mkdir('{OWNED}')",
        f"!!python/object/apply:os.mkdir ['{OWNED}']", {"a": {"a": {"a": {}}}}, -0.0, 5e-324,
    ])  # fmt: skip


def mutated(rng: random.Random, value: Any) -> Any:
    """The same tree with one branch replaced, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key, copy, action = rng.choice(list(value)), dict(value), rng.random()
        if action < 0.15:
            del copy[key]
        elif action < 0.25:
            copy[str(odd(rng))] = odd(rng)
        elif action < 0.3:
            copy[str(odd(rng))] = copy.pop(key)
        else:
            copy[key] = mutated(rng, value[key])
        return copy
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        if rng.random() < 0.1:
            return [*value[:place], *value[place + 1 :]]
        if rng.random() < 0.1:
            return [*value, value[place]]
        return [*value[:place], mutated(rng, value[place]), *value[place + 1 :]]
    if isinstance(value, int | float) and rng.random() < 0.5:
        return rng.choice([-value, value + 1, value * 1e9, float(value), str(value), value - 1])
    return odd(rng)


def mangled(rng: random.Random, content: bytes) -> bytes:
    """A file with some wrong bytes."""
    at = rng.randrange(max(len(content), 1))
    return rng.choice([
        lambda: content[:at], lambda: content + content, lambda: b"",
        lambda: content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :],
        lambda: content[:at] + rng.randbytes(8) + content[at:],
        lambda: content.replace(b":", b"", 1), lambda: content.replace(b"0", b"-1"),
        lambda: b"[" * 500, lambda: content.replace(b"\n", b"\n "),
        lambda: b'{"a":' * 100_000 if rng.random() < 0.02 else b"{",
    ])()  # fmt: skip


@dataclass
class Format:
    """A format: where its sample is, how it is changed, and how it is read."""

    path: Path
    change: Callable[[random.Random, bytes], bytes]
    read: Callable[[], Any]
    sample: bytes = b""

    def __post_init__(self) -> None:
        self.sample = self.path.read_bytes()
        self.read()  # the sample itself is sound

    def try_case(self, rng: random.Random) -> None:
        """Read a changed file; the sample is put back."""
        try:
            self.path.write_bytes(self.change(rng, self.sample))
            self.read()
        finally:
            self.path.write_bytes(self.sample)


def as_json(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.2:
        return mangled(rng, content)
    tree = json.loads(content)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        tree = mutated(rng, tree)
    return json.dumps(tree).encode()


def as_lines(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([*lines[:at], as_json(rng, lines[at]), *lines[at + 1 :]])


def as_yaml(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.2:
        return mangled(rng, content)
    tree = yaml.load(content, yaml.CSafeLoader)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        tree = mutated(rng, tree)
    return yaml.dump(tree, Dumper=yaml.CSafeDumper, allow_unicode=True).encode()


def as_safetensors(rng: random.Random, content: bytes) -> bytes:
    """Another header: names, types, shapes and places of tensors."""
    if rng.random() < 0.3:
        return mangled(rng, content)
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(mutated(rng, json.loads(content[8 : 8 + size]))).encode()
    told = rng.choice([len(header)] * 8 + [0, 1 << 62, len(header) + 1])
    return told.to_bytes(8, "little") + header + content[8 + size :]


def as_booster(rng: random.Random, content: bytes) -> bytes:
    """Other numbers, lines and sizes in LightGBM's text."""
    lines = content.decode().split("\n")
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(min(len(lines), 60))
        name, mark, value = lines[at].partition("=")
        action = rng.random()
        if action < 0.1:
            del lines[at]
        elif action < 0.2:
            lines.insert(at, rng.choice(lines))
        elif mark and value:
            words = value.split(" ")
            place = rng.randrange(len(words))
            words[place] = rng.choice([
                "-1", "0", "1", "7", "99999", "-99999", "nan", "inf", "1e400", "", "x", "0x10",
                str(2**31), str(2**63), words[place] + "0", "-" + words[place], "1 2", "[0:1]",
            ])  # fmt: skip
            lines[at] = f"{name}={' '.join(words)}"
        else:
            lines[at] = str(odd(rng))
    text = "\n".join(lines)
    if rng.random() < 0.7:  # who is malicious keeps the sizes right
        head, _, rest = text.partition("\n\n")
        trees = rest.split("end of trees")[0]
        parts = ["Tree=" + part for part in trees.split("Tree=")[1:]]
        sizes = " ".join(str(len(part)) for part in parts)
        head = "\n".join(
            f"tree_sizes={sizes}" if line.startswith("tree_sizes") else line
            for line in head.split("\n")
        )
        text = f"{head}\n\n{rest}"
    return text.encode(errors="replace")


def _column(rng: random.Random, values: pa.ChunkedArray) -> pa.Array:
    """A column of another type or with other values."""
    count = len(values)
    start = date(2020, 1, 1)
    return rng.choice([
        lambda: pa.array([str(v) for v in values.to_pylist()]),
        lambda: pa.array([None] * count, rng.choice([pa.int64(), pa.null(), pa.timestamp("us")])),
        lambda: pa.array(rng.choices([0.5, -1.0, 1e300, float("nan"), 3.0, None], k=count)),
        lambda: pa.array(rng.choices([0, 1, -1, 2**62, count], k=count)),
        lambda: pa.array(rng.choices([True, False, None], k=count)),
        lambda: pa.array(rng.choices([[1], [], None], k=count), pa.list_(pa.int8())),
        lambda: pa.array(rng.choices([Decimal("1.5"), None], k=count), pa.decimal128(9, 2)),
        lambda: pa.array([start + timedelta(rng.randrange(900)) for _ in range(count)]),
        lambda: pa.array([rng.randrange(2**50) for _ in range(count)], pa.timestamp("us", "UTC")),
        lambda: pa.array([rng.randrange(2**60) for _ in range(count)], pa.timestamp("ns")),
        lambda: pa.array([rng.randrange(2**30) for _ in range(count)], pa.timestamp("s")),
        lambda: pa.array([rng.randrange(2**30) for _ in range(count)], pa.duration("s")),
        lambda: pa.array(rng.choices(["a", "b", None], k=count)).dictionary_encode(),
        lambda: pa.array(rng.choices([{"a": 1}, None], k=count)),
        lambda: pa.array([b"\xff"] * count),
        lambda: values.take(pa.array(rng.sample(range(count), count), pa.int64())).combine_chunks(),
    ])()  # fmt: skip


def as_parquet(rng: random.Random, content: bytes) -> bytes:
    """Columns of other types, names, order and number; rows in another order, or none."""
    if rng.random() < 0.15:
        return mangled(rng, content)
    table = pq.read_table(pa.BufferReader(content))
    for _ in range(rng.choice([1, 1, 2, 3])):
        at, action = rng.randrange(table.num_columns), rng.random()
        name = table.column_names[at]
        if action < 0.6:
            table = table.set_column(at, name, _column(rng, table.column(at)))
        elif action < 0.7:
            table = table.remove_column(at)
        elif action < 0.8:
            table = table.rename_columns(
                [str(odd(rng)) if n == name else n for n in table.column_names]
            )
        elif action < 0.85:
            table = table.append_column(rng.choice(table.column_names), table.column(at))
        elif action < 0.9:
            table = table.slice(0, rng.choice([0, 1]))
        elif action < 0.95:
            table = pa.concat_tables([table, table])
        else:
            table = table.replace_schema_metadata({"pandas": str(odd(rng))})
        if not table.num_columns:
            break
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


LABELS = "SELECT t.timestamp, p.id, p.id % 2 AS y FROM timestamps t CROSS JOIN people p"


def tiny_dataset(folder: Path) -> Path:
    """A dataset of two small tables and a task with stored labels."""
    (folder / "db").mkdir(parents=True)
    days = pd.date_range("2020-01-01", periods=12)
    pd.DataFrame({"id": range(4), "name": list("abcd")}).to_parquet(folder / "db/people.parquet")
    pd.DataFrame(
        {"id": range(12), "who": pd.array([0, 1, 2, None] * 3, "Int64"), "at": days, "x": range(12)}
    ).to_parquet(folder / "db/orders.parquet")
    manifest = {
        "name": "tiny", "val_timestamp": "2020-01-06", "test_timestamp": "2020-01-09",
        "tables": {
            "people": {"pkey": "id", "time_col": None, "fkeys": {}},
            "orders": {"pkey": "id", "time_col": "at", "fkeys": {"who": "people"}},
        },
    }  # fmt: skip
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    task = folder / "tasks" / "buys"
    task.mkdir(parents=True)
    about = {
        "name": "buys", "kind": "forecast", "task_type": "binary_classification",
        "entity_table": "people", "entity_col": "id", "target_col": "y", "time_col": "timestamp",
        "timedelta": "1 day", "num_eval_timestamps": 2, "sql": LABELS, "remove_columns": [],
    }  # fmt: skip
    (task / "manifest.yaml").write_text(yaml.safe_dump(about))
    for split, day in (("train", "2020-01-03"), ("val", "2020-01-06"), ("test", "2020-01-09")):
        frame = pd.DataFrame({"timestamp": pd.Timestamp(day), "id": range(4), "y": [0, 1, 0, 1]})
        frame.to_parquet(task / f"{split}.parquet")
    columns = {c: {"source": [c], "role": "value"} for c in ("id", "who", "at", "x", "name")}
    record = {name: {"key": ["id"], "columns": columns} for name in ("people", "orders")}
    (folder / "keys").mkdir()
    for name, rows in (("people", 4), ("orders", 12)):
        pd.DataFrame({"id": range(rows)}).to_parquet(folder / "keys" / f"{name}.parquet")
    (folder / "import.json").write_text(json.dumps({"tables": record}))
    return folder


#: All formats, the quickest first.
FORMATS = (
    "roles.json", "metrics.json", "history.jsonl", "baselines.json", "blend.json",
    "postprocessing.json", "baseline.json", "lightgbm.json", "backtests.json", "database.json",
    "graph.json", "columns.json", "columns.safetensors", "model.safetensors", "lightgbm.txt",
    "import.json", "run.json", "labels.parquet", "table.parquet", "task manifest.yaml",
    "dataset manifest.yaml", "mapping.yaml", "config.yaml",
)  # fmt: skip


def make_formats(folder: Path, stored: Path, names: Sequence[str] = FORMATS) -> dict[str, Format]:
    """Formats, in a folder of their own.

    Args:
        folder: Where their samples are written.
        stored: A run folder with a network.
        names: Which.
    """
    run = Path(shutil.copytree(stored, folder / "run"))
    about, config = read_run(run)
    opened = Run(run, about, config)
    scores = {"roc_auc": 0.5, "f1": None}
    by_split = {s: {"frozen": scores, "rolling": scores} for s in ("val", "test")}
    table = {"name": "t", "rows": 3, "time_column": "at", "columns": 2}
    files = {
        "baselines.json": {"models": {"mean": by_split}, "seconds": 1.0},
        "blend.json": {"weights": {"frog": 1.0}, "members": {"frog": by_split}},
        "postprocessing.json": {"thresholds": [0.5]},
        "baseline.json": {"constant": [0.5], "last": 3},
        "lightgbm.json": {"models": 1, "parts": 1, "files": {"a": "b"}, "features": {}},
        "backtests.json": {
            "metric": "mae", "cuts": ["2020-01-01"], "labels": [9], "first": [0.5],
            "chosen": [0.4], "models": 3, "dropped": ["peers"],
            "against_first": {"gain": 0.1, "sure": 0.9, "won": 1, "folds": 1},
            "families": {"peers": {"gain": None, "sure": 0.4, "won": 0, "folds": 1}},
        },
        "database.json": {
            "name": "d", "val_timestamp": "x", "test_timestamp": "y", "newest": None,
            "task": {"entity_table": "t", "label": "y", "horizon_seconds": 1.0},
            "tables": [table], "fingerprint": "f",
            "foreign_keys": [{"table": "t", "column": "c", "parent": "p", "filled": 1.0}],
        },
    }  # fmt: skip
    for name, content in files.items():
        (run / name).write_text(json.dumps(content))
    (run / "config.yaml").write_text(Config().to_yaml())
    dataset = tiny_dataset(folder / "tiny")
    graph = folder / "graph"
    build_graph(relfrog.open_dataset(dataset).get_db()).save(graph)
    lightgbm = load_lightgbm()
    rng = np.random.default_rng(0)
    x = rng.random((300, 4))
    data = lightgbm.Dataset(x, x[:, 0] > x[:, 1])
    settings = {"objective": "binary", "verbosity": -1, "num_leaves": 4}
    (run / "model.txt").write_text(lightgbm.train(settings, data, 3).model_to_string())

    def read_booster() -> None:
        try:
            text = checked_model((run / "model.txt").read_text(errors="replace"), 4)
        except ValueError as error:
            raise relfrog.RelFrogError(str(error)) from None
        lightgbm.Booster(model_str=text).predict(x[:5])

    def read_dataset() -> None:
        found = relfrog.open_dataset(dataset)
        found.get_db()

    def read_task() -> None:
        task = load_task(relfrog.open_dataset(dataset), "buys")
        task.get_table("train")

    mapping = stored.parent / "dataset" / "mapping.yaml"
    shutil.copy(mapping, folder / "mapping.yaml")
    task = dataset / "tasks" / "buys"
    read: dict[str, tuple[Path, Any, Callable[[], Any]]] = {
        "run.json": (run / "run.json", as_json, lambda: read_run(run)),
        "config.yaml": (run / "config.yaml", as_yaml, lambda: read_run(run)),
        "columns.json": (run / "columns.json", as_json, lambda: Columns.load(run)),
        "columns.safetensors": (
            run / "columns.safetensors", as_safetensors, lambda: Columns.load(run)
        ),
        "model.safetensors": (
            run / "model.safetensors", as_safetensors,
            lambda: load_tensors(run / "model.safetensors"),
        ),
        "roles.json": (run / "roles.json", as_json, opened.roles),
        "history.jsonl": (run / "history.jsonl", as_lines, opened.history),
        "metrics.json": (run / "metrics.json", as_json, lambda: opened.metrics),
        "baselines.json": (run / "baselines.json", as_json, lambda: opened.baselines),
        "blend.json": (run / "blend.json", as_json, lambda: read_blend(run)),
        "postprocessing.json": (
            run / "postprocessing.json", as_json, lambda: load_postprocessing(run, about["labels"])
        ),
        "baseline.json": (
            run / "baseline.json", as_json, lambda: read_json(run / "baseline.json", Constant)
        ),
        "lightgbm.json": (
            run / "lightgbm.json", as_json, lambda: read_json(run / "lightgbm.json", TreesFile)
        ),
        "backtests.json": (
            run / "backtests.json", as_json,
            lambda: read_json(run / "backtests.json", BacktestsFile),
        ),
        "database.json": (
            run / "database.json", as_json, lambda: read_json(run / "database.json", DatabaseFile)
        ),
        "lightgbm.txt": (run / "model.txt", as_booster, read_booster),
        "graph.json": (graph / "graph.json", as_json, lambda: open_graph(graph)),
        "dataset manifest.yaml": (dataset / "manifest.yaml", as_yaml, read_dataset),
        "task manifest.yaml": (task / "manifest.yaml", as_yaml, read_task),
        "import.json": (
            dataset / "import.json", as_json,
            lambda: find_source_keys(relfrog.open_dataset(dataset)),
        ),
        "mapping.yaml": (
            folder / "mapping.yaml", as_yaml, lambda: read_corrections(folder / "mapping.yaml")
        ),
        "table.parquet": (dataset / "db" / "orders.parquet", as_parquet, read_dataset),
        "labels.parquet": (task / "train.parquet", as_parquet, read_task),
    }  # fmt: skip
    assert set(read) == set(FORMATS)
    return {name: Format(*read[name]) for name in names}
