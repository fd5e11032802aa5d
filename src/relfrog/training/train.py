"""`train`: from a dataset, a task and some settings to a run folder."""

from __future__ import annotations

import hashlib
import json
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from relfrog._version import __version__
from relfrog.config import Config, default_settings, parse_settings, read_preset, resolve
from relfrog.datasets.dataset import open_dataset, read_tables
from relfrog.datasets.tasks import load_task
from relfrog.errors import DatasetError, RelFrogWarning, RunError, TaskError, UsageError
from relfrog.kinds import BASELINES, NETWORKS
from relfrog.models.memory_check import check_room
from relfrog.models.prepared import Prepared, prepare, seeds_of
from relfrog.models.registry import baseline_class
from relfrog.support.files import appearing, locked, read_json, write_json, write_text
from relfrog.training.fits import RunInterrupted, learn, tidy
from relfrog.training.run import Run, chosen_device, load_run
from relfrog.training.run_folder import FORMAT, describe_database, is_run, read_run
from relfrog.training.trainer import Callback

__all__ = ["RunInterrupted", "train"]


def train(
    dataset: str | Path,
    task: str,
    out: str | Path,
    *,
    model: str | None = None,
    roles: str | Path | Mapping[str, float] | None = None,
    size: str | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str | None = None,
    baselines: bool = True,
    members: Mapping[str, str | Path] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train a model and write its run folder.

    Args:
        dataset: a dataset folder, or the name of a dataset that RelBench hosts.
        task: one of its tasks.
        out: the run folder to make.
        model: "frog" (the default), or another; see `relfrog.config.Config`.
        roles: "learned" (the default), "node", "edge", "random", or gates by route: a mapping, or
            the `roles.json` of another run.
        size: "small", "medium" (the default) or "large".
        preset: a preset, or a YAML file of settings.
        settings: single settings; see `relfrog.config.Config`.
        seed: of all random choices; 0 by default.
        resume: go on with a run that was interrupted; its own settings hold, and others are
            refused.
        overwrite: replace a run that is there already.
        device: "cpu", "cuda", ...; by default a GPU if there is one.
        baselines: whether to score quick baselines beside the model; `Run.baselines` has them.
        members: for "auto", finished runs by model; those of the same data, task and settings are
            taken over instead of being trained again.
        callbacks: told what happens; see `relfrog.training.trainer.Callback`.

    Raises:
        UsageError: Settings are wrong or contradict each other.
        RunError: Something is in the way, or the loss is no longer finite.
    """
    folder = Path(out).expanduser()
    gates = None if roles is None else _read_roles(roles)
    named = {"model": model, "seed": seed, "roles": roles if roles is None else str(roles)}
    if gates is not None:
        named["roles"] = "fixed"
    given = parse_settings(settings or {})
    for name, value in named.items():
        if value is not None and given.setdefault(name, value) != value:
            raise UsageError(f"{name} is given twice: {value} and {given[name]}.")
    if resume:
        if overwrite:
            raise UsageError("a run is either resumed or replaced: --resume or --overwrite.")
        dial = {"channels": default_settings(1, size)["channels"]} if size is not None else {}
        asked = dial | (read_preset(preset) if preset is not None else {}) | given
        return _resume(
            folder, str(dataset), task, asked, gates, device, callbacks, baselines, members or {}
        )
    _refuse(folder, overwrite)
    chosen_device(device)
    opened = open_dataset(dataset)
    # Before anything is read, nobody knows how many seeds there are: the largest batch counts.
    size = size or "medium"
    rough = default_settings(1 << 20, size) | (read_preset(preset) if preset else {}) | given
    check_room(str(dataset), read_tables(opened), **rough)
    loaded = load_task(opened, task)
    kind = loaded.task_type.value
    try:
        count = len(seeds_of(loaded, "train"))
    except (AssertionError, ValueError, LookupError) as error:
        raise TaskError(f"task {task}: no training labels ({error}).") from None
    if not count:
        raise TaskError(f"task {task}: no training labels. See relfrog check {dataset} {task}")
    config = resolve(count, size=size, preset=preset, settings=given, kind=kind)
    if config.roles == "fixed" and gates is None:
        raise UsageError("roles are fixed by a file of gates: --roles FILE.")
    if config.model in BASELINES:
        config = replace(config, history="on")  # these know nothing else
    prepared = _prepare(opened, loaded, config)
    if gates is not None:
        _check_gates(gates, prepared)
    where = (
        str(dataset)
        if not Path(dataset).expanduser().is_dir()
        else str(Path(dataset).expanduser().resolve())
    )
    about = {
        "format": FORMAT, "relfrog": __version__, "status": "training", "dataset": where,
        "task": task, "task_type": kind, "gates": gates,
        "schema": schema_fingerprint(prepared), "versions": _versions(config),
    }  # fmt: skip
    try:
        with appearing(folder, overwrite, _objection) as partial:
            write_text(partial / "config.yaml", config.to_yaml())
            write_json(partial / "run.json", about)
            write_json(partial / "database.json", describe_database(prepared, task))
    except DatasetError as error:
        raise RunError(str(error)) from None
    return learn(
        folder, about, config, prepared, device, callbacks,
        baselines=baselines, resume=False, train=train, members=members or {},
    )  # fmt: skip


def _prepare(dataset: Any, task: Any, config: Config) -> Prepared:
    """The database as the model reads it."""
    encode = config.model in NETWORKS
    if config.model in BASELINES:
        encode = baseline_class(config.model, task.task_type.value).encoded
    if config.history == "auto":
        config = replace(config, history="on")
    return prepare(dataset, task, config, encode=encode)


def _resume(
    folder: Path,
    dataset: str,
    task: str,
    given: Mapping[str, Any],
    gates: dict[str, float] | None,
    device: str | None,
    callbacks: Sequence[Callback],
    baselines: bool,
    members: Mapping[str, str | Path],
) -> Run:
    if not is_run(folder):
        raise RunError(f"{folder} is no run folder: there is nothing to resume.")
    about, config = read_run(folder)
    where = Path(dataset).expanduser()
    asked = str(where.resolve()) if where.is_dir() else dataset
    if (about["dataset"], about["task"]) != (asked, task):
        raise UsageError(
            f"{folder} is a run of task {about['task']} on {about['dataset']}. Name these, or "
            "choose another folder."
        )
    for name, value in given.items():
        kept = getattr(config, name)
        if value != kept and (about["status"], name) != ("complete", "history"):
            raise UsageError(
                f"{folder} was begun with {name}={kept}, not {value}, and keeps its settings. "
                "Leave it out, or train anew with --overwrite."
            )
    if gates is not None and gates != about.get("gates"):
        raise UsageError(f"{folder} was begun with other gates. Leave --roles out.")
    if about["status"] == "complete":
        with locked(folder):
            tidy(folder)
        return load_run(folder, device=chosen_device(device))
    opened = open_dataset(dataset)
    check_room(dataset, read_tables(opened), **asdict(config))
    loaded = load_task(opened, task)
    prepared = _prepare(opened, loaded, config)
    if schema_fingerprint(prepared) != about["schema"]:
        raise RunError(f"{folder}: the dataset's tables or columns have changed since. Train anew.")
    if config.model in NETWORKS:
        _warn_of_versions(folder, about, config)
    return learn(
        folder, about, config, prepared, device, callbacks,
        baselines=baselines, resume=True, train=train, members=members,
    )  # fmt: skip


def _warn_of_versions(folder: Path, about: Mapping[str, Any], config: Config) -> None:
    """Say so if a run goes on with other libraries than it was begun with."""
    begun, now = about.get("versions") or {}, _versions(config)
    other = [
        f"{name} {begun[name]}, now {now[name]}"
        for name in now
        if begun.get(name, now[name]) != now[name]
    ]
    if other:
        text = f"{folder} was begun with {'; '.join(other)}: its weights may differ a little."
        warnings.warn(text, RelFrogWarning, stacklevel=4)


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


def _versions(config: Config) -> dict[str, str]:
    import numpy
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "threads": str(config.threads),
    }


def _read_roles(roles: str | Path | Mapping[str, float]) -> dict[str, float] | None:
    """Gates by route, if they are given."""
    if isinstance(roles, Mapping):
        return {str(route): float(gate) for route, gate in roles.items()}
    if str(roles) in ("learned", "node", "edge", "random"):
        return None
    path = Path(roles).expanduser()
    if path.is_dir():
        path = path / "roles.json"
    if not path.is_file():
        raise UsageError(
            f"roles must be learned, node, edge, random, or a file of gates (got {str(roles)!r})."
        )
    found = read_json(path)
    try:
        if isinstance(found, dict):
            return {str(route): float(gate) for route, gate in found.items()}
        return {str(entry["route"]): float(entry["gate"]) for entry in found}
    except (TypeError, KeyError, ValueError):
        raise UsageError(f"{path} holds no gates by route. Take the roles.json of a run.") from None


def _check_gates(gates: Mapping[str, float], prepared: Prepared) -> None:
    routes = [str(route) for route in prepared.routes]
    missing = [route for route in routes if route not in gates]
    if missing:
        raise UsageError(
            f"roles: {len(missing)} of {len(routes)} routes have no gate, such as {missing[0]!r}."
        )
    wrong = [route for route in routes if not 0 <= gates[route] <= 1]
    if wrong:
        raise UsageError(
            f"roles: gates must be from 0 to 1 (got {gates[wrong[0]]} for {wrong[0]!r})."
        )


def _refuse(folder: Path, overwrite: bool) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if objection := _objection(folder):
        raise RunError(f"{folder} exists and {objection}. Choose another folder.")
    if not overwrite:
        raise RunError(
            f"{folder} holds a run already. Replace it with --overwrite, or go on with --resume."
        )


def _objection(folder: Path) -> str:
    """What speaks against replacing a folder; empty if it is a run in which nothing runs."""
    if not folder.is_dir() or not is_run(folder):
        return "is no run folder"
    with locked(folder):
        return ""
