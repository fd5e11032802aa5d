"""The grid of an experiment: each cell is a run, identified by a hash of its settings."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from relfrog._version import __version__
from relfrog.cluster.folders import meeting_place
from relfrog.cluster.replica import Replica, replicate
from relfrog.cluster.workers import Workers
from relfrog.config import Config, read_preset, resolve
from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.metrics import REGIMES
from relfrog.errors import RelFrogError, UsageError
from relfrog.experiments.score_tables import main_metric
from relfrog.experiments.studies import Variant
from relfrog.experiments.study_datasets import StudyDataset
from relfrog.experiments.study_job import is_complete, receive, run_job
from relfrog.kinds import MODELS
from relfrog.models.auto import member_names
from relfrog.models.run_folder import is_run
from relfrog.runs.run import load_run
from relfrog.support.text import duration

__all__ = ["Cell", "GridRunner", "result_entries"]

#: Settings that studies vary; default values are left out of the hash of a cell.
_VARIED = ("model", "roles", "beta", "gamma", "threads")


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of the grid: a task, settings and a random seed.

    Attributes:
        dataset: the dataset.
        task: the task.
        variant: its name in tables.
        settings: single settings.
        seed: random seed.
        size: size of the network.
        preset: name or file of a preset.
        gates: fixed gates by route, if any.
    """

    dataset: StudyDataset
    task: str
    variant: str
    settings: Mapping[str, Any]
    seed: int
    size: str = "medium"
    preset: str | None = None
    gates: Mapping[str, float] | None = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """RelBench's name of the task type."""
        return self.dataset.kinds[self.task]

    @property
    def label(self) -> str:
        """A label for messages."""
        return f"{self.dataset.name} {self.task}, {self.variant}, seed {self.seed}"

    def key(self) -> str:
        """A hash of everything that determines the result."""
        preset = read_preset(self.preset) if self.preset else {}
        given = preset | {
            name: value for name, value in self.settings.items()
            if name in preset or name not in _VARIED or value != getattr(Config, name)
        }  # fmt: skip
        if MODELS[given.get("model", Config.model)].baseline:
            given.pop("threads", None)  # baselines always use one
        content = [
            self.dataset.name, self.task, self.dataset.fingerprints[self.task], given, self.seed,
            self.size, self.gates, __version__,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def folder(self, runs: Path) -> Path:
        """Its run folder."""
        model = str(self.settings.get("model", Config.model))
        return runs / f"{self.dataset.name}-{self.task}-{model}-{self.seed}-{self.key()}"

    def check(self) -> None:
        """Check that the settings fit the task.

        Raises:
            UsageError: They do not fit.
        """
        resolve(1000, size=self.size, preset=self.preset, settings=self._given(), kind=self.kind)

    def _given(self) -> dict[str, Any]:
        """The settings with the model: studies are about FROG, unless they name another."""
        preset = read_preset(self.preset) if self.preset else {}
        return {"model": preset.get("model", Config.model), **self.settings}

    def job(self, runs: Path) -> dict[str, Any]:
        """The job for a worker process; see `relfrog.experiments.study_job.run_job`."""
        return {
            "dataset": self.dataset.address, "task": self.task, "folder": str(self.folder(runs)),
            "settings": self._given(), "preset": self.preset, "size": self.size,
            "seed": self.seed, "gates": None if self.gates is None else dict(self.gates),
            "members": self._members(runs),
        }  # fmt: skip

    def _members(self, runs: Path) -> dict[str, str] | None:
        """For `auto`, the run folders of its members in the same study, existing or not."""
        if not MODELS[self.settings.get("model", Config.model)].ensemble:
            return None
        alone = {
            name: replace(self, settings=_suited({**self.settings, "model": name}))
            for name in member_names(self.kind)
        }
        return {name: str(cell.folder(runs)) for name, cell in alone.items()}


def _suited(settings: dict[str, Any]) -> dict[str, Any]:
    """Drop settings that only apply to models that learn."""
    if not MODELS[settings.get("model", Config.model)].learns:
        settings.pop("refit", None)
    return settings


def cell_for(
    dataset: StudyDataset, task: str, variant: Variant, seed: int, settings: Mapping[str, Any],
    size: str, preset: str | None, gates: Mapping[str, float] | None = None,
) -> Cell:  # fmt: skip
    """Create a cell; `{dataset}` and `{task}` in the preset's name are replaced."""
    named = preset
    if preset is not None:
        named = preset.replace("{dataset}", dataset.name).replace("{task}", task)
    given = _suited({**settings, **variant.settings})
    return Cell(dataset, task, variant.name, given, seed, size, named, gates)


def result_entries(cell: Cell, runs: Path) -> list[dict[str, Any]]:
    """The entries of `results.json` for a finished run: one per regime.

    A run that was to be refitted has entries for the refitted model, and for the model selected by
    validation, which is the result of the same run without refit.
    """
    run = load_run(cell.folder(runs))
    about, val = run.about, run.metrics["val"]
    scored = {cell.variant: (run.metrics["test"], run.refitted)}
    if run.config.refit == "on":
        scored = {
            cell.variant: (run.metrics_before_refit, False),
            f"{cell.variant}-refit": (run.metrics["test"], True),
        }
    return [
        {
            "dataset": cell.dataset.name, "task": cell.task, "task_type": cell.kind,
            "model": run.config.model, "variant": variant, "regime": regime,
            "seed": cell.seed, "metrics": test[regime], "val_metrics": val[regime],
            "settings": asdict(run.config) | {"refit": refit},
            "seconds": about["seconds"], "peak_mb": round(about["peak_memory_bytes"] / 1e6, 1),
            "versions": {"relfrog": about["relfrog"], **about["versions"]},
            "run": cell.folder(runs).name,
        }
        for variant, (test, refit) in scored.items()
        for regime in REGIMES
    ]  # fmt: skip


@dataclass(eq=False)
class GridRunner:
    """Runs the cells of a grid in other processes, here or on a cluster.

    Attributes:
        runs: folder of the run folders.
        workers: the processes.
        say: called with a line of progress.
        skipped: messages about skipped cells.
        failed: messages about failed cells.
    """

    runs: Path
    workers: Workers
    say: Callable[[str], None]
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    _replicas: dict[str, Replica] = field(default_factory=dict)

    def skip(self, text: str) -> None:
        """Record and report something that is skipped, once."""
        if text not in self.skipped:
            self.skipped.append(text)
            self.say(text)

    def fitting(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells whose settings fit their tasks; reports why the others do not."""
        fit: list[Cell] = []
        unfit: dict[tuple[str, str], dict[str, None]] = {}
        for cell in cells:
            try:
                cell.check()
                fit.append(cell)
            except UsageError as error:
                tasks = unfit.setdefault((cell.variant, str(error)), {})
                tasks[f"{cell.dataset.name} {cell.task}"] = None
        for (variant, why), tasks in unfit.items():
            first, *others = tasks
            more = f" and {len(others)} more" if others else ""
            self.skip(f"skipped: {variant} on {first}{more}: {why}")
        return fit

    def run(
        self,
        cells: Sequence[Cell],
        look: Callable[[Cell], Path | None] = lambda cell: None,
        quiet: bool = False,
    ) -> Iterator[Cell]:
        """Run the cells without a finished run; yield each when it is finished, in any order.

        Args:
            cells: the cells; those with the same settings share a run.
            look: the file for the result of `relfrog.analysis.fd_space` of a cell, if any.
            quiet: whether to report only failures.
        """
        owners: dict[str, list[Cell]] = {}
        for cell in cells:
            owners.setdefault(cell.key(), []).append(cell)
        open_cells, jobs = [], []
        for several in owners.values():
            wanted = look(several[0])
            folder = several[0].folder(self.runs)
            if is_complete(folder) and (wanted is None or wanted.is_file()):
                yield from several
                continue
            open_cells.append(several)
            jobs.append(several[0].job(self.runs) | {"differences": wanted and str(wanted)})
        total, kept = len(owners), len(owners) - len(jobs)
        begun = sum(
            is_run(Path(job["folder"])) and not is_complete(Path(job["folder"])) for job in jobs
        )
        reused = f", {kept} of them finished before" if kept else ""
        resumed = f", {begun} to be taken up again" if begun else ""
        if not quiet:
            self.say(
                f"{total} runs{reused}{resumed}; {len(jobs)} to do, {self.workers.count} at a "
                f"time with {self.workers.threads} "
                f"{'thread' if self.workers.threads == 1 else 'threads'} each"
            )
        started = time.monotonic()
        for done, (number, answer) in enumerate(self._answers(jobs, open_cells), 1):
            several = open_cells[number]
            left = (time.monotonic() - started) / done * (len(jobs) - done)
            ahead = f"; about {duration(left)} left" if done < len(jobs) else ""
            at = f"[{kept + done}/{total}] {several[0].label}"
            if "error" not in answer:
                try:
                    said = self._validation(several[0])
                    if not quiet:
                        self.say(f"{at}: {said}{ahead}")
                    yield from several
                    continue
                except RelFrogError as error:
                    answer = {"error": str(error)}
            text = " ".join(str(answer["error"]).split())
            if answer.get("usage"):
                self.skip(f"skipped: {several[0].label}: {text}")
            else:
                self.failed.append(f"{several[0].label}: {text}")
                self.say(f"{at} failed: {text}{ahead}")

    def _answers(
        self, jobs: Sequence[dict[str, Any]], cells: Sequence[Sequence[Cell]]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Run the jobs; what other machines send back is put where it belongs."""
        if not self.workers.elsewhere or not jobs:
            yield from self.workers.run(run_job, jobs)
            return
        with meeting_place(self.runs) as place:
            sent = []
            for job, (cell, *_) in zip(jobs, cells, strict=True):
                preset = job["preset"]
                text = None
                if preset is not None and Path(preset).is_file():
                    text = Path(preset).read_text(encoding="utf-8")
                more = {"replica": self._replica(cell), "place": place, "preset_text": text}
                sent.append(job | {"folder": str(Path(job["folder"]).resolve())} | more)
            for number, answer in self.workers.run(run_job, sent):
                if "files" in answer:
                    receive(jobs[number], answer)
                yield number, answer

    def _replica(self, cell: Cell) -> Replica:
        """The dataset of a cell for other machines."""
        address = cell.dataset.address
        if address not in self._replicas:
            folder = Path(open_dataset(address).dataset_dir)
            self._replicas[address] = replicate({"dataset": folder})
        return self._replicas[address]

    def _validation(self, cell: Cell) -> str:
        """Progress of a finished cell: validation score and time, but no test score."""
        run = load_run(cell.folder(self.runs))
        metric = main_metric(cell.kind).name
        score = run.metrics["val"][run.config.regime].get(metric, float("nan"))
        return f"val {metric} {score:.4f}, {duration(run.about['seconds'])}"
