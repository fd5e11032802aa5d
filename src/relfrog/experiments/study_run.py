"""`experiment`: a study of the paper, run on datasets within reach, with results in files.

::

    OUT/results.json   every run with its scores, settings, seconds and memory
    OUT/table.md       mean and deviation over seeds, the paper's figures beside them
    OUT/*.svg          charts
    OUT/runs/          the run folders, by which it goes on after an interruption
    OUT/log.txt        what the training processes printed
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from relfrog._version import __version__
from relfrog.config import Config, parse_settings, resolve
from relfrog.errors import RunError, UsageError, unknown
from relfrog.experiments.grid import Cell, GridRunner, cell_for, result_entries
from relfrog.experiments.render import render, role_shares
from relfrog.experiments.studies import Study, Variant, find_study
from relfrog.experiments.study_datasets import StudyDataset, find_datasets
from relfrog.experiments.tune import Tuned, tune
from relfrog.runs.run import load_run
from relfrog.runs.train import RunInterrupted
from relfrog.support.files import locked, read_json, write_json, write_text

__all__ = ["experiment"]


def experiment(
    name: str,
    *,
    datasets: Sequence[str | Path] = (),
    tasks: Sequence[str] = (),
    models: Sequence[str] = (),
    seeds: int | None = None,
    jobs: int = 1,
    threads: int | None = None,
    out: str | Path | None = None,
    runs: str | Path | None = None,
    size: str = "medium",
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    trials: int = 20,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run a study of the paper; finished runs are reused, so that it can be interrupted.

    Args:
        name: "main", "roles", "fd", "sensitivity", "structure", "transfer", "fd-space" or "tune".
        datasets: dataset folders, or names that RelBench knows; by default those on which the
            paper has the study. What cannot be reached is skipped.
        tasks: by name; by default those of the paper, or all of a dataset that is not in it.
        models: in "main", only these.
        seeds: how many; 5 by default, 1 for "tune".
        jobs: runs at a time, each in a process of its own.
        threads: of each run; 1 by default. The same as the setting `threads`.
        out: folder for the results; by default `relfrog-experiments/NAME`.
        runs: folder for the run folders, which several studies can share; by default `runs` in
            `out`, or `relfrog-experiments/runs` where `out` is not given.
        size: "small", "medium" or "large", of the networks.
        preset: a preset, or a YAML file of settings, for all runs; `{dataset}` and `{task}` in it
            are replaced by the names of both.
        settings: single settings for all runs; see `relfrog.config.Config`.
        trials: in "tune", settings to try per task.
        say: told in one line each what happens.

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
    given = parse_settings(settings or {})
    if "seed" in given:
        raise UsageError("an experiment runs several seeds: --seeds N. Leave --set seed out.")
    if threads is not None and given.setdefault("threads", threads) != threads:
        raise UsageError(f"threads are given twice: {threads} and {given['threads']}.")
    if study.name != "main" and (models or "model" in given):
        raise UsageError(f"experiment {name} is about frog; models are compared by main.")
    if "{" not in (preset or ""):
        resolve(1000, size=size, preset=preset, settings=given)
    variants = _chosen(study, models)
    folder = Path(out).expanduser() if out else Path("relfrog-experiments") / name
    shared = folder.parent / "runs" if out is None else folder / "runs"
    kept = Path(runs).expanduser() if runs else shared
    _check_folder(folder, name)
    count = int(given.get("threads", Config.threads))
    runner = GridRunner(kept, jobs, count, folder / "log.txt", say or _silent)
    places = find_datasets([str(d) for d in datasets], tasks, study.default_tasks(), runner.skip)
    if not places:
        raise RunError(
            "no dataset is within reach. Name folders: --datasets FOLDER; the names and addresses "
            f"of the paper's datasets: relfrog experiment {name} --list"
        )
    for place in (folder, kept):  # not before it is known that there is something to do
        place.mkdir(parents=True, exist_ok=True)
    command = _command(
        name, datasets=datasets, tasks=tasks, models=models, seeds=seeds, out=out, runs=runs,
        size=size if size != "medium" else None, preset=preset,
        trials=trials if name == "tune" else None, set=[f"{k}={v}" for k, v in given.items()],
    )  # fmt: skip
    grid = _Grid(study, variants, places, seeds or study.seeds, given, size, preset)
    work = _Work(study, runner, folder, command)
    with locked(folder):
        try:
            if study.name == "tune":
                work.tuned = tune(grid.cell, places, runner, grid.seeds, trials, folder, given)
                for found in work.tuned:
                    for cell in found.cells:
                        work.add(cell)
            elif study.name == "transfer":
                _transfer(grid, work)
            else:
                look = work.differences_file if study.name == "fd-space" else None
                work.run(grid.cells(), look)
        except KeyboardInterrupt:
            work.write()
            raise RunInterrupted(
                f"Interrupted. {len(work.cells)} runs are finished and kept; go on with the same "
                f"command: {command}"
            ) from None
        return work.write()


def _silent(line: str) -> None:
    """Say nothing."""


def _chosen(study: Study, models: Sequence[str]) -> tuple[Variant, ...]:
    known = [variant.name for variant in study.variants]
    for model in models:
        if model not in known:
            raise UsageError(str(unknown("model", model, known)))
    return tuple(v for v in study.variants if not models or v.name in models)


def _check_folder(folder: Path, name: str) -> None:
    """One that holds something else is left alone."""
    if folder.is_file():
        raise UsageError(f"{folder} is a file. Choose another folder.")
    there = folder / "results.json"
    if there.is_file():
        found = read_json(there)
        study = found.get("study") if isinstance(found, dict) else None
        if study != name:
            raise UsageError(
                f"{folder} holds results of {study or 'something else'}. Choose another folder; "
                "runs can be shared: --runs FOLDER"
            )


def _command(name: str, **options: Any) -> str:
    """The command that gives the same results."""
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
        self, study: Study, variants: Sequence[Variant], places: Sequence[StudyDataset], seeds: int,
        settings: Mapping[str, Any], size: str, preset: str | None,
    ) -> None:  # fmt: skip
        self.study, self.variants, self.places, self.seeds = study, variants, places, seeds
        self.settings, self.size, self.preset = settings, size, preset

    def cell(
        self, place: StudyDataset, task: str, variant: Variant, seed: int,
        gates: Mapping[str, float] | None = None,
    ) -> Cell:  # fmt: skip
        """One of them."""
        return cell_for(place, task, variant, seed, self.settings, self.size, self.preset, gates)

    def cells(self) -> list[Cell]:
        """All of them, seed by seed, so that what is there early is a comparison."""
        return [
            self.cell(place, task, variant, seed)
            for seed in range(self.seeds)
            for place in self.places
            for task in place.kinds
            # One that is made of others comes when they are there.
            for variant in sorted(self.variants, key=lambda variant: variant.model == "auto")
            if seed == 0 or variant.draws
        ]


class _Work:
    """What has been done, and the files about it."""

    def __init__(self, study: Study, runner: GridRunner, folder: Path, command: str) -> None:
        self.study, self.runner, self.folder, self.command = study, runner, folder, command
        self.cells: list[Cell] = []
        self.entries: list[list[dict[str, Any]]] = []
        self.order: list[Cell] = []
        self.tuned: list[Tuned] = []
        self.filled: dict[str, int] = {}

    def run(self, cells: Sequence[Cell], look: Callable[[Cell], Path] | None = None) -> list[Cell]:
        """Run cells that fit; results are written after each."""
        fit = self.runner.fitting(cells)
        self.order += fit
        done = []
        for cell in self.runner.run(fit, look or (lambda cell: None)):
            self.add(cell)
            done.append(cell)
            self._save()
        return done

    def add(self, cell: Cell) -> None:
        """A run is there."""
        self.cells.append(cell)
        self.entries.append(result_entries(cell, self.runner.runs))

    def differences_file(self, cell: Cell) -> Path:
        """Where the differences of a run are kept."""
        place = self.runner.runs / "differences"
        place.mkdir(exist_ok=True)
        return place / f"{cell.key()}.json"

    def results(self, points: bool = False) -> dict[str, Any]:
        """The content of `results.json`, in the order of the grid."""
        place = {cell: number for number, cell in enumerate(self.order)}
        ordered = sorted(
            zip(self.cells, self.entries, strict=True), key=lambda pair: place.get(pair[0], 0)
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
            "dataset": cell.place.name, "task": cell.task, "task_type": cell.kind,
            "variant": cell.variant, "seed": cell.seed,
        }  # fmt: skip

    def _shares(self, cell: Cell) -> dict[str, Any]:
        roles = load_run(cell.folder(self.runner.runs)).roles()
        return {"shares": role_shares(roles, cell.place.tables)}

    def _differences(self, cell: Cell, points: bool) -> dict[str, Any]:
        found: dict[str, Any] = read_json(self.differences_file(cell))
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


def _transfer(grid: _Grid, work: _Work) -> None:
    """Learn the structure of each task, then train each task with the frozen one of each."""
    learned = work.run(grid.cells())
    cells = []
    for source in learned:
        roles = load_run(source.folder(work.runner.runs)).roles()
        gates = dict(zip(roles["route"], roles["gate"], strict=True))
        for target in learned:
            if (target.place, target.seed) != (source.place, source.seed):
                continue
            own = load_run(target.folder(work.runner.runs)).roles()["route"]
            # Routes through earlier labels differ between tasks: a gate that is not there is open
            # half-way.
            missing = [route for route in own if route not in gates]
            if missing:
                what = f"{target.place.name} {target.task} with {source.task}"
                work.filled[what] = len(missing)
            frozen = {route: float(gates.get(route, 0.5)) for route in own}
            variant = Variant(f"roles of {source.task}")
            cells.append(grid.cell(target.place, target.task, variant, target.seed, frozen))
    work.run(cells)
