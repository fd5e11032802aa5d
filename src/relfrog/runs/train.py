"""`train`: from a dataset, a task and some settings to a run folder."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from relfrog.cluster.launch import open_team
from relfrog.cluster.local_team import LocalTeam
from relfrog.cluster.team import Team, check_shards
from relfrog.cluster.torchrun_team import follow, follows, restarts, under_torchrun
from relfrog.cluster.workers import Workers, hired
from relfrog.config import Config, default_settings, parse_settings, read_preset, resolve
from relfrog.datasets.checks.refusal import refuse_errors
from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.label_checks import NoLabels
from relfrog.datasets.table_rules import check_split_times
from relfrog.errors import ClusterError, RelFrogWarning, RunError, TaskError, UsageError
from relfrog.graph.routes import Route
from relfrog.kinds import MODELS
from relfrog.models.auto import NETWORK_MEMBER, AutoModel
from relfrog.models.fit import RunInterrupted, fit_model, make_model, prepare_for, tidy
from relfrog.models.run_folder import (
    begin,
    is_run,
    objection,
    read_run,
    resume_command,
    schema_fingerprint,
    versions,
)
from relfrog.models.run_forms import Gate
from relfrog.nn.regression_head import default_loss
from relfrog.runs.quick_baselines import FILE, score_baselines
from relfrog.runs.run import Run, chosen_device, load_run
from relfrog.support.files import locked, user_path, write_json
from relfrog.support.forms import read_json
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback, announce
from relfrog.training.opened_task import OpenedTask, open_task
from relfrog.training.prepared import Prepared, routes_of
from relfrog.training.progress import TrainingProgress, is_watched
from relfrog.training.shards import usual_shards

__all__ = ["RunInterrupted", "train"]


#: What the scores and the report of `auto` take of the processor, in seconds.
AFTERWARDS = 10.0


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
    callbacks: Sequence[Callback] | None = None,
    quiet: bool = False,
    workers: int | None = None,
    cluster: str | None = None,
) -> Run:
    """Train a model and write its run folder.

    Args:
        dataset: a dataset folder, or the name of a dataset that RelBench hosts.
        task: one of its tasks.
        out: the run folder to make.
        model: "auto" (the default: the best of several, or a blend), or one by its name; see
            `relfrog.config.Config`.
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
        baselines: whether to score quick baselines, too; see `Run.baselines`.
        members: for "auto", finished runs by model; those of the same data, task and settings are
            taken over instead of being trained again.
        callbacks: notified of what happens; see `relfrog.Callback`. By default progress is shown
            on a terminal and in a notebook, and nowhere else.
        quiet: whether to show no progress there either.
        workers: processes that share the training of networks: on this machine, or on the nodes of
            `cluster`. Their number changes nothing in what is learned; the setting `shards` does.
        cluster: a Ray cluster to train on: "auto", "local" or its address.

    Raises:
        UsageError: Settings are wrong or contradict each other.
        RunError: Something is in the way, or the loss is no longer finite.
        ClusterError: A worker failed, or the cluster cannot be reached; the run can be resumed.
    """
    if follows():
        follow(dataset, task, chosen_device(device))
        return load_run(out, device=chosen_device(device))
    if callbacks is None and not quiet and is_watched():
        with TrainingProgress() as progress:
            return train(
                dataset, task, out, model=model, roles=roles, size=size, preset=preset,
                settings=settings, seed=seed, resume=resume, overwrite=overwrite, device=device,
                baselines=baselines, members=members, callbacks=[progress], workers=workers,
                cluster=cluster,
            )  # fmt: skip
    callbacks, begun = callbacks or (), (time.monotonic(), time.process_time())
    folder = user_path(out, RunError)
    gates = None if roles is None else _read_roles(roles)
    named = {"model": model, "seed": seed, "roles": roles if roles is None else str(roles)}
    if gates is not None:
        named["roles"] = "fixed"
    given = parse_settings(settings or {})
    for name, value in named.items():
        if value is not None and given.setdefault(name, value) != value:
            raise UsageError(f"{name} is given twice: {value} and {given[name]}.")
    if resume and overwrite:
        raise UsageError("a run is either resumed or replaced: --resume or --overwrite.")
    resume = resume or (restarts() > 0 and is_run(folder))
    if not resume:
        _refuse(folder, overwrite)
    device = chosen_device(device)
    before = read_preset(preset) if preset is not None else {}
    chosen = str((before | given).get("model", "auto"))
    with (
        _team(dataset, task, chosen, workers, cluster, device) as team,
        _hands(team, chosen, workers, cluster) as hands,
    ):
        if resume:
            dial = {"channels": default_settings(1, size)["channels"]} if size is not None else {}
            return _resume(
                folder, str(dataset), task, dial | before | given, gates, device, callbacks,
                baselines, members or {}, team, hands,
            )  # fmt: skip
        return _start(
            folder, dataset, task, size or "medium", preset, given, gates, device, callbacks,
            baselines, members or {}, team, hands, overwrite, begun,
        )  # fmt: skip


def _team(
    dataset: str | Path, task: str, model: str, workers: int | None, cluster: str | None,
    device: str,
) -> AbstractContextManager[Team | None]:  # fmt: skip
    """The workers to train with, or nobody."""
    entry = MODELS.get(model)
    if entry is not None and not (entry.network or entry.ensemble) and not under_torchrun():
        return nullcontext()
    team = open_team(_place(dataset), task, workers=workers, cluster=cluster, device=device)
    return nullcontext() if team is None else team


def _hands(
    team: Team | None, model: str, workers: int | None, cluster: str | None
) -> AbstractContextManager[Workers | None]:
    """Processes for jobs of models that are no networks, or nobody."""
    entry = MODELS.get(model)
    if isinstance(team, LocalTeam):
        return hired(team.size, None) if entry is None or entry.ensemble else nullcontext()
    if team is not None:
        return nullcontext(team.workers)
    if workers is None and cluster is None:
        return nullcontext()
    if entry is not None and not entry.learns:
        text = f"model {model} does not learn: there is no work to share."
        warnings.warn(text, RelFrogWarning, stacklevel=3)
        return nullcontext()
    return hired(workers or 1, cluster, most=workers)


def _start(
    folder: Path,
    dataset: str | Path,
    task: str,
    size: str,
    preset: str | None,
    given: dict[str, Any],
    gates: dict[str, float] | None,
    device: str,
    callbacks: Sequence[Callback],
    baselines: bool,
    members: Mapping[str, str | Path],
    team: Team | None,
    hands: Workers | None,
    overwrite: bool,
    begun: tuple[float, float],
) -> Run:
    """Begin a run, and fit its model."""
    # Before anything is read, nobody knows how many seeds there are: the largest batch counts.
    rough = default_settings(1 << 20, size) | (read_preset(preset) if preset else {}) | given
    opened = open_task(dataset, task, **rough)
    times = opened.dataset.val_timestamp, opened.dataset.test_timestamp
    check_split_times(opened.db, *times, str(dataset))
    try:
        count = len(opened.seeds("train"))
    except NoLabels as error:
        raise TaskError(f"task {task}: no training labels ({error}).") from None
    except (AssertionError, ValueError, LookupError) as error:
        raise TaskError(f"task {task}: no training labels ({error}).") from None
    if not count:
        raise TaskError(f"task {task}: no training labels. See relfrog check {dataset} {task}")
    refuse_errors(open_dataset(dataset), task, opened.labels)
    config = resolve(count, size=size, preset=preset, settings=given, kind=opened.kind)
    if config.roles == "fixed" and gates is None:
        raise UsageError("roles are fixed by a file of gates: --roles FILE.")
    if team is not None:
        if "shards" not in rough:
            config = replace(config, shards=usual_shards(config.batch_size))
        check_shards(team, config)
    config = replace(config, loss=_chosen_loss(opened, config))
    if MODELS[config.model].baseline:
        config = replace(config, history="on")  # these know nothing else
    prepared = prepare_for(opened, config)
    if gates is not None:
        _check_gates(gates, routes_of(_with_roles(config), prepared.graph))
    about = begin(
        folder, prepared, config, overwrite=overwrite, dataset=_place(dataset), task=task,
        gates=gates,
    )  # fmt: skip
    return _fit(
        folder, about, prepared, device, callbacks, baselines, members, team, hands, begun=begun
    )


def _chosen_loss(opened: OpenedTask, config: Config) -> str:
    """The loss of a regression, where the settings leave it open.

    RelBench scores medians (MAE), so its tasks keep them.
    """
    labels = opened.seeds("train").labels
    if opened.kind != "regression" or config.loss != "auto" or labels is None:
        return config.loss if config.loss != "auto" else "l1"
    ours = (Path(opened.dataset.dataset_dir) / "mapping.yaml").is_file()
    return default_loss(labels) if ours else "l1"


def _place(dataset: str | Path) -> str:
    """How a run names its dataset: by its absolute path, or as RelBench does."""
    where = user_path(dataset)
    return str(where.resolve()) if where.is_dir() else str(dataset)


def _fit(
    folder: Path,
    about: dict[str, Any],
    prepared: Prepared,
    device: str,
    callbacks: Sequence[Callback],
    baselines: bool,
    members: Mapping[str, str | Path],
    team: Team | None,
    hands: Workers | None,
    resume: bool = False,
    begun: tuple[float, float] | None = None,
) -> Run:
    """Fit the model of a run, and score quick baselines."""
    model = make_model(prepared, about, device)
    model.team, model.workers = team, hands
    budget = UNLIMITED
    if isinstance(model, AutoModel):
        model.finished = members
        # Reading the data counts, and so do the scores and the report that follow.
        since = begun or (time.monotonic(), time.process_time())
        budget = Budget(since[0] + 60 * prepared.config.minutes, AFTERWARDS, since)
    try:
        about = fit_model(model, folder, about, budget=budget, callbacks=callbacks, resume=resume)
    except ClusterError as error:
        raise ClusterError(f"{error} Go on with: {resume_command(folder)}") from None
    run = Run(folder, about, model.prepared.config, device, opened=prepared.opened, fitted=model)
    if baselines and not model.members:  # members are compared with each other
        _score_baselines(run, callbacks)
    return run


def _score_baselines(run: Run, callbacks: Sequence[Callback]) -> None:
    """Score quick baselines; whatever happens to them, the run is complete."""
    try:
        announce(callbacks, "baselines beside it ...")
        found = score_baselines(run.prepared.opened, run.config, run.folder, callbacks)
        write_json(run.folder / FILE, found)
    except KeyboardInterrupt:
        announce(callbacks, "baselines left out: interrupted. The run itself is complete.")
    except Exception as error:
        why = " ".join(str(error).split()) or type(error)
        announce(callbacks, f"baselines left out: {why}")


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
    team: Team | None = None,
    hands: Workers | None = None,
) -> Run:
    if not is_run(folder):
        raise RunError(f"{folder} is no run folder: there is nothing to resume.")
    about, config = read_run(folder)
    if (about["dataset"], about["task"]) != (_place(dataset), task):
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
    if team is not None:
        check_shards(team, config)
    opened = open_task(dataset, task, about.get("splits"), **asdict(config))
    prepared = prepare_for(opened, config)
    if schema_fingerprint(prepared) != about["schema"]:
        raise RunError(f"{folder}: the dataset's tables or columns have changed since. Train anew.")
    if MODELS[config.model].network:
        _warn_of_versions(folder, about, config)
    return _fit(
        folder, about, prepared, chosen_device(device), callbacks, baselines, members, team,
        hands, resume=True,
    )  # fmt: skip


def _warn_of_versions(folder: Path, about: Mapping[str, Any], config: Config) -> None:
    """Say so if a run goes on with other libraries than it was begun with."""
    begun, now = about.get("versions") or {}, versions(config)
    other = [
        f"{name} {begun[name]}, now {now[name]}"
        for name in now
        if begun.get(name, now[name]) != now[name]
    ]
    if other:
        text = f"{folder} was begun with {'; '.join(other)}: its weights may differ a little."
        warnings.warn(text, RelFrogWarning, stacklevel=4)


def _read_roles(roles: str | Path | Mapping[str, float]) -> dict[str, float] | None:
    """Gates by route, if they are given."""
    if isinstance(roles, Mapping):
        return {str(route): float(gate) for route, gate in roles.items()}
    if str(roles) in ("learned", "node", "edge", "random"):
        return None
    path = user_path(roles)
    if path.is_dir():
        path = path / "roles.json"
    if not path.is_file():
        raise UsageError(
            f"roles must be learned, node, edge, random, or a file of gates (got {str(roles)!r})."
        )
    remedy = "It must hold gates by route: take the roles.json of a run."
    found = read_json(path, dict[str, float] | list[Gate], UsageError, remedy)
    if isinstance(found, dict):
        return {route: float(gate) for route, gate in found.items()}
    return {entry["route"]: float(entry["gate"]) for entry in found}


def _with_roles(config: Config) -> Config:
    """The settings of the network that has the roles: of `auto`, its member."""
    return replace(config, model=NETWORK_MEMBER) if MODELS[config.model].ensemble else config


def _check_gates(gates: Mapping[str, float], known: Sequence[Route]) -> None:
    routes = [str(route) for route in known]
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
    if why := objection(folder):
        raise RunError(f"{folder} exists and {why}. Choose another folder.")
    if not overwrite:
        raise RunError(
            f"{folder} holds a run already. Replace it with --overwrite, or go on with --resume."
        )
