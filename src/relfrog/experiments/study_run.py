"""`experiment`: run a study of the paper and write its results.

::

    OUT/results.json   every run with its scores, settings, time and memory
    OUT/table.md       mean and standard deviation over seeds, with the paper's scores
    OUT/*.svg          charts
    OUT/runs/          the run folders, reused after an interruption
    OUT/log.txt        output of the training processes
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from relfrog._version import __version__
from relfrog.cluster.processes import GRACE
from relfrog.cluster.workers import LocalWorkers, hired
from relfrog.config import Config, parse_settings, resolve
from relfrog.errors import RunError, UsageError, unknown
from relfrog.experiments.grid import Cell, GridRunner, cell_for, result_entries
from relfrog.experiments.render import render, role_shares
from relfrog.experiments.studies import Study, Variant, find_study
from relfrog.experiments.study_datasets import StudyDataset, find_datasets
from relfrog.experiments.study_job import DifferencesFile
from relfrog.experiments.tune import Tuned, tune
from relfrog.kinds import MODELS
from relfrog.runs.run import load_run
from relfrog.runs.train import RunInterrupted
from relfrog.support.files import locked, user_path, write_json, write_text
from relfrog.support.forms import read_json

__all__ = ["experiment"]


def experiment(
    name: str,
    *,
    datasets: Sequence[str | Path] = (),
    tasks: Sequence[str] = (),
    models: Sequence[str] = (),
    seeds: int | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    threads: int | None = None,
    out: str | Path | None = None,
    runs: str | Path | None = None,
    size: str = "medium",
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    trials: int = 20,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run a study of the paper; finished runs are reused, so it can be interrupted.

    Args:
        name: "main", "roles", "fd", "sensitivity", "structure", "transfer", "fd-space" or "tune".
        datasets: dataset folders, or names of datasets that RelBench hosts; by default those of
            the study in the paper. Datasets that cannot be reached are skipped.
        tasks: names of tasks; by default those of the paper, or all tasks of other datasets.
        models: for "main", only these models.
        seeds: number of random seeds; 5 by default, 1 for "tune".
        jobs: number of runs at a time, each in its own process.
        cluster: a Ray cluster to run on instead, as many at a time as it has room for: "auto",
            "local" or "HOST:PORT"; see `relfrog.cluster.ray_cluster.connect`.
        threads: threads per run; 1 by default. The same as the setting `threads`.
        out: folder for the results; by default `relfrog-experiments/NAME`.
        runs: folder for the run folders, which several studies can share; by default `runs` in
            `out`, or `relfrog-experiments/runs` without `out`.
        size: "small", "medium" or "large", the size of the networks.
        preset: a preset, or a YAML file of settings, for all runs; `{dataset}` and `{task}` are
            replaced by the names of dataset and task.
        settings: single settings for all runs; see `relfrog.config.Config`.
        trials: for "tune", number of trials per task.
        say: called with a line of progress.

    Returns:
        The content of `results.json`.

    Raises:
        UsageError: Options are wrong or contradict each other.
        RunError: Nothing could be run.
    """
    study = find_study(name)
    for what, number in (
        ("seeds", seeds),
        ("jobs", jobs),
        ("threads", threads),
        ("trials", trials),
    ):
        if number is not None and number < 1:
            raise UsageError(f"{what} must be 1 or more (got {number}).")
    if cluster is not None and jobs != 1:
        raise UsageError("runs go to a cluster or to processes here: --cluster or --jobs.")
    given = parse_settings(settings or {})
    if "seed" in given:
        raise UsageError("an experiment runs several seeds: --seeds N. Leave --set seed out.")
    if threads is not None and given.setdefault("threads", threads) != threads:
        raise UsageError(f"threads are given twice: {threads} and {given['threads']}.")
    if study.name != "main" and (models or "model" in given):
        raise UsageError(f"experiment {name} is about frog; models are compared by main.")
    if "{" not in (preset or ""):
        resolve(1000, size=size, preset=preset, settings={"model": Config.model} | given)
    variants = _chosen(study, models)
    folder = user_path(out) if out else Path("relfrog-experiments") / name
    shared = folder.parent / "runs" if out is None else folder / "runs"
    kept = user_path(runs) if runs else shared
    _check_folder(folder, name)
    count = int(given.get("threads", Config.threads))
    with hired(jobs, cluster, log=folder / "log.txt", threads=count, grace=GRACE) as some:
        workers = some or LocalWorkers(1, folder / "log.txt", count)
        runner = GridRunner(kept, workers, say or _silent)
        found = find_datasets([str(d) for d in datasets], tasks, study.default_tasks(), runner.skip)
        if not found:
            raise RunError(
                "no dataset is within reach. Name folders: --datasets FOLDER; the names and "
                f"addresses of the paper's datasets: relfrog experiment {name} --list"
            )
        command = _command(
            name, datasets=datasets, tasks=tasks, models=models, seeds=seeds, out=out, runs=runs,
            size=size if size != "medium" else None, preset=preset,
            trials=trials if name == "tune" else None, set=[f"{k}={v}" for k, v in given.items()],
        )  # fmt: skip
        grid = _Grid(study, variants, found, seeds or study.seeds, given, size, preset)
        for path in (folder, kept):  # only if there is something to do
            path.mkdir(parents=True, exist_ok=True)
        return _run(grid, _StudyResults(study, runner, folder, command), trials)


def _run(grid: _Grid, results: _StudyResults, trials: int) -> dict[str, Any]:
    """Run the cells of a study, and write what they gave."""
    study, folder = results.study, results.folder
    with locked(folder):
        try:
            if study.name == "tune":
                results.tuned = tune(
                    grid.cell, grid.datasets, results.runner, grid.seeds, trials, folder,
                    grid.settings,
                )  # fmt: skip
                for tuned in results.tuned:
                    for cell in tuned.cells:
                        results.add(cell)
            elif study.name == "transfer":
                _transfer(grid, results)
            else:
                look = results.differences_file if study.name == "fd-space" else None
                results.run(grid.cells(), look)
        except KeyboardInterrupt:
            results.write()
            raise RunInterrupted(
                f"Interrupted. {len(results.cells)} runs are finished and kept; go on with the "
                f"same command: {results.command}"
            ) from None
        return results.write()


def _silent(line: str) -> None:
    """Ignore progress."""


def _chosen(study: Study, models: Sequence[str]) -> tuple[Variant, ...]:
    known = [variant.name for variant in study.variants]
    for model in models:
        if model not in known:
            raise UsageError(str(unknown("model", model, known)))
    return tuple(v for v in study.variants if not models or v.name in models)


def _check_folder(folder: Path, name: str) -> None:
    """Refuse a folder that holds the results of another study."""
    if folder.is_file():
        raise UsageError(f"{folder} is a file. Choose another folder.")
    there = folder / "results.json"
    if there.is_file():
        found = read_json(there, Any, UsageError, "Choose another folder.")
        study = found.get("study") if isinstance(found, dict) else None
        if study != name:
            raise UsageError(
                f"{folder} holds results of {study or 'something else'}. Choose another folder; "
                "runs can be shared: --runs FOLDER"
            )


def _command(name: str, **options: Any) -> str:
    """The command line that reproduces the results."""
    words = ["relfrog", "experiment", name]
    for option, value in options.items():
        several = value if isinstance(value, list | tuple) else [value] if value else []
        if option == "set":
            words += [word for entry in several for word in ("--set", entry)]
        elif several:
            words += [f"--{option}", *map(str, several)]
    return " ".join(map(shlex.quote, words))


class _Grid:
    """The cells of a study."""

    def __init__(
        self, study: Study, variants: Sequence[Variant], datasets: Sequence[StudyDataset],
        seeds: int, settings: Mapping[str, Any], size: str, preset: str | None,
    ) -> None:  # fmt: skip
        self.study, self.variants, self.datasets, self.seeds = study, variants, datasets, seeds
        self.settings, self.size, self.preset = settings, size, preset

    def cell(
        self, dataset: StudyDataset, task: str, variant: Variant, seed: int,
        gates: Mapping[str, float] | None = None,
    ) -> Cell:  # fmt: skip
        """Create a cell."""
        return cell_for(dataset, task, variant, seed, self.settings, self.size, self.preset, gates)

    def cells(self) -> list[Cell]:
        """All cells, seed by seed, so that early results already compare all variants."""
        return [
            self.cell(dataset, task, variant, seed)
            for seed in range(self.seeds)
            for dataset in self.datasets
            for task in dataset.kinds
            # An ensemble comes last and reuses the runs of its members.
            for variant in sorted(self.variants, key=lambda v: MODELS[v.model].ensemble)
            if seed == 0 or variant.draws
        ]


class _StudyResults:
    """The results of a study so far, and its files."""

    def __init__(self, study: Study, runner: GridRunner, folder: Path, command: str) -> None:
        self.study, self.runner, self.folder, self.command = study, runner, folder, command
        self.cells: list[Cell] = []
        self.entries: list[list[dict[str, Any]]] = []
        self.order: list[Cell] = []
        self.tuned: list[Tuned] = []
        self.filled: dict[str, int] = {}

    def run(self, cells: Sequence[Cell], look: Callable[[Cell], Path] | None = None) -> list[Cell]:
        """Run the cells that fit their tasks; write the results after each."""
        fit = self.runner.fitting(cells)
        self.order += fit
        done = []
        for cell in self.runner.run(fit, look or (lambda cell: None)):
            self.add(cell)
            done.append(cell)
            self._save()
        return done

    def add(self, cell: Cell) -> None:
        """Add a finished cell."""
        self.cells.append(cell)
        self.entries.append(result_entries(cell, self.runner.runs))

    def differences_file(self, cell: Cell) -> Path:
        """The file of the foreign-key differences of a run."""
        folder = self.runner.runs / "differences"
        folder.mkdir(exist_ok=True)
        return folder / f"{cell.key()}.json"

    def results(self, points: bool = False) -> dict[str, Any]:
        """The content of `results.json`, in the order of the grid."""
        position = {cell: number for number, cell in enumerate(self.order)}
        ordered = sorted(
            zip(self.cells, self.entries, strict=True), key=lambda pair: position.get(pair[0], 0)
        )
        found: dict[str, Any] = {
            "study": self.study.name, "title": self.study.title, "paper": self.study.paper,
            "command": self.command, "relfrog": __version__,
            "runs": [entry for _, entries in ordered for entry in entries],
            "skipped": self.runner.skipped, "failed": self.runner.failed,
        }  # fmt: skip
        if self.study.name == "structure":
            found["structure"] = [self._about(cell) | self._shares(cell) for cell, _ in ordered]
        if self.study.name == "fd-space":
            found["differences"] = [
                self._about(cell) | self._differences(cell, points) for cell, _ in ordered
            ]
        if self.study.name == "transfer":
            found["gates_filled"] = self.filled
        if self.study.name == "tune":
            found["tuned"] = [tuned.about for tuned in self.tuned]
        return found

    def _about(self, cell: Cell) -> dict[str, Any]:
        return {
            "dataset": cell.dataset.name, "task": cell.task, "task_type": cell.kind,
            "variant": cell.variant, "seed": cell.seed,
        }  # fmt: skip

    def _shares(self, cell: Cell) -> dict[str, Any]:
        roles = load_run(cell.folder(self.runner.runs)).roles()
        return {"shares": role_shares(roles, cell.dataset.tables)}

    def _differences(self, cell: Cell, points: bool) -> dict[str, Any]:
        found: dict[str, Any] = read_json(self.differences_file(cell), DifferencesFile)
        left_out = () if points else ("points", "key", "matched")
        return {name: value for name, value in found.items() if name not in left_out}

    def _save(self) -> dict[str, Any]:
        results = self.results()
        write_json(self.folder / "results.json", results)
        return results

    def write(self) -> dict[str, Any]:
        """Write results, table and charts."""
        results = self._save()
        for old in self.folder.glob(f"{self.study.name}*.svg"):
            old.unlink()
        files = render(self.study, self.results(points=True))
        for tuned in self.tuned:
            files["table.md"] += "\n" + tuned.table
        for name, text in files.items():
            write_text(self.folder / name, text)
        return results


def _transfer(grid: _Grid, results: _StudyResults) -> None:
    """Learn the roles of each task, then train every task with the fixed roles of each task."""
    learned = results.run(grid.cells())
    cells = []
    for source in learned:
        roles = load_run(source.folder(results.runner.runs)).roles()
        gates = dict(zip(roles["route"], roles["gate"], strict=True))
        for target in learned:
            if (target.dataset, target.seed) != (source.dataset, source.seed):
                continue
            own = load_run(target.folder(results.runner.runs)).roles()["route"]
            # Routes through the label history differ between tasks: missing gates are set to 0.5.
            missing = [route for route in own if route not in gates]
            if missing:
                what = f"{target.dataset.name} {target.task} with {source.task}"
                results.filled[what] = len(missing)
            frozen = {route: float(gates.get(route, 0.5)) for route in own}
            variant = Variant(f"roles of {source.task}")
            cells.append(grid.cell(target.dataset, target.task, variant, target.seed, frozen))
    results.run(cells)
