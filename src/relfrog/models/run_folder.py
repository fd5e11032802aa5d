"""Run folders: everything about a run, in plain files.

::

    run.json             dataset, task, labels, schema, versions, duration
    config.yaml          all settings
    database.json        the training data: tables, keys, times, the task, a fingerprint
    columns.json         types and statistics of the columns, from rows before the validation time
    columns.safetensors  their arrays
    model.safetensors    the weights with the best validation metric
    roles.json           the gate of each route
    history.jsonl        one line per epoch
    postprocessing.json  calibration, decision thresholds, intervals, fitted on validation
    metrics.json         scores of the saved weights, by split and regime
    baselines.json       scores of quick baselines, by model, split and regime
    backtests.json       of LightGBM and `auto`: what was chosen by backtests, and how sure that is
    backtests.safetensors  of LightGBM: what it predicted there
    unseen.json          categories that the model has not seen, to warn only of newer ones
    report.html          the report
    shown.json           what the report computed from the data, with its arrays:
    shown.safetensors
    checkpoint.safetensors         state of an unfinished run; removed at the end
    checkpoint-before.safetensors  the checkpoint before it, in case it is damaged

Models without a network have `baseline.json`, or `lightgbm.json` and LightGBM's text files, instead
of weights; `auto` has `blend.json` and the run folders of its members under `members`.

Opening a run folder executes nothing: it contains only JSON, YAML (read safely), safetensors and
text.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from relfrog._version import __version__
from relfrog.config import Config, parse_settings
from relfrog.datasets.dataset import is_at_hand
from relfrog.datasets.files import inherited_in_files
from relfrog.datasets.task_file import splits_of
from relfrog.datasets.tasks import read_task_manifest
from relfrog.errors import DatasetError, RunError, UsageError
from relfrog.models.run_forms import LABELS, CompleteRun, RunFile
from relfrog.store.file_table import column_names
from relfrog.support.files import (
    atomic_folder,
    locked,
    recover,
    write_json,
    write_text,
)
from relfrog.support.folder_check import check_inside
from relfrog.support.forms import fits, read_json, read_yaml
from relfrog.support.times import MISSING, moment_text
from relfrog.training.prepared import Prepared

__all__ = [
    "BACKTESTS",
    "BLEND",
    "FORMAT",
    "MEMBERS",
    "begin",
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
        return "relfrog" in read_json(folder / "run.json", dict[str, Any])
    except RunError:
        return False


def begin(
    folder: Path,
    prepared: Prepared,
    config: Config,
    *,
    overwrite: bool = False,
    **about: Any,
) -> dict[str, Any]:
    """Create the run folder before training.

    Args:
        folder: the run folder.
        prepared: the prepared task.
        config: the settings.
        overwrite: whether to replace an existing run.
        about: dataset, task and gates of the run.

    Returns:
        The content of `run.json`.
    """
    whole = {
        "format": FORMAT, "relfrog": __version__, "status": "training", **about,
        "task_type": prepared.kind, "schema": schema_fingerprint(prepared),
        "versions": versions(config), "splits": splits_of(prepared.task),
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
    """Why a folder must not be replaced; empty for a run that no process is training."""
    if not folder.is_dir() or not is_run(folder):
        return "is no run folder"
    with locked(folder):
        return ""


def schema_fingerprint(prepared: Prepared) -> str:
    """A hash of what a model's weights depend on: tables, keys and columns of the database."""
    graph, columns, added = prepared.graph, prepared.columns, prepared.history
    content = {
        "tables": {
            n: list(columns.tables[n].dense_names)
            if n in columns.tables
            else sorted(map(str, column_names(prepared.db.table_dict[n])))
            for n in graph.num_rows
            if n != added
        },
        "keys": [[k.table, k.column, k.parent] for k in graph.foreign_keys if k.table != added],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def versions(config: Config) -> dict[str, str]:
    """Versions and threads, which affect the last digits of the weights."""
    import torch

    return {
        "python": platform.python_version(), "torch": torch.__version__,
        "numpy": np.__version__, "threads": str(config.threads),
    }  # fmt: skip


def describe_database(prepared: Prepared, name: str) -> dict[str, Any]:
    """Describe tables, foreign keys, split times and a task, for `database.json`."""
    graph, task, dataset = prepared.graph, prepared.task, prepared.dataset
    manifest = dataset.manifest
    heirs = inherited_in_files(dataset)
    tables = []
    for table, rows in graph.num_rows.items():
        first, last = _span(prepared, table)
        spec = manifest.tables.get(table)
        inherited = heirs.get(table, ())
        columns = prepared.columns.tables.get(table)  # None if nothing was encoded
        tables.append(
            {
                "name": table, "rows": rows, "history": table == prepared.history,
                "primary_key": None if spec is None else spec.pkey,
                "time_column": prepared.db.table_dict[table].time_col,
                "time_inherited_from": [
                    {"column": key.column, "parent": key.parent}
                    for key in graph.foreign_keys
                    if key.table == table and key.column in inherited
                ],
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
            "completes": task.completes,
            "horizon_seconds": task.timedelta.total_seconds(),
            "k": int(task.eval_k) if prepared.target_table else None,
        },
        "tables": tables,
        "foreign_keys": keys,
        "fingerprint": fingerprint(prepared),
    }


def _span(prepared: Prepared, table: str) -> tuple[str | None, str | None]:
    times = prepared.graph.time(table)
    known = None if times is None else times[times != MISSING]
    if known is None or not len(known):
        return None, None
    unit = f"datetime64[{prepared.graph.unit}]"
    first, last = np.array([known.min(), known.max()]).astype(unit)
    return moment_text(first), moment_text(last)


def fingerprint(prepared: Prepared) -> str:
    """A hash of the data: it changes with any value, row, key or time."""
    digest = hashlib.blake2b(digest_size=12)
    graph, parts = prepared.graph, prepared.opened.parts
    if parts is not None:
        content = parts.content(prepared.opened.db)
        digest.update(json.dumps(content, sort_keys=True, default=str).encode())
        return digest.hexdigest()
    for part in (graph.parents, graph.times):
        digest.update(np.ascontiguousarray(part).data)
    for name in sorted(prepared.features):
        features: Any = prepared.features[name]
        digest.update(f"{name} {graph.num_rows[name]}".encode())
        for tensor in (
            features.dense, features.codes, features.moments,
            features.bag_offsets, features.bag_values,
        ):  # fmt: skip
            if tensor is not None and tensor.numel():
                digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()


#: In a run of `auto`: the folder of its members, and the file with the weights of the blend.
MEMBERS, BLEND = "members", "blend.json"
#: What was chosen by backtests, and how sure that is.
BACKTESTS = "backtests.json"


def read_run(folder: Path) -> tuple[dict[str, Any], Config]:
    """Read `run.json` and `config.yaml` of a run, complete or not.

    Raises:
        RunError: It is not a run folder, or is damaged.
    """
    recover(folder.parent, folder.name)  # a killed process may have been replacing it
    if not is_run(folder):
        raise RunError(
            f"{folder} is no run folder. Make one: relfrog train DATASET TASK --out {folder}"
        )
    check_inside(folder, RunError)
    path = folder / "run.json"
    about = read_json(path, dict[str, Any])
    if about.get("format") != FORMAT:
        raise RunError(f"{folder}: of format {about.get('format')}; this version reads {FORMAT}.")
    about = read_json(path, CompleteRun if about.get("status") == "complete" else RunFile)
    if not is_at_hand(about["dataset"]):
        raise RunError(
            f"{folder} was trained on {about['dataset']}, which is not on this machine. If you "
            f"know whose that is, get it first: relfrog inspect {shlex.quote(about['dataset'])}"
        )
    if "labels" in about and (wrong := fits(about["labels"], LABELS[about["task_type"]])):
        raise RunError(f"{path} is damaged (labels: {wrong}). Train again.")
    try:
        settings = read_yaml(folder / "config.yaml", "it", RunError)
        return about, Config(**parse_settings(settings))
    except (AttributeError, TypeError, ValueError, RunError, UsageError) as error:
        text = " ".join(str(error).split())
        raise RunError(f"{folder}: config.yaml is damaged ({text}). Train again.") from None


def resume_command(folder: Path) -> str:
    """The command that resumes an interrupted run."""
    about = read_json(folder / "run.json", RunFile)
    words = ["relfrog", "train", about["dataset"], about["task"], "--out", folder, "--resume"]
    return " ".join(shlex.quote(str(word)) for word in words)
