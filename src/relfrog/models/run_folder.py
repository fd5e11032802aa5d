"""Run folders: everything a run is, in plain files.

::

    run.json             what was trained on what: dataset, task, labels, schema, versions, seconds
    config.yaml          the settings, all of them
    database.json        what it was trained on: tables, keys, times, the task, a fingerprint
    columns.json         types and statistics of the columns, from rows before the validation cut
    columns.safetensors  their arrays
    model.safetensors    the weights with the best validation metric
    roles.json           the gate of each route
    history.jsonl        one line per epoch
    metrics.json         scores of the saved weights, by split and regime
    baselines.json       scores of quick baselines beside it, by model, split and regime
    unseen.json          categories of the database that the model has not seen, to name newer ones
    report.html          what was learned, for people
    shown.json           what the report computed from the data; with its arrays:
    shown.safetensors
    checkpoint.safetensors  where an interrupted run goes on; gone when it has ended
    checkpoint-before.safetensors  the one before it, should it be damaged

Models without a network have `baseline.json`, or `lightgbm.json` and LightGBM's text, in place of
weights; `auto` has `blend.json` and the run folders of its members under `members`.

Nothing in it is executed when it is opened: JSON, YAML (safe), safetensors and text alone.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from relfrog._version import __version__
from relfrog.config import Config, parse_settings
from relfrog.datasets.protocols import Dataset
from relfrog.datasets.tasks import read_task_manifest
from relfrog.errors import DatasetError, RunError, UsageError
from relfrog.support.files import (
    atomic_folder,
    locked,
    read_json,
    recover,
    write_json,
    write_text,
)
from relfrog.support.times import MISSING
from relfrog.training.prepared import Prepared

__all__ = [
    "BLEND",
    "FORMAT",
    "MEMBERS",
    "begin",
    "check_times",
    "describe_database",
    "fingerprint",
    "is_run",
    "objection",
    "read_run",
    "resume_command",
    "schema_fingerprint",
    "versions",
]


FORMAT = 1


def is_run(folder: Path) -> bool:
    """Whether a folder is a run folder."""
    try:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(about, dict) and "relfrog" in about


def begin(
    folder: Path,
    prepared: Prepared,
    config: Config,
    *,
    overwrite: bool = False,
    **about: Any,
) -> dict[str, Any]:
    """Make the folder of a run whose training begins now.

    Args:
        folder: the run folder.
        prepared: what the model will read.
        config: the settings.
        overwrite: whether a run that is there already is replaced.
        about: of the run: its dataset, task and gates.

    Returns:
        What `run.json` says.
    """
    whole = {
        "format": FORMAT, "relfrog": __version__, "status": "training", **about,
        "task_type": prepared.kind, "schema": schema_fingerprint(prepared),
        "versions": versions(config),
    }  # fmt: skip
    try:
        with atomic_folder(folder, overwrite, objection) as partial:
            write_text(partial / "config.yaml", config.to_yaml())
            write_json(partial / "run.json", whole)
            write_json(partial / "database.json", describe_database(prepared, about["task"]))
    except DatasetError as error:
        raise RunError(str(error)) from None
    return whole


def objection(folder: Path) -> str:
    """Why a folder must not be replaced; empty if it is a run in which nothing runs."""
    if not folder.is_dir() or not is_run(folder):
        return "is no run folder"
    with locked(folder):
        return ""


def schema_fingerprint(prepared: Prepared) -> str:
    """What a model's weights depend on: tables, keys, and columns of the database itself."""
    graph, columns, added = prepared.graph, prepared.columns, prepared.history
    content = {
        "tables": {
            n: list(columns.tables[n].dense_names)
            if n in columns.tables
            else sorted(map(str, prepared.db.table_dict[n].df))
            for n in graph.num_rows
            if n != added
        },
        "keys": [[k.table, k.column, k.parent] for k in graph.foreign_keys if k.table != added],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def versions(config: Config) -> dict[str, str]:
    """What decides the last digits of the weights, beside the data."""
    import torch

    return {
        "python": platform.python_version(), "torch": torch.__version__,
        "numpy": np.__version__, "threads": str(config.threads),
    }  # fmt: skip


def describe_database(prepared: Prepared, name: str) -> dict[str, Any]:
    """Tables, foreign keys, split times and the task of this name, for `database.json`."""
    graph, task, dataset = prepared.graph, prepared.task, prepared.dataset
    manifest = dataset.manifest
    tables = []
    for table, rows in graph.num_rows.items():
        first, last = _span(prepared, table)
        spec = manifest.tables.get(table)
        columns = prepared.columns.tables.get(table)  # not there where nothing was encoded
        tables.append(
            {
                "name": table, "rows": rows, "history": table == prepared.history,
                "primary_key": None if spec is None else spec.pkey,
                "time_column": "window_end" if spec is None else spec.time_col,
                "first_time": first, "last_time": last,
                "columns": len({c.name for c in columns.columns}) if columns else None,
            }
        )  # fmt: skip
    keys = [
        {
            "table": key.table, "column": key.column, "parent": key.parent,
            "filled": float((graph.parent(key) >= 0).mean()) if graph.num_rows[key.table] else 0.0,
        }
        for key in graph.foreign_keys
    ]  # fmt: skip
    return {
        "name": manifest.name,
        "val_timestamp": str(dataset.val_timestamp),
        "test_timestamp": str(dataset.test_timestamp),
        "newest": None if prepared.newest is None else str(prepared.newest),
        "task": {
            "description": read_task_manifest(dataset, name)[0].description,
            "entity_table": task.entity_table,
            "target_table": prepared.target_table,
            "label": task.target_col,
            "horizon_seconds": task.timedelta.total_seconds(),
            "k": int(task.eval_k) if prepared.target_table else None,
        },
        "tables": tables,
        "foreign_keys": keys,
        "fingerprint": fingerprint(prepared),
    }


def check_times(folder: Path, dataset: Dataset) -> None:
    """Check that rows are still seen from the times that a run was trained with.

    Raises:
        RunError: A table has another time column now.
    """
    try:
        before = read_json(folder / "database.json")["tables"]
        times = {t["name"]: t["time_column"] for t in before if not t["history"]}
    except (RunError, KeyError, TypeError):
        return  # whoever needs the file says that it is damaged
    for name, table in dataset.manifest.tables.items():
        old, new = times.get(name, table.time_col), table.time_col
        if old != new:
            again = f"--time {name}.{old or 'none'}"
            raise RunError(
                f"{folder}: the time column of table {name} was {old or 'none'} in training and is "
                f"{new or 'none'} now, so its rows are seen from other times. Import with {again}, "
                "or train again."
            )


def _span(prepared: Prepared, table: str) -> tuple[str | None, str | None]:
    times = prepared.graph.time(table)
    known = None if times is None else times[times != MISSING]
    if known is None or not len(known):
        return None, None
    unit = f"datetime64[{prepared.graph.unit}]"
    first, last = np.array([known.min(), known.max()]).astype(unit)
    return str(pd.Timestamp(first)), str(pd.Timestamp(last))


def fingerprint(prepared: Prepared) -> str:
    """A name for exactly these data: another value, row, key or time gives another name."""
    digest = hashlib.blake2b(digest_size=12)
    graph = prepared.graph
    for part in (graph.parents, graph.times):
        digest.update(np.ascontiguousarray(part).data)
    for name in sorted(prepared.features):
        features = prepared.features[name]
        digest.update(f"{name} {graph.num_rows[name]}".encode())
        for tensor in (
            features.dense, features.codes, features.moments,
            features.bag_offsets, features.bag_values,
        ):  # fmt: skip
            if tensor is not None and tensor.numel():
                digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()


#: Of a run of `auto`: the folder of its members, and the file that says which of them answer.
MEMBERS, BLEND = "members", "blend.json"


def read_run(folder: Path) -> tuple[dict[str, Any], Config]:
    """What `run.json` and `config.yaml` say, be the run complete or not.

    Raises:
        RunError: It is no run folder, or is damaged.
    """
    recover(folder.parent, folder.name)  # a killed process may have been replacing it
    if not is_run(folder):
        raise RunError(
            f"{folder} is no run folder. Make one: relfrog train DATASET TASK --out {folder}"
        )
    about = read_json(folder / "run.json")
    if about.get("format") != FORMAT:
        raise RunError(f"{folder}: of format {about.get('format')}; this version reads {FORMAT}.")
    for name in ("status", "dataset", "task", "task_type"):
        if not isinstance(about.get(name), str):
            raise RunError(f"{folder}: damaged (run.json has no {name}). Train again.")
    try:
        settings = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        config = Config(**parse_settings(settings))
    except (
        OSError, yaml.YAMLError, RecursionError, AttributeError, TypeError, ValueError, UsageError
    ) as error:  # fmt: skip
        text = " ".join(str(error).split())
        raise RunError(f"{folder}: config.yaml is damaged ({text}). Train again.") from None
    return about, config


def resume_command(folder: Path) -> str:
    """How to go on with a run that was interrupted."""
    about = read_json(folder / "run.json")
    words = ["relfrog", "train", about["dataset"], about["task"], "--out", folder, "--resume"]
    return " ".join(shlex.quote(str(word)) for word in words)
