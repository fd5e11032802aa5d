"""`train`: from a dataset, a task and some settings to a run folder."""

from __future__ import annotations

import errno
import hashlib
import json
import platform
import resource
import shutil
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from relfrog import checkpoints
from relfrog._version import __version__
from relfrog.auto import fit_members
from relfrog.baselines import baseline_class
from relfrog.beside import FILE, score_baselines
from relfrog.config import Config, parse_settings, read_preset, resolve
from relfrog.dataset import open_dataset, read_tables
from relfrog.describing import describe_database
from relfrog.errors import DatasetError, RelFrogWarning, RunError, TaskError, UsageError
from relfrog.evaluation import REGIMES, better
from relfrog.folders import appearing
from relfrog.memory import check_room
from relfrog.models import BASELINES, NETWORKS
from relfrog.preparing import Prepared, prepare, seeds_of
from relfrog.runfiles import (
    FORMAT,
    clear_partials,
    is_run,
    locked,
    plain,
    read_json,
    write_json,
    write_text,
    written,
)
from relfrog.runs import Run, chosen_device, load_run, read_run, resume_command
from relfrog.tasks import load_task
from relfrog.training import Callback, Trainer

__all__ = ["RunInterrupted", "train"]


class RunInterrupted(KeyboardInterrupt):
    """Training was interrupted; its message says how to go on."""


def train(
    dataset: str | Path,
    task: str,
    out: str | Path,
    *,
    model: str | None = None,
    roles: str | Path | Mapping[str, float] | None = None,
    size: str = "medium",
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str | None = None,
    baselines: bool = True,
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
        size: "small", "medium" or "large".
        preset: a preset, or a YAML file of settings.
        settings: single settings; see `relfrog.config.Config`.
        seed: of all random choices; 0 by default.
        resume: go on with a run that was interrupted; its own settings hold, and others are
            refused.
        overwrite: replace a run that is there already.
        device: "cpu", "cuda", ...; by default a GPU if there is one.
        baselines: whether to score quick baselines beside a network; `Run.baselines` has them.
        callbacks: told what happens; see `relfrog.training.Callback`.

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
        asked = (read_preset(preset) if preset is not None else {}) | given
        return _resume(folder, str(dataset), task, asked, gates, device, callbacks, baselines)
    _refuse(folder, overwrite)
    chosen_device(device)
    opened = open_dataset(dataset)
    check_room(str(dataset), read_tables(opened))
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
        "schema": schema_fingerprint(prepared), "versions": _versions(),
    }  # fmt: skip
    try:
        with appearing(folder, overwrite, _objection) as partial:
            write_text(partial / "config.yaml", config.to_yaml())
            write_json(partial / "run.json", about)
            write_json(partial / "database.json", describe_database(prepared, task))
    except DatasetError as error:
        raise RunError(str(error)) from None
    return _learn(folder, about, config, prepared, device, callbacks, baselines, resume=False)


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
            _tidy(folder)
        return load_run(folder, device=chosen_device(device))
    opened = open_dataset(dataset)
    loaded = load_task(opened, task)
    prepared = _prepare(opened, loaded, config)
    if schema_fingerprint(prepared) != about["schema"]:
        raise RunError(f"{folder}: the dataset's tables or columns have changed since. Train anew.")
    if config.model in NETWORKS:
        _warn_of_versions(folder, about)
    return _learn(folder, about, config, prepared, device, callbacks, baselines, resume=True)


def _warn_of_versions(folder: Path, about: Mapping[str, Any]) -> None:
    """Say so if a run goes on with other libraries than it was begun with."""
    begun, now = about.get("versions") or {}, _versions()
    other = [
        f"{name} {begun[name]}, now {now[name]}"
        for name in now
        if begun.get(name, now[name]) != now[name]
    ]
    if other:
        text = f"{folder} was begun with {'; '.join(other)}: its weights may differ a little."
        warnings.warn(text, RelFrogWarning, stacklevel=4)


def _learn(
    folder: Path,
    about: dict[str, Any],
    config: Config,
    prepared: Prepared,
    device: str | None,
    callbacks: Sequence[Callback],
    baselines: bool,
    resume: bool,
) -> Run:
    """Train whatever model it is."""
    if config.model == "auto":
        return _fit_auto(folder, about, prepared, device, callbacks)
    if config.model not in NETWORKS:
        return _fit_baseline(folder, about, prepared, callbacks)
    run = _fit(folder, about, config, prepared, device, callbacks, resume)
    if baselines:
        _score_beside(run, prepared, callbacks)
    return run


def _fit(
    folder: Path,
    about: dict[str, Any],
    config: Config,
    prepared: Prepared,
    device: str | None,
    callbacks: Sequence[Callback],
    resume: bool,
) -> Run:
    import torch

    started = time.monotonic()
    chosen = chosen_device(device)
    with locked(folder):
        clear_partials(folder)
        try:
            candidates = _candidates(config, prepared)
            trainers = []
            for name, candidate in candidates:
                part = folder / name if name else folder
                part.mkdir(exist_ok=True)
                trainer = Trainer(
                    candidate, part, roles=about["gates"], device=torch.device(chosen),
                    callbacks=callbacks,
                )  # fmt: skip
                if resume:
                    trainer.load_checkpoint()
                trainer.fit()
                trainers.append((name, trainer))
            name, trainer = _best(trainers)
            if name:
                about["history_by_validation"] = {n: t.at.best for n, t in trainers}
                # Copied, not moved: whoever is killed here finds both parts whole.
                for file in ("model.safetensors", "history.jsonl"):
                    with written(folder / file) as copy:
                        copy.write((folder / name / file).read_bytes())
            _finish(folder, about, trainer, started)
            _tidy(folder)
        except KeyboardInterrupt:
            again = resume_command(folder)
            raise RunInterrupted(f"Interrupted. Go on with: {again}") from None
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise RunError(
                f"no room left to write into {folder} ({error.strerror}). Nothing is lost: make "
                f"room, then go on with: {resume_command(folder)}"
            ) from None
    return load_run(folder, device=chosen)


def _fit_baseline(
    folder: Path, about: dict[str, Any], prepared: Prepared, callbacks: Sequence[Callback]
) -> Run:
    """Fit what is no network, and write the same folder."""
    started = time.monotonic()

    with locked(folder):
        assert prepared.train_seeds is not None
        labels = prepared.describe_labels(prepared.train_seeds)
        baseline = baseline_class(prepared.config.model, about["task_type"])(prepared, labels)
        try:
            baseline.fit(lambda text: _tell(callbacks, text))
            baseline.save(folder)
            prepared.columns.save(folder)
            write_json(folder / "roles.json", [])
            lines = [json.dumps(plain(line), default=str) + "\n" for line in baseline.trials]
            write_text(folder / "history.jsonl", "".join(lines))
            metrics = {
                split: {regime: baseline.score(split, regime) for regime in REGIMES}
                for split in ("val", "test")
            }
        except KeyboardInterrupt:
            again = resume_command(folder)
            raise RunInterrupted(f"Interrupted. Go on with: {again}") from None
        write_json(folder / "metrics.json", metrics)
        about |= {
            "status": "complete", "labels": labels, "weights": 0, "best_epoch": 0, "epochs": 0,
            "seconds": round(time.monotonic() - started, 1), "peak_memory_bytes": _peak_memory(),
        }  # fmt: skip
        write_json(folder / "run.json", about)
    return load_run(folder)


def _fit_auto(
    folder: Path,
    about: dict[str, Any],
    prepared: Prepared,
    device: str | None,
    callbacks: Sequence[Callback],
) -> Run:
    """Fit several models, choose among them, and write the same folder."""
    started = time.monotonic()
    chosen = chosen_device(device)
    with locked(folder):
        assert prepared.train_seeds is not None
        about |= {"labels": prepared.describe_labels(prepared.train_seeds)}
        try:
            fit_members(folder, about, prepared, train, device, callbacks)
            prepared.columns.save(folder)
            write_json(folder / "roles.json", [])
            write_text(folder / "history.jsonl", "")
            run = Run(folder, about, prepared.config, chosen)
            metrics = {
                split: {regime: run.evaluate(split, regime) for regime in REGIMES}
                for split in ("val", "test")
            }
        except KeyboardInterrupt:
            again = resume_command(folder)
            raise RunInterrupted(f"Interrupted. Go on with: {again}") from None
        write_json(folder / "metrics.json", metrics)
        about |= {
            "status": "complete", "weights": 0, "best_epoch": 0, "epochs": 0,
            "seconds": round(time.monotonic() - started, 1), "peak_memory_bytes": _peak_memory(),
        }  # fmt: skip
        write_json(folder / "run.json", about)
    return load_run(folder, device=chosen)


def _score_beside(run: Run, prepared: Prepared, callbacks: Sequence[Callback]) -> None:
    """Score quick baselines; whatever happens to them, the run is complete."""
    try:
        _tell(callbacks, "baselines beside it ...")
        found = score_baselines(
            prepared.dataset, prepared.task, run.config, lambda text: _tell(callbacks, text)
        )
        write_json(run.folder / FILE, found)
    except KeyboardInterrupt:
        _tell(callbacks, "baselines left out: interrupted. The run itself is complete.")
    except Exception as error:
        _tell(callbacks, f"baselines left out: {' '.join(str(error).split()) or type(error)}")


def _tell(callbacks: Sequence[Callback], text: str) -> None:
    for callback in callbacks:
        callback.on_message(text)


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def _candidates(config: Config, prepared: Prepared) -> list[tuple[str, Prepared]]:
    """What to train: one model, or one with and one without label history."""
    if config.history != "auto":
        return [("", prepared)]
    without = prepare(prepared.dataset, prepared.task, replace(config, history="off"))
    return [("history-on", prepared), ("history-off", without)]


def _best(trainers: list[tuple[str, Trainer]]) -> tuple[str, Trainer]:
    best = trainers[0]
    for other in trainers[1:]:
        score = other[1].at.best
        if score is not None and better(score, best[1].at.best, other[1].higher):
            best = other
    return best


def _finish(folder: Path, about: dict[str, Any], trainer: Trainer, started: float) -> None:
    """Score the saved weights, write what is left to write, and call the run complete."""
    prepared = trainer.prepared
    prepared.columns.save(folder)
    write_text(folder / "config.yaml", trainer.config.to_yaml())
    gates = trainer.network.roles.average.tolist() if trainer.network.roles else []
    write_json(
        folder / "roles.json",
        [
            {
                "route": str(route), "paradigm": route.paradigm.name,
                **dict(zip("uvw", route.tables, strict=True)), "gate": gate,
            }
            for route, gate in zip(prepared.routes if gates else (), gates, strict=True)
        ],
    )  # fmt: skip
    metrics = {
        split: {
            regime: trainer.score(seeds_of(prepared.task, split), split, regime)
            for regime in REGIMES
        }
        for split in ("val", "test")
    }
    write_json(folder / "metrics.json", metrics)
    about |= {
        "status": "complete",
        "labels": trainer.about,
        "weights": sum(p.numel() for p in trainer.network.parameters()),
        "best_epoch": trainer.at.best_epoch,
        "epochs": trainer.at.epoch,
        "seconds": round(time.monotonic() - started, 1),
        "peak_memory_bytes": _peak_memory(),
    }
    write_json(folder / "run.json", about)


def _tidy(folder: Path) -> None:
    """Remove what only an interrupted run needs."""
    clear_partials(folder)
    checkpoints.clear(folder)
    for name in ("history-on", "history-off"):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)


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


def _versions() -> dict[str, str]:
    import numpy
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "threads": str(torch.get_num_threads()),
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
