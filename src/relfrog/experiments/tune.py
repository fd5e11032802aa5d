"""Hyper-parameter search by validation score over the paper's search space, with Optuna.

The search is stored as a journal of JSON lines, and every trial is a run of its own, so that an
interrupted search can be resumed. Test scores are not used.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from relfrog.config import Config, read_preset
from relfrog.errors import RunError, UsageError
from relfrog.experiments.grid import Cell, GridRunner
from relfrog.experiments.paper import search_space
from relfrog.experiments.score_tables import escape_cell, main_metric, markdown_table
from relfrog.experiments.studies import Variant
from relfrog.experiments.study_datasets import StudyDataset
from relfrog.runs.run import load_run
from relfrog.support.files import write_text
from relfrog.support.text import duration

__all__ = ["Tuned", "tune"]


@dataclass(frozen=True)
class Tuned:
    """The result of a search for one task.

    Attributes:
        about: the entry of `results.json`.
        cells: the runs with the selected settings.
        table: the trials, as Markdown.
    """

    about: dict[str, Any]
    cells: list[Cell]
    table: str


def tune(
    make: Callable[[StudyDataset, str, Variant, int], Cell],
    datasets: Sequence[StudyDataset],
    runner: GridRunner,
    seeds: int,
    trials: int,
    folder: Path,
    fixed: Mapping[str, Any],
) -> list[Tuned]:
    """Search settings for every task, and write the best as a preset file.

    Args:
        make: creates a cell from a dataset, a task, a variant and a seed.
        datasets: datasets and tasks.
        runner: runs the cells.
        seeds: number of random seeds that a trial's score is averaged over.
        trials: number of trials per task.
        folder: folder for journals and presets.
        fixed: settings that are given and not searched.

    Raises:
        UsageError: Optuna is not installed, or all settings are fixed.
    """
    space = {name: values for name, values in search_space().items() if name not in fixed}
    if not space:
        raise UsageError(
            f"all of {', '.join(search_space())} are set: nothing is left to search for."
        )
    found = []
    for dataset in datasets:
        for task in dataset.kinds:
            one = _Search(dataset, task, make, runner, seeds, trials, folder, space)
            found.append(one.run(fixed))
    return found


def open_search(journal: Path, name: str, higher: bool) -> Any:
    """Optuna's study of a journal, which is begun if it is not there.

    Args:
        journal: The file.
        name: That of the study.
        higher: Whether a higher score is better.

    Raises:
        UsageError: The file is no journal of Optuna's.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(journal))), study_name=name,
            direction="maximize" if higher else "minimize", load_if_exists=True,
        )  # fmt: skip
        study.get_trials(deepcopy=False)
    except Exception as error:  # Optuna trusts its journal: anything can go wrong
        text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UsageError(f"{journal} is damaged ({text}). Remove it to search anew.") from None
    return study


class _Search:
    """The search for one task."""

    def __init__(
        self, dataset: StudyDataset, task: str, make: Callable[..., Cell], runner: GridRunner,
        seeds: int,
        trials: int, folder: Path, space: Mapping[str, list[Any]],
    ) -> None:  # fmt: skip
        try:
            import optuna
        except ImportError:
            raise UsageError("tune needs Optuna: pip install 'relfrog[tune]'") from None
        self.optuna, self.dataset, self.task, self.make = optuna, dataset, task, make
        self.runner, self.seeds, self.trials = runner, seeds, trials
        self.metric = main_metric(dataset.kinds[task])
        self.space: dict[str, Any] = {
            name: optuna.distributions.CategoricalDistribution(values)
            for name, values in space.items()
        }
        self.stem = f"{dataset.name}-{task}"
        self.preset = folder / f"{self.stem}.yaml"
        journal = folder / f"{self.stem}.journal"
        # A stale lock of a dead process: the folder itself is locked by us.
        journal.with_name(journal.name + ".lock").unlink(missing_ok=True)
        self.study = open_search(journal, self._name(space), self.metric.higher)
        for trial in self._with("RUNNING"):  # interrupted
            self.study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            if trial.params.keys() == self.space.keys():
                self.study.enqueue_trial(trial.params)

    def _name(self, space: Mapping[str, list[Any]]) -> str:
        """The name of Optuna's study: trials are reused for the same data, settings and space."""
        content = [[one.key() for one in self._cells({})], sorted(space.items())]
        digest = hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()[:12]
        return f"{self.stem}-{digest}"

    def _with(self, *states: str) -> list[Any]:
        wanted = [self.optuna.trial.TrialState[state] for state in states]
        return list(self.study.get_trials(deepcopy=False, states=wanted))

    def _tried(self) -> list[Any]:
        """Finished or failed trials, without duplicates of the same settings."""
        ended = {
            str(sorted(trial.params.items())): trial
            for trial in reversed(self._with("COMPLETE", "FAIL"))
            if trial.state.name == "COMPLETE" or "error" in trial.user_attrs
        }
        return list(ended.values())

    def run(self, fixed: Mapping[str, Any]) -> Tuned:
        """Run trials until there are enough; then select the best."""
        before = len(self._tried())
        goal = min(self.trials, math.prod(len(d.choices) for d in self.space.values()))
        self.runner.say(f"{self.dataset.name} {self.task}: {goal} trials, {before} of them there")
        started, news = time.monotonic(), True
        while (done := len(self._tried())) < goal:
            # A new seed each time, or a resumed search would repeat its draws; and random sampling
            # if TPE only proposes settings that were tried before.
            seed, samplers = len(self.study.trials), self.optuna.samplers
            startup = max(1, min(10, goal // 2))
            self.study.sampler = (
                samplers.TPESampler(seed=seed, n_startup_trials=startup)
                if news
                else samplers.RandomSampler(seed=seed)
            )
            asked = [
                self.study.ask(self.space)
                for _ in range(min(self.runner.workers.count, goal - done))
            ]
            for trial, score in self._scores(asked):
                known = len(self._tried())
                if math.isnan(score):
                    trial.set_user_attr("error", "a run failed, or its score is not defined")
                    self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
                else:
                    self.study.tell(trial, score)
                ended = len(self._tried())
                if ended > known:
                    settings = ", ".join(f"{k}={v}" for k, v in trial.params.items())
                    said = "failed" if math.isnan(score) else f"val {self.metric.name} {score:.4f}"
                    left = (time.monotonic() - started) / (ended - before) * (goal - ended)
                    self.runner.say(
                        f"[{ended}/{goal}] {self.dataset.name} {self.task}, {settings}: {said}; "
                        f"about {duration(left)} left"
                    )
            news = len(self._tried()) > done
        return self._choose(fixed)

    def _scores(self, asked: Sequence[Any]) -> list[tuple[Any, float]]:
        """The score of each trial; NaN if a run failed."""
        cells = {trial.number: self._cells(trial.params) for trial in asked}
        everything = [one for several in cells.values() for one in several]
        finished = set(self.runner.run(everything, quiet=True))
        return [
            (trial, self._score(own) if finished.issuperset(own) else math.nan)
            for trial in asked
            for own in [cells[trial.number]]
        ]

    def _cells(self, params: Mapping[str, Any]) -> list[Cell]:
        variant = Variant("tuned", dict(params))
        return [self.make(self.dataset, self.task, variant, seed) for seed in range(self.seeds)]

    def _score(self, cells: Sequence[Cell]) -> float:
        """The mean validation score, in the regime used for selection."""
        scores = []
        for one in cells:
            run = load_run(one.folder(self.runner.runs))
            scores.append(run.metrics["val"][run.config.regime][self.metric.name])
        return fmean(scores)

    def _choose(self, fixed: Mapping[str, Any]) -> Tuned:
        complete = [trial for trial in self._tried() if trial.state.name == "COMPLETE"]
        if not complete:
            raise RunError(f"{self.dataset.name} {self.task}: every trial failed. See log.txt.")
        complete.sort(key=lambda trial: trial.value, reverse=self.metric.higher)
        best = complete[0]
        cells = self._cells(best.params)
        there = list(self.runner.run(cells, quiet=True))  # again, if runs were removed
        if len(there) < len(cells):
            raise RunError(f"{self.dataset.name} {self.task}: the best runs are gone. See log.txt.")
        base = read_preset(cells[0].preset) if cells[0].preset else {}
        settings = {"model": Config.model} | base | dict(fixed) | best.params
        head = (
            f"# {self.dataset.name} {self.task}: the best validation {self.metric.name} "
            f"({best.value:.4f}) of {len(complete)} trials, {self.seeds} seeds each.\n"
        )
        write_text(self.preset, head + yaml.safe_dump(settings, sort_keys=False))
        names = list(self.space)
        rows = [
            [str(trial.number), *(str(trial.params[name]) for name in names), f"{trial.value:.4f}"]
            for trial in complete
        ]
        title = escape_cell(f"{self.dataset.name} {self.task}")
        lines = [
            f"### {title}: trials by validation", "",
            *markdown_table(["trial", *names, f"validation {self.metric.name}"], rows, left=0), "",
            f"Chosen settings: `relfrog train ... --preset {self.preset.name}`", "",
        ]  # fmt: skip
        about = {
            "dataset": self.dataset.name, "task": self.task, "metric": self.metric.name,
            "trials": [
                {"settings": trial.params, "validation": trial.value} for trial in complete
            ],
            "failed": len(self._tried()) - len(complete), "settings": settings,
            "validation": best.value, "preset": self.preset.name,
        }  # fmt: skip
        return Tuned(about, cells, "\n".join(lines))
