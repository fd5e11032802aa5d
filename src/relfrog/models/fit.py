"""Fit a model into a run folder, and load it from one."""

from __future__ import annotations

import errno
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relfrog.config import Config
from relfrog.datasets.metrics import REGIMES
from relfrog.errors import RunError
from relfrog.features.columns import Columns
from relfrog.features.novelty import FILE as UNSEEN
from relfrog.features.novelty import warn_of_new_categories
from relfrog.kinds import MODELS
from relfrog.models.model import Model
from relfrog.models.network_model import CANDIDATES, REFIT, SELECTED
from relfrog.models.postprocessing.bundle import load_postprocessing
from relfrog.models.run_folder import resume_command
from relfrog.models.scoring import finish_and_score
from relfrog.support.files import clear_partials, jsonable, locked, write_json, write_text
from relfrog.support.threads import thread_limit
from relfrog.training import checkpoint
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback
from relfrog.training.opened_task import OpenedTask
from relfrog.training.prepared import Prepared

__all__ = ["RunInterrupted", "fit_model", "load_model", "make_model", "prepare_for", "tidy"]


class RunInterrupted(KeyboardInterrupt):
    """Training was interrupted; the message says how to resume it."""


def prepare_for(opened: OpenedTask, config: Config, columns: Columns | None = None) -> Prepared:
    """Prepare a task for the model of these settings."""
    model = MODELS[config.model].load(opened.kind)
    return opened.prepare(config, columns, encode=model.encoded)


def make_model(
    prepared: Prepared, about: dict[str, Any], device: str = "cpu", name: str | None = None
) -> Model:
    """Create an unfitted model.

    Args:
        prepared: the prepared task.
        about: the content of `run.json`.
        device: the device to compute on.
        name: name of the model; by default that of the settings.
    """
    made: type[Model] = MODELS[name or prepared.config.model].load(prepared.kind)
    labels = about.get("labels")
    if labels is None:
        assert prepared.train_seeds is not None
        labels = prepared.describe_labels(prepared.train_seeds)
    return made(prepared, labels, device=device, gates=about.get("gates"))


def fit_model(
    model: Model,
    folder: Path,
    about: dict[str, Any],
    *,
    budget: Budget = UNLIMITED,
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
) -> dict[str, Any]:
    """Fit a model into its run folder: train, save, score, and mark the run as complete.

    Args:
        model: the model of the folder's settings.
        folder: the run folder.
        about: the content of `run.json`.
        budget: time budget of the training.
        callbacks: notified of progress.
        resume: whether to resume from checkpoints.

    Returns:
        The new content of `run.json`.

    Raises:
        RunInterrupted: Ctrl-C; the run can be resumed.
        RunError: The disk is full, or training failed.
    """
    started = time.monotonic()
    with locked(folder), thread_limit(model.prepared.config.threads):
        clear_partials(folder)
        try:
            model.fit(folder, budget, callbacks, resume=resume)
            _save(model, folder)
            metrics = finish_and_score(model)
            model.postprocessing.save(folder)
            facts = {"weights": 0, "best_epoch": 0, "epochs": 0} | model.facts
            if model.selected is not model:
                before = {regime: model.selected.score("test", regime) for regime in REGIMES}
                facts["refit"] = facts.get("refit", {}) | {"before": before}
            write_json(folder / "metrics.json", metrics)
            # Include the training time of members that were reused.
            took = time.monotonic() - started + facts.pop("seconds_before", 0.0)
            complete = {
                **about, "labels": model.labels, "status": "complete", **facts,
                "postprocessing": True, "seconds": round(took, 1),
                "peak_memory_bytes": _peak_memory(),
            }  # fmt: skip
            write_json(folder / "run.json", complete)
            tidy(folder, refitted="refit" in facts)
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
    return complete


def _save(model: Model, folder: Path) -> None:
    """Write the fitted model, its columns, settings, roles and history."""
    model.save(folder)
    if model.selected is not model and not model.members:
        (folder / SELECTED).mkdir(exist_ok=True)
        model.selected.save(folder / SELECTED)
    prepared = model.prepared
    prepared.columns.save(folder)
    if model.encoded:
        write_json(folder / UNSEEN, prepared.unseen)
    write_text(folder / "config.yaml", prepared.config.to_yaml())
    write_json(folder / "roles.json", model.roles())
    lines = [json.dumps(jsonable(line), ensure_ascii=False, default=str) for line in model.trials]
    write_text(folder / "history.jsonl", "".join(f"{line}\n" for line in lines))


def load_model(
    folder: Path,
    about: dict[str, Any],
    config: Config,
    opened: OpenedTask,
    *,
    device: str = "cpu",
    selected: bool = False,
) -> Model:
    """Load the model of a complete run, for the current state of the database.

    Args:
        folder: the run folder.
        about: the content of `run.json`.
        config: the settings of the run.
        opened: the task of the run.
        device: the device to compute on.
        selected: for a refitted model, whether to load the model selected by validation.

    Raises:
        RunError: A file is missing or damaged, or does not fit the database.

    Warns:
        NewColumnWarning: Tables, columns or categories are new, and ignored.
    """
    if opened.kind != about["task_type"]:
        raise RunError(
            f"{folder} was trained for {about['task_type']}, and task {about['task']} of "
            f"{about['dataset']} is {opened.kind}: it has changed, or the run is another task's. "
            "Train again."
        )
    prepared = prepare_for(opened, config, opened.load_columns(folder))
    warn_of_new_categories(prepared.unseen, folder)
    model = make_model(prepared, about, device)
    if about.get("refit"):
        model.selected_folder = folder / SELECTED
    model.load(folder)
    if about.get("postprocessing"):  # runs of older versions have none
        model.postprocessing = load_postprocessing(folder, model.labels)
    return model.selected if selected else model


def tidy(folder: Path, *, refitted: bool = True) -> None:
    """Remove files that only an unfinished run needs."""
    clear_partials(folder)
    checkpoint.clear(folder)
    # Without a refit, the model that was selected is the one in the folder itself.
    gone = [folder / REFIT] if refitted else [folder / REFIT, folder / SELECTED]
    for part in (*folder.glob(f"{CANDIDATES}*"), *gone):
        if part.is_dir():
            shutil.rmtree(part)
    if (folder / SELECTED).is_dir():
        checkpoint.clear(folder / SELECTED)
        (folder / SELECTED / "history.jsonl").unlink(missing_ok=True)


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # Windows has none
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)
