"""Members of `auto`: runs of their own, trained here or as jobs in other processes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relfrog.cluster.folders import meeting_place, pack, unpack
from relfrog.cluster.guarded import Answer, Job
from relfrog.cluster.replica import obtain, replicate
from relfrog.cluster.team import Team
from relfrog.cluster.workers import Workers
from relfrog.config import Config
from relfrog.errors import UsageError
from relfrog.kinds import MODELS
from relfrog.models.fit import fit_model, load_model, make_model, prepare_for
from relfrog.models.model import Model
from relfrog.models.run_folder import begin, is_run, read_run
from relfrog.models.run_forms import Metrics
from relfrog.store.parts import open_store
from relfrog.support.files import atomic_folder
from relfrog.support.forms import read_json
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback
from relfrog.training.opened_task import OpenedTask, open_task
from relfrog.training.prepared import Prepared

__all__ = ["fit_member", "member_job", "run_members"]


def fit_member(
    opened: OpenedTask,
    config: Config,
    place: Path,
    about: Mapping[str, Any],
    *,
    budget: Budget = UNLIMITED,
    callbacks: Sequence[Callback] = (),
    device: str = "cpu",
    team: Team | None = None,
    workers: Workers | None = None,
    refit_helps: bool = False,
) -> tuple[Model, dict[str, Any]]:
    """Train, resume or load a member.

    Args:
        opened: the task.
        config: the member's settings.
        place: its run folder.
        about: `run.json` of the run of `auto`.
        budget: time budget of the training.
        callbacks: notified of progress.
        device: where to compute.
        team: workers to train a network with.
        workers: processes for jobs of other models.
        refit_helps: whether a network is to be refitted with setting "auto".

    Returns:
        The model, and its entry in `blend.json`.

    Raises:
        UsageError: It was begun with other settings.
    """
    begun = is_run(place)
    if begun:
        theirs, kept = read_run(place)
        if theirs["status"] == "complete":
            model = load_model(place, theirs, kept, opened, device=device)
            return model, _record(place, theirs)
        if kept != config:
            raise UsageError(f"{place} was begun with other settings: train auto anew.")
    prepared = prepare_for(opened, config)
    if not begun:
        gates = about.get("gates") if MODELS[config.model].network else None
        place.parent.mkdir(exist_ok=True)
        theirs = begin(
            place, prepared, config, dataset=about["dataset"], task=about["task"], gates=gates
        )
    model = make_model(prepared, theirs, device)
    model.team, model.workers, model.refit_helps = team, workers, refit_helps
    theirs = fit_model(model, place, theirs, budget=budget, callbacks=callbacks, resume=begun)
    return model, _record(place, theirs)


def _record(place: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a member in `blend.json`."""
    metrics = read_json(place / "metrics.json", Metrics)
    return {"val": metrics["val"], "test": metrics["test"], "seconds": about["seconds"]}


def run_members(
    workers: Workers,
    prepared: Prepared,
    settings: Mapping[str, Config],
    folder: Path,
    about: Mapping[str, Any],
    budget: Budget,
    device: str,
) -> dict[str, str]:
    """Train members as jobs, each into its run folder.

    Args:
        workers: who trains them.
        prepared: the task.
        settings: settings of each member.
        folder: the folder of their run folders.
        about: `run.json` of the run of `auto`.
        budget: time budget of each.
        device: where to compute.

    Returns:
        What went wrong with each; an empty text if nothing did.
    """
    folder.mkdir(exist_ok=True)
    dataset = Path(prepared.dataset.dataset_dir)
    seconds = budget.left
    common: Job = {
        "dataset": str(dataset), "replica": None, "device": device,
        "about": {name: about.get(name) for name in ("dataset", "task", "gates", "splits")},
        "deadline": None if seconds == float("inf") else time.time() + seconds,
    }  # fmt: skip
    if workers.elsewhere:
        common["replica"] = replicate({"dataset": dataset}, open_store().used)
    names, found = list(settings), dict[str, str]()
    with meeting_place(folder) if workers.elsewhere else nullcontext() as place:
        jobs = [
            common | {"place": place, "folder": str((folder / name).resolve()),
                      "config": asdict(settings[name])}
            for name in names
        ]  # fmt: skip
        for number, answer in workers.run(member_job, jobs):
            name = names[number]
            found[name] = str(answer.get("error", ""))
            if "files" in answer:
                with atomic_folder(folder / name, True, lambda _: "") as partial:
                    unpack(answer["files"], partial)
            elif found[name]:  # it is not resumed: the others can still be used
                shutil.rmtree(folder / name, ignore_errors=True)
    return found


def member_job(job: Job) -> Answer:
    """Train a member in another process.

    Returns:
        `{}`; or, from a machine that does not see the folder, its run folder packed as `files`.
    """
    config, about, place = Config(**job["config"]), job["about"], job["place"]
    dataset = job["dataset"]
    if job["replica"] is not None:
        dataset = str(obtain(job["replica"])["dataset"])
    budget = UNLIMITED
    if job["deadline"] is not None:
        budget = Budget(time.monotonic() + job["deadline"] - time.time())
    opened = open_task(dataset, about["task"], about.get("splits"), **job["config"])
    options = {"budget": budget, "device": job["device"]}
    if place is None or place.is_seen():
        fit_member(opened, config, Path(job["folder"]), about, **options)
        return {}
    with tempfile.TemporaryDirectory(prefix="relfrog-") as base:
        folder = Path(base) / config.model
        fit_member(opened, config, folder, about, **options)
        return {"files": pack(folder)}
