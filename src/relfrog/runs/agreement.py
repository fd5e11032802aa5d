"""Whether several runs of one question agree on roles: one seed alone says little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from relfrog.errors import RunError, UsageError
from relfrog.models.run_folder import is_run, read_run
from relfrog.runs.run import Run, load_run
from relfrog.runs.train import train
from relfrog.training.callbacks import Callback, announce

__all__ = ["other_seeds", "role_agreement"]

#: Subfolder of a run with the runs of other seeds.
SEEDS = "seeds"


def role_agreement(runs: Sequence[Run]) -> pd.DataFrame:
    """The role of each route on which runs agree, with their gates.

    A route is undecided if it is a node in one run and an edge in another, or if half of the runs
    or more cannot tell.

    Args:
        runs: runs of one task with learned roles, such as those of several seeds.

    Returns:
        A row per route: route, paradigm, u, v, w, gate (the mean), lowest, highest, nodes, edges,
        undecided (how many runs say so), role.

    Raises:
        UsageError: The runs are of different tasks, or have no routes in common.
    """
    asked = {(run.about["dataset"], run.about["task"]) for run in runs}
    if len(asked) > 1:
        words = " and ".join(f"{task} on {dataset}" for dataset, task in sorted(asked))
        raise UsageError(f"roles are compared between runs of one task, not of {words}.")
    frames = [run.roles() for run in runs]
    names = ["route", "paradigm", "u", "v", "w"]
    every = pd.concat([frame.assign(run=number) for number, frame in enumerate(frames)])
    found = []
    for key, some in every.groupby(names, sort=False):
        if len(some) < len(runs):
            continue
        said = some["role"].tolist()
        nodes, edges = said.count("node"), said.count("edge")
        role = "undecided"
        if not (nodes and edges) and 2 * (nodes + edges) > len(said):
            role = "node" if nodes else "edge"
        gates = some["gate"]
        found.append([*key, gates.mean(), gates.min(), gates.max(), nodes, edges,
                      len(said) - nodes - edges, role])  # fmt: skip
    if not found and len(every):
        raise UsageError("these runs have no route in common: compare runs with the same settings.")
    more = ["gate", "lowest", "highest", "nodes", "edges", "undecided", "role"]
    return pd.DataFrame(found, columns=[*names, *more])


def other_seeds(run: Run, seeds: int, callbacks: Sequence[Callback] | None = None) -> list[Run]:
    """The run, and runs with the same settings and other seeds, trained unless they are there.

    They are kept in the run's folder. Those of `auto` are its networks, and others like them.

    Raises:
        RunError: The run has no learned roles.
    """
    found = run.networks or [run]
    first = found[0]
    if first.config.model != "frog" or first.config.roles != "learned":
        raise RunError(
            f"{run.folder} has no learned roles. Train some: relfrog train ... --model frog"
        )
    settings = asdict(first.config)
    begin = int(settings.pop("seed"))
    for number in range(len(found), seeds):
        seed = begin + number
        folder = run.folder / SEEDS / str(seed)
        if not _complete(folder):
            announce(callbacks or (), f"seed {seed} ({number + 1} of {seeds}) ...")
            folder.parent.mkdir(exist_ok=True)
            train(
                run.about["dataset"], run.about["task"], folder, settings=settings, seed=seed,
                resume=is_run(folder), baselines=False, callbacks=callbacks,
            )  # fmt: skip
        found.append(load_run(folder, device=run.device))
    return found[:seeds]


def _complete(folder: Path) -> bool:
    return is_run(folder) and read_run(folder)[0]["status"] == "complete"
