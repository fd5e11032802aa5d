"""Formats of what users give, by their own hand or a stranger's: see `fuzz_formats`.

Databases and folders to import, lists of entities, labels, presets, gates, predictions to audit.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import yaml

import relfrog
from fuzz_changes import (
    as_csv,
    as_database,
    as_gzip,
    as_json,
    as_modules,
    as_parquet,
    as_yaml,
)
from fuzz_kept import Entry
from fuzz_samples import add_lists, tiny_dataset
from relfrog.analysis.audit import audited
from relfrog.config import Config, read_preset
from relfrog.datasets.checks import CheckReport, _check_files, _check_manifest
from relfrog.datasets.checks.records import check_records
from relfrog.datasets.dataset import read_tables, source_keys
from relfrog.datasets.entities import read_entities
from relfrog.datasets.external import read_label_table, read_labels
from relfrog.datasets.tasks import load_task
from relfrog.features.text import _refuse_code
from relfrog.importing.database import _objection
from relfrog.importing.kept import read_kept
from relfrog.io.marks import LIST, MARK, is_marked_file
from relfrog.io.sources import ReadAgain, files, open_source, same_source
from relfrog.io.sources.duck import memory_connection
from relfrog.kinds import MODELS
from relfrog.runs.ask import _imported_from
from relfrog.runs.train import _read_roles
from relfrog.support.files import write_json
from relfrog.training.opened_task import OpenedTask, open_task

__all__ = ["given_formats"]


def given_formats(folder: Path, dataset: Path) -> dict[str, Entry]:
    """All formats of this module.

    Args:
        folder: Where their samples are written.
        dataset: A dataset folder.
    """
    return {
        **_sources(folder / "sources"), **_user_files(folder / "given", dataset),
        **_dataset_files(dataset), **_audited(folder / "audited"),
        **_text_model(folder / "text model"),
    }  # fmt: skip


def _sources(folder: Path) -> dict[str, Entry]:
    """Databases and folders to import: all tables are listed and read."""
    frame = pd.DataFrame(
        {"id": range(9), "who": list("abcabcabc"), "at": pd.date_range("2020-01-01", periods=9)}
    )
    text = frame.to_csv(index=False)
    places = {name: folder / name for name in ("csv", "gzip", "parquet", "sqlite", "duckdb")}
    for place in places.values():
        place.mkdir(parents=True)
    (places["csv"] / "orders.csv").write_text(text)
    (places["gzip"] / "orders.csv.gz").write_bytes(gzip.compress(text.encode()))
    frame.to_parquet(places["parquet"] / "orders.parquet")
    with sqlite3.connect(places["sqlite"] / "shop.db") as connection:
        connection.execute("CREATE TABLE people (code TEXT PRIMARY KEY, name TEXT)")
        connection.execute("CREATE TABLE orders (id INTEGER, who REFERENCES people, at TIMESTAMP)")
        connection.executemany("INSERT INTO people VALUES (?, ?)", [("a", "A"), ("b", "B")])
        connection.execute("INSERT INTO orders VALUES (1, 'a', '2020-01-01')")
    connection.close()
    with duckdb.connect(str(places["duckdb"] / "shop.duckdb")) as made:
        made.execute("CREATE TABLE people (code TEXT PRIMARY KEY, name TEXT)")
        made.execute("INSERT INTO people VALUES ('a', 'A'), ('b', 'B')")

    # A connection takes longer than a file.
    shared = memory_connection()
    files.memory_connection = shared.cursor

    def read(address: Path) -> None:
        with open_source(str(address)) as source:
            for table in source.tables():
                source.is_marked(table)
                found, tries = table, 0
                while tries < 20:
                    try:
                        for _ in source.read(found):
                            pass
                        break
                    except ReadAgain as again:
                        found, tries = again.table, tries + 1
                assert tries < 20, "it is read again and again"

    listed = places["csv"] / LIST
    listed.write_text(json.dumps({"orders.csv": MARK}))
    return {
        "source.csv": (places["csv"] / "orders.csv", as_csv, lambda: read(places["csv"])),
        "source.csv.gz": (places["gzip"] / "orders.csv.gz", as_gzip, lambda: read(places["gzip"])),
        "source.parquet": (
            places["parquet"] / "orders.parquet", as_parquet, lambda: read(places["parquet"])
        ),
        "source.db": (
            places["sqlite"] / "shop.db", as_database, lambda: read(places["sqlite"] / "shop.db")
        ),
        "source.duckdb": (
            places["duckdb"] / "shop.duckdb", as_database,
            lambda: read(places["duckdb"] / "shop.duckdb"),
        ),
        LIST: (listed, as_json, lambda: is_marked_file(places["csv"] / "orders.csv")),
    }  # fmt: skip


def _user_files(folder: Path, dataset: Path) -> dict[str, Entry]:
    """Files that somebody names on the command line."""
    folder.mkdir(parents=True)
    opened = relfrog.open_dataset(dataset)
    asked = pd.DataFrame({"id": [0, 1, 2], "timestamp": "2020-01-06"})
    labels = asked.assign(y=[0, 1, 0])
    for name, frame in (("asked", asked), ("labels", labels)):
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.to_parquet(folder / f"{name}.parquet", index=False)
    (folder / "labels.csv.gz").write_bytes(gzip.compress((folder / "labels.csv").read_bytes()))
    (folder / "preset.yaml").write_text(yaml.safe_dump({"lr": 0.01, "channels": 8, "epochs": 3}))
    write_json(folder / "gates.json", [{"route": "a -> b", "gate": 0.5}] * 2)

    def entities(name: str) -> Any:
        return lambda: read_entities(
            dataset, "people", "id", 4, folder / name, time_names=("timestamp",)
        )

    def given(name: str) -> Any:
        return lambda: read_label_table(opened, "people", folder / name, "timestamp", "y")

    return {
        "entities.csv": (folder / "asked.csv", as_csv, entities("asked.csv")),
        "entities.parquet": (folder / "asked.parquet", as_parquet, entities("asked.parquet")),
        "given labels.csv": (folder / "labels.csv", as_csv, given("labels.csv")),
        "given labels.csv.gz": (folder / "labels.csv.gz", as_gzip, given("labels.csv.gz")),
        "given labels.parquet": (folder / "labels.parquet", as_parquet, given("labels.parquet")),
        "preset.yaml": (
            folder / "preset.yaml", as_yaml,
            lambda: Config(**read_preset(str(folder / "preset.yaml"))),
        ),
        "gates.json": (folder / "gates.json", as_json, lambda: _read_roles(folder / "gates.json")),
    }  # fmt: skip


def _dataset_files(dataset: Path) -> dict[str, Entry]:
    """What lies in a dataset folder beside manifests and tables."""
    from shutil import copytree

    # A task that is made of labels that somebody gave.
    task = Path(copytree(dataset / "tasks" / "buys", dataset / "tasks" / "given"))
    about = yaml.safe_load((task / "manifest.yaml").read_text())
    about |= {"name": "given", "labels": "file", "sql": None, "kind": "predefined"}
    (task / "manifest.yaml").write_text(yaml.safe_dump(about))
    frame = pd.DataFrame({"timestamp": pd.Timestamp("2020-01-03"), "id": range(4), "y": 1})
    frame.to_parquet(task / "labels.parquet", index=False)
    opened = relfrog.open_dataset(dataset)
    loaded: Any = load_task(opened, "buys")
    (dataset / "mapping.yaml").write_text(
        "tables:\n  people:\n    primary_key: id\n  orders:\n    primary_key: id\n    time: at\n"
    )

    def keys() -> None:
        source_keys(dataset, "people")
        read_entities(dataset, "people", "id", 4, [1, 2])
        check_records(opened, CheckReport())

    def checked() -> None:
        """As `relfrog check` reads it, and whoever replaces the dataset."""
        _objection(looked)
        report = CheckReport()
        if _check_manifest(looked / "manifest.yaml", report):
            again = relfrog.open_dataset(looked)
            if _check_files(again, report):
                read_tables(again)
        if not report.ok:
            raise relfrog.RelFrogError(str(report.findings[0]))

    looked = Path(copytree(dataset, dataset.parent / "looked at"))
    write_json(looked / "import.json", {"source": str(dataset), "tables": {}})

    def asked() -> None:
        """As `relfrog ask` reads it, to see whether the dataset is of this source."""
        known = _imported_from(looked)
        if known is None or not same_source(known, str(dataset)):
            raise relfrog.RelFrogError("of another source")

    return {
        "checked manifest.yaml": (looked / "manifest.yaml", as_yaml, checked),
        "asked import.json": (looked / "import.json", as_json, asked),
        "keys.parquet": (dataset / "keys" / "people.parquet", as_parquet, keys),
        "task labels.parquet": (
            task / "labels.parquet", as_parquet,
            lambda: read_labels(task / "labels.parquet", opened, loaded, "train"),
        ),
        "kept mapping.yaml": (dataset / "mapping.yaml", as_yaml, lambda: read_kept(dataset)),
    }  # fmt: skip


def _text_model(folder: Path) -> dict[str, Entry]:
    """A folder of a language model, which a run may name; what would run code is refused."""
    dense = folder / "2_Dense"
    dense.mkdir(parents=True)
    library = "sentence_transformers.models"
    write_json(
        folder / "modules.json",
        [{"idx": 0, "name": "0", "path": "", "type": f"{library}.Transformer"},
         {"idx": 1, "name": "1", "path": "2_Dense", "type": f"{library}.Dense"}],
    )  # fmt: skip
    about = {"in_features": 3, "out_features": 2, "activation_function": "torch.nn.Tanh"}
    write_json(dense / "config.json", about)

    def read() -> None:
        """What sentence-transformers would import and call."""
        _refuse_code(folder)
        content = json.loads((folder / "modules.json").read_text())
        for module in content if isinstance(content, list) else []:
            if isinstance(module, dict):
                assert str(module["type"]).startswith("sentence_transformers."), module
                assert (folder / str(module.get("path", ""))).resolve().is_relative_to(folder)
        content = json.loads((dense / "config.json").read_text())
        called = content.get("activation_function") if isinstance(content, dict) else None
        assert called is None or "." not in called or called.startswith("torch.nn."), called

    folder = folder.resolve()
    return {
        "modules.json": (folder / "modules.json", as_modules, read),
        "dense config.json": (dense / "config.json", as_modules, read),
    }


def _audited(folder: Path) -> dict[str, Entry]:
    """Predictions that somebody made; the models to compare them with are trained once."""
    dataset = add_lists(tiny_dataset(folder / "ds"))
    opened = {name: open_task(dataset, name) for name in ("buys", "likes")}
    audited.open_task = lambda _, name: opened[name]
    audited._quick_models = lambda task: models[task.task.name]
    models = {name: {"first": _counts(task)} for name, task in opened.items()}
    times = pd.date_range("2020-01-09", periods=2)
    asked = pd.DataFrame({"id": [0, 1, 2, 3] * 2, "timestamp": times.repeat(4)})
    told = asked.assign(probability=[0.1, 0.9, 0.5, 0.5] * 2)
    lists = asked[:4].assign(order=[json.dumps([1, 2])] * 4)
    ranked = asked[:4].assign(rank=1, **{"orders.id": 3}, score=0.5)
    for name, frame in (("told", told), ("lists", lists), ("ranked", ranked)):
        frame.to_csv(folder / f"{name}.csv", index=False)
    told.to_parquet(folder / "told.parquet", index=False)

    def entry(file: str, task: str, change: Any) -> Entry:
        return folder / file, change, lambda: audited.audit(folder / file, dataset, task)

    return {
        "audited.csv": entry("told.csv", "buys", as_csv),
        "audited.parquet": entry("told.parquet", "buys", as_parquet),
        "audited lists.csv": entry("lists.csv", "likes", as_csv),
        "audited ranks.csv": entry("ranked.csv", "likes", as_csv),
    }


def _counts(task: OpenedTask) -> Any:
    """A model that counts past labels, which takes no time."""
    name = "past-visit" if task.task.name == "likes" else "mean"
    made = MODELS[name].load(task.kind)
    prepared = task.prepare(Config(model=name), encode=False)
    model = made(prepared, prepared.describe_labels(prepared.train_seeds))
    with tempfile.TemporaryDirectory() as place:
        model.fit(Path(place))
    return model
