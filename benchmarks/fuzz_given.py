"""Formats of what users give and what RelFrog keeps for itself: see `fuzz_formats`.

Databases and folders to import, lists of entities, labels, presets, gates; and what is kept between
commands: the cache folder, checkpoints, the material of reports, searches.
"""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import torch
import yaml
from relbench.base import Table

import relfrog
from fuzz_changes import (
    as_csv,
    as_database,
    as_gzip,
    as_json,
    as_lines,
    as_npy,
    as_parquet,
    as_progress,
    as_safetensors,
    as_yaml,
)
from relfrog.analysis.explained import Explanation, FeatureShare, Reason, TableShare
from relfrog.analysis.fd_space import Differences
from relfrog.analysis.importance import Importance, TableImportance
from relfrog.config import Config, read_preset
from relfrog.datasets.checks import CheckReport
from relfrog.datasets.checks.records import check_records
from relfrog.datasets.dataset import source_keys
from relfrog.datasets.entities import read_entities
from relfrog.datasets.external import read_label_table, read_labels
from relfrog.datasets.files import _read_facts, _unpacked, database_in_files
from relfrog.datasets.tasks import load_task
from relfrog.experiments.study_job import DifferencesFile
from relfrog.experiments.study_run import _check_folder
from relfrog.experiments.tune import open_search
from relfrog.features.columns import fit_columns
from relfrog.features.novelty import warn_of_new_categories
from relfrog.importing.kept import read_kept
from relfrog.io.marks import LIST, MARK, is_marked_file
from relfrog.io.sources import ReadAgain, files, open_source
from relfrog.io.sources.duck import memory_connection
from relfrog.models.aggregates.encoded_tables import load_features, save_features
from relfrog.models.run_forms import RankerFile
from relfrog.reporting.gather import gather
from relfrog.reporting.material import Answers, Material
from relfrog.reporting.page import page
from relfrog.reporting.saved import keep, recall
from relfrog.reporting.sections.provenance import _certificates
from relfrog.runs.run import Run
from relfrog.runs.train import _read_roles
from relfrog.store.parts import Store
from relfrog.support.files import write_json
from relfrog.support.forms import read_json
from relfrog.training import checkpoint
from relfrog.training.seeds import Seeds
from relfrog.training.task_store import TaskStore

__all__ = ["given_formats"]

#: A format: its sample, how it is changed, how it is read.
Entry = tuple[Path, Callable[[random.Random, bytes], bytes], Callable[[], Any]]


def given_formats(folder: Path, dataset: Path, run: Run) -> dict[str, Entry]:
    """All formats of this module.

    Args:
        folder: Where their samples are written.
        dataset: A dataset folder.
        run: A run.
    """
    return {
        **_sources(folder / "sources"), **_user_files(folder / "given", dataset),
        **_dataset_files(dataset), **_run_files(run), **_studies(folder / "study"),
        **_store_files(folder / "store", dataset),
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

    return {
        "keys.parquet": (dataset / "keys" / "people.parquet", as_parquet, keys),
        "task labels.parquet": (
            task / "labels.parquet", as_parquet,
            lambda: read_labels(task / "labels.parquet", opened, loaded, "train"),
        ),
        "kept mapping.yaml": (dataset / "mapping.yaml", as_yaml, lambda: read_kept(dataset)),
    }  # fmt: skip


def _run_files(run: Run) -> dict[str, Entry]:
    """What lies in a run folder beside what a model learned."""
    folder = run.folder
    write_json(folder / "unseen.json", {"people.city": ["Rom", "Oslo"]})
    write_json(folder / "p.certificate.json", {"sentence": "No row was later."})
    write_json(folder / "ranker.json", {"files": {"ranker.txt": "a" * 64}})
    network = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(network.parameters())

    def step() -> None:
        network(torch.ones(1, 3)).sum().backward()
        optimizer.step()

    step()
    trainer: Any = SimpleNamespace(
        network=network, average=None, dependencies=None, device=torch.device("cpu"),
        optimizers=lambda: {"optimizer": optimizer}, folder=folder / "begun",
        at=checkpoint.TrainerState(),
    )  # fmt: skip
    trainer.folder.mkdir()
    checkpoint.save(trainer)
    sound = [{k: v.clone() for k, v in network.state_dict().items()}]

    def resume() -> None:
        network.load_state_dict(sound[0])
        checkpoint.load(trainer)
        step()

    when = pd.Timestamp("2020-11-01")
    count = 8
    answers = Answers(
        Seeds(np.arange(count), pd.Series([when] * count)), np.arange(count) % 2,
        np.linspace(0.1, 0.9, count), np.arange(count), [f"P{i}" for i in range(count)],
    )  # fmt: skip
    reason = Reason("orders", "7", when, 1, 0.1, {"amount": "3"}, (-1,))
    share = FeatureShare("count of orders", "orders", 2.0, 3, None, when, 0.2)
    shown = Material(
        run, answers=answers,
        importance=Importance(
            "roc_auc", 0.7, 8, 8, (TableImportance("orders", None, (0.1, 0.0, 0.2), None),)
        ),
        explanations=[
            Explanation("people", "P1", when, 0.5, "probability",
                        (TableShare("orders", 3, when, 0.1),), (reason,), 3, (share,), 0.3)
        ],
        differences=Differences(
            np.zeros((2, 2)), ["orders.person -> people"] * 2, np.array([True, False]),
            {"orders.person -> people": 0.7}, {"orders.person -> people": 0.7}, 0.1, 0.5
        ),
    )  # fmt: skip
    keep(shown, deep=False)
    drawn = [0]

    def report() -> None:
        found = Material(run)
        if not recall(found, deep=False):
            raise relfrog.RelFrogError("not recalled")
        drawn[0] += 1
        if drawn[0] % 500 == 1:  # half a second: what does not fit is computed again
            try:
                page(gather(run))
            except Exception as error:
                assert gather(run).kept
                raise relfrog.RelFrogError("not drawn") from error

    return {
        "unseen.json": (
            folder / "unseen.json", as_json,
            lambda: warn_of_new_categories({"people.city": ["Bonn"]}, folder),
        ),
        "certificate.json": (
            folder / "p.certificate.json", as_json, lambda: _certificates(folder)
        ),
        "ranker.json": (
            folder / "ranker.json", as_json, lambda: read_json(folder / "ranker.json", RankerFile)
        ),
        "checkpoint.safetensors": (trainer.folder / checkpoint.LAST, as_progress, resume),
        "shown.json": (folder / "shown.json", as_json, report),
        "shown.safetensors": (folder / "shown.safetensors", as_safetensors, report),
    }  # fmt: skip


def _studies(folder: Path) -> dict[str, Entry]:
    """What a study leaves for the next time."""
    folder.mkdir(parents=True)
    write_json(folder / "results.json", {"study": "main", "runs": []})
    write_json(
        folder / "differences.json",
        {"points": [[0.0, 1.0]], "key": ["a"], "matched": [True], "separation": {"a": 0.5},
         "scored": {"a": None}, "silhouette": None, "explained": 0.5},
    )  # fmt: skip
    journal = folder / "shop.journal"
    study = open_search(journal, "shop", True)
    import optuna

    space = {"lr": optuna.distributions.CategoricalDistribution([0.1, 0.2])}
    for _ in range(2):
        study.tell(study.ask(space), 0.5)
    return {
        "results.json": (folder / "results.json", as_json, lambda: _check_folder(folder, "main")),
        "differences.json": (
            folder / "differences.json", as_json,
            lambda: read_json(folder / "differences.json", DifferencesFile),
        ),
        "tune.journal": (journal, as_lines, lambda: open_search(journal, "shop", True)),
    }  # fmt: skip


def _store_files(folder: Path, dataset: Path) -> dict[str, Entry]:
    """Parts in the cache folder: what is damaged is made anew, and the result is the same."""
    folder.mkdir(parents=True)
    store = Store(folder)
    opened = relfrog.open_dataset(dataset)
    db: Any = database_in_files(opened)
    columns = fit_columns(db, before=pd.Timestamp("2020-01-06"))
    values = np.arange(6.0)
    parts = TaskStore(opened, load_task(opened, "buys"), store)

    def encoded() -> None:
        parts.encode("orders", db.table_dict["orders"], columns.tables["orders"])

    def history() -> None:
        parts.history(db, lambda: Table(pd.DataFrame({"y": [1]}), {"id": "people"}, None, None))

    def part(kind: str, build: Any, load: Any) -> Any:
        return lambda: store.use(kind, {"a": 1}, build, load)

    def array() -> None:
        found = part(
            "predictions", lambda place: np.save(place / "predicted.npy", values),
            lambda place: np.load(place / "predicted.npy", allow_pickle=False),
        )()  # fmt: skip
        assert found.dtype.kind in "biufcSUMmV"

    features = part(
        "features", lambda place: save_features(place, np.zeros((2, 3), np.float32), []),
        load_features,
    )  # fmt: skip

    def header() -> None:
        array()
        list(store.parts())
        store.damaged(file("predictions", "").name)

    listed = folder / "listed.txt"
    listed.write_text("x")

    facts = folder / "facts.json"
    write_json(
        facts,
        {"known_from": {"people": {"column": "k", "file": "known-0.parquet", "keys": ["who"]}},
         "spans": {"orders": [[1, "us", None], None]}},
    )  # fmt: skip

    def read_facts() -> None:
        found = _read_facts(folder, db.table_dict)
        for span in found["spans"].values():
            _unpacked(span)

    def file(kind: str, name: str) -> Path:
        return next((folder / "parts").glob(f"{kind}-*")) / name

    array()
    features()
    encoded()
    history()
    parts.graph(db)
    store.fingerprint(listed)
    record = next((folder / "files").glob("*.json"))
    return {
        "part.json": (file("predictions", "part.json"), as_json, header),
        "predicted.npy": (file("predictions", "predicted.npy"), as_npy, array),
        "trail.json": (file("features", "trail.json"), as_json, features),
        "encoded.json": (file("encoded", "encoded.json"), as_json, encoded),
        "codes.npy": (file("encoded", "codes.npy"), as_npy, encoded),
        "table.json": (file("history", "table.json"), as_json, history),
        "parents.npy": (file("graph", "parents.npy"), as_npy, lambda: parts.graph(db)),
        "facts.json": (facts, as_json, read_facts),
        "fingerprint.json": (record, as_json, lambda: store.fingerprint(listed)),
    }  # fmt: skip
