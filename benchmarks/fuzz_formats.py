"""Damaged and hostile files of every format, made by someone who knows its form.

Each format has a sound sample, a way to change it, and the reader that RelFrog uses. Changes keep
to the form: a branch of a tree is replaced or removed, a column gets another type, a node of a tree
another child; some bytes are simply wrong. A case is read, or refused in words.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import relfrog
from fuzz_changes import as_booster, as_json, as_lines, as_parquet, as_safetensors, as_yaml
from fuzz_given import given_formats
from fuzz_kept import kept_formats
from fuzz_samples import LABELS, add_lists, tiny_dataset
from relfrog.config import Config
from relfrog.datasets import label_sql
from relfrog.datasets.files import database_in_files
from relfrog.datasets.key_views import find_source_keys
from relfrog.datasets.tasks import load_task
from relfrog.features.columns import Columns, fit_columns
from relfrog.graph.relational import build_graph, open_graph
from relfrog.importing.corrections import read_corrections
from relfrog.models.auto import read_blend
from relfrog.models.booster_file import checked_model, load_lightgbm
from relfrog.models.postprocessing.bundle import load_postprocessing
from relfrog.models.run_folder import read_run
from relfrog.models.run_forms import BacktestsFile, Constant, DatabaseFile, TreesFile
from relfrog.runs.run import Run
from relfrog.support.forms import read_json
from relfrog.support.tensors import load_tensors

__all__ = ["FORMATS", "LABELS", "MENDED", "Format", "make_formats", "tiny_dataset"]


@dataclass
class Format:
    """A format: where its sample is, how it is changed, and how it is read."""

    path: Path
    change: Callable[[random.Random, bytes], bytes]
    read: Callable[[], Any]
    sample: bytes = b""

    def __post_init__(self) -> None:
        self.read()  # the sample itself is sound
        self.sample = self.path.read_bytes()

    def try_case(self, rng: random.Random) -> None:
        """Read a changed file, which stays."""
        self.path.parent.mkdir(parents=True, exist_ok=True)  # damaged parts are removed
        self.path.write_bytes(self.change(rng, self.sample))
        self.read()

    def put_back(self) -> None:
        """Write the sample again."""
        self.path.write_bytes(self.sample)


#: All formats, the quickest first.
FORMATS = (
    "roles.json", "metrics.json", "history.jsonl", "baselines.json", "blend.json",
    "postprocessing.json", "baseline.json", "lightgbm.json", "backtests.json", "database.json",
    "graph.json",
    "columns.json", "columns.safetensors", "model.safetensors", "lightgbm.txt", "import.json",
    "run.json", "labels.parquet", "table.parquet", "task manifest.yaml", "dataset manifest.yaml",
    "mapping.yaml", "config.yaml",
    # What users give, and what is kept between commands: `fuzz_given`, `fuzz_kept`.
    "unseen.json", "certificate.json", "ranker.json", "gates.json", "results.json",
    "differences.json", "facts.json", ".relfrog-written.json", "fingerprint.json", "trail.json",
    "table.json", "predicted.npy", "part.json", "encoded.json", "codes.npy", "parents.npy",
    "entities.csv", "given labels.csv", "given labels.csv.gz", "preset.yaml", "entities.parquet",
    "given labels.parquet", "keys.parquet", "task labels.parquet", "kept mapping.yaml",
    "checkpoint.safetensors", "shown.json", "shown.safetensors", "tune.journal", "source.csv",
    "source.csv.gz", "source.parquet", "source.db", "source.duckdb", "cells.json",
    "unfinished.json", "predicted manifest.json", "predicted part.parquet", "audited.csv",
    "audited.parquet", "audited lists.csv", "audited ranks.csv", "list labels.parquet",
    "features.json", "table in place.parquet", "modules.json", "dense config.json",
    "resumed history.jsonl", "kept history.parquet", "kept labels.parquet",
    "checked manifest.yaml", "asked import.json", "backtests.safetensors",
)  # fmt: skip


#: Formats of which what is damaged is left out or made anew, so that nothing is refused.
MENDED = (
    "certificate.json", ".relfrog-written.json", "fingerprint.json", "trail.json", "table.json",
    "predicted.npy", "part.json", "encoded.json", "codes.npy", "parents.npy", "kept mapping.yaml",
    "cells.json", "kept history.parquet", "kept labels.parquet",
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
        "lightgbm.json": {
            "models": 1, "parts": 1, "files": {"a": "b"},
            "features": {
                "keys": [["a", "b", "c"]], "sizes": {"a": 1}, "cells": [], "history": "labels",
            },
        },
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
    trees = folder / "run of trees"  # the run itself has none
    trees.mkdir()
    (run / "lightgbm.json").rename(trees / "lightgbm.json")
    (run / "config.yaml").write_text(Config().to_yaml())
    dataset = add_lists(tiny_dataset(folder / "tiny"))
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

    # What does not depend on the file that is changed is opened once.
    found = relfrog.open_dataset(dataset)
    buys, likes = (load_task(found, name) for name in ("buys", "likes"))

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
            trees / "lightgbm.json", as_json,
            lambda: read_json(trees / "lightgbm.json", TreesFile),
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
        "dataset manifest.yaml": (
            dataset / "manifest.yaml", as_yaml, lambda: relfrog.open_dataset(dataset).get_db()
        ),
        "task manifest.yaml": (
            task / "manifest.yaml", as_yaml, lambda: load_task(found, "buys").get_table("train")
        ),
        "import.json": (
            dataset / "import.json", as_json, lambda: find_source_keys(found),
        ),
        "mapping.yaml": (
            folder / "mapping.yaml", as_yaml, lambda: read_corrections(folder / "mapping.yaml")
        ),
        "table.parquet": (dataset / "db" / "orders.parquet", as_parquet, found.get_db),
        "table in place.parquet": (
            dataset / "db" / "orders.parquet", as_parquet, lambda: read_in_place(found)
        ),
        "labels.parquet": (task / "train.parquet", as_parquet, lambda: buys.get_table("train")),
        "list labels.parquet": (
            dataset / "tasks" / "likes" / "train.parquet", as_parquet,
            lambda: likes.get_table("train"),
        ),
        **given_formats(folder, dataset), **kept_formats(folder, dataset, opened),
    }  # fmt: skip
    assert set(read) == set(FORMATS)
    return {name: Format(*read[name]) for name in names}


def read_in_place(dataset: Any) -> None:
    """Read the tables as training does: in their files, column by column, and for label SQL."""
    db = database_in_files(dataset)
    fit_columns(db, before=pd.Timestamp("2020-01-06"))
    for table in db.table_dict.values():
        with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
            label_sql._write(Path(file.name), table)
