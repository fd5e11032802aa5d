"""`ask`: from a database and a question to a trained model, in one call."""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.task_file import read_task_manifest, task_names
from relfrog.errors import DatasetError, RelFrogError, UsageError
from relfrog.importing.database import import_database
from relfrog.io.secrets import hide_password
from relfrog.io.sources import same_source
from relfrog.kinds import MODELS
from relfrog.models.auto import member_names
from relfrog.models.model import Model
from relfrog.models.run_folder import is_run, read_run
from relfrog.queries.new_task import Plan, add_query_tasks, plan_query
from relfrog.runs.forecast import Forecast
from relfrog.runs.run import Run, load_run
from relfrog.runs.train import train
from relfrog.support.files import maybe_path, user_path
from relfrog.support.forms import read_json
from relfrog.support.text import words
from relfrog.training.callbacks import Callback, announce
from relfrog.training.progress import TrainingProgress, is_watched

__all__ = ["Asked", "FirstAnswer", "ask", "find_dataset", "prepare_question"]

#: The time budget of training, in minutes.
MINUTES = 5.0


@dataclass(frozen=True)
class FirstAnswer:
    """What the quick models say, while the others still learn.

    Attributes:
        model: The best of them by validation.
        metric: The metric.
        score: Its validation score.
        seconds: Since the question was asked; a database that is imported first takes its share.
        predictions: Its predictions.
    """

    model: str
    metric: str
    score: float
    seconds: float
    predictions: pd.DataFrame


@dataclass(frozen=True)
class Asked:
    """A question that is ready to be learned.

    Attributes:
        dataset: The dataset folder.
        tasks: Its tasks: one, or one per window of a forecast.
        plan: What the question became.
        notes: What was chosen for the user.
    """

    dataset: Path
    tasks: tuple[str, ...]
    plan: Plan
    notes: tuple[str, ...] = ()


def ask(
    source: str | Path,
    query: str,
    out: str | Path | None = None,
    *,
    dataset: str | Path | None = None,
    name: str | None = None,
    minutes: float = MINUTES,
    size: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    overwrite: bool = False,
    callbacks: Sequence[Callback] | None = None,
    first: Callable[[FirstAnswer], None] | None = None,
) -> Run | Forecast:
    """Answer a question: import the database if need be, add the task, train within a time budget.

    Args:
        source: A dataset folder; or a database URL, a database file, or a folder of CSV or Parquet
            files, which is imported first.
        query: The question, such as ``PREDICT COUNT(orders.*, 0, 30, days) = 0 FOR EACH
            customers.id``.
        out: The run folder; by default ``runs/`` and the name of the task.
        dataset: The dataset folder to import into; by default named after the source.
        name: The name of the task; by default made from the question.
        minutes: The time budget of training.
        size: "small", "medium" (the default) or "large".
        settings: Other settings of the training; see `relfrog.config.Config`.
        seed: Of all random choices; 0 by default.
        overwrite: Whether to train again if the question was answered before.
        callbacks: Notified of what happens; by default progress is shown on a terminal and in a
            notebook.
        first: Receives a first answer, that of the quick models, after seconds.

    Returns:
        The run; of a forecast, one run per window.

    Raises:
        QueryError: The question cannot be read, or cannot be answered.
        RelFrogError: Anything else that the user can mend.
    """
    if callbacks is None and is_watched():
        with TrainingProgress() as progress:
            return ask(
                source, query, out, dataset=dataset, name=name, minutes=minutes, size=size,
                settings=settings, seed=seed, overwrite=overwrite, callbacks=[progress],
                first=first,
            )  # fmt: skip
    callbacks, began = list(callbacks or ()), time.monotonic()
    asked = prepare_question(source, query, dataset=dataset, name=name)
    for note in asked.notes:
        announce(callbacks, note)
    folder = user_path(out) if out is not None else Path("runs") / (name or task_name(asked.plan))
    runs = []
    for number, task in enumerate(asked.tasks, start=1):
        place = folder if asked.plan.question.query.forecast is None else folder / f"step-{number}"
        if is_run(place) and not overwrite:
            runs.append(_answered(place, asked.dataset, task))
            announce(callbacks, f"answered before, in {place}. Train again with --overwrite")
            continue
        quick = _Quick(asked.plan, first, began) if first is not None and number == 1 else None
        given = {"minutes": minutes / len(asked.tasks), **(settings or {})}
        place.parent.mkdir(parents=True, exist_ok=True)
        runs.append(
            train(
                asked.dataset, task, place, size=size, settings=given, seed=seed,
                overwrite=overwrite,
                callbacks=[*callbacks, *([quick] if quick is not None else [])],
            )
        )  # fmt: skip
    if asked.plan.question.query.forecast is None:
        return runs[0]
    return Forecast(tuple(runs))


def prepare_question(
    source: str | Path,
    query: str,
    *,
    dataset: str | Path | None = None,
    name: str | None = None,
    progress: Any = None,
) -> Asked:
    """Import the source if it is no dataset, and add the tasks of a question to it.

    A task that is there already, with the same question, is used as it is.
    """
    folder, notes = find_dataset(source, dataset, progress)
    opened = open_dataset(folder)
    plan = plan_query(opened, query)
    tasks = plan.names(name or task_name(plan))
    shown = " ".join(query.split())
    known = set(task_names(opened))
    if all(task in known for task in tasks):
        for task in tasks:
            manifest, _ = read_task_manifest(opened, task)
            if (manifest.query or manifest.description) != shown:
                raise UsageError(
                    f"the dataset has a task {task} already, for another question. Choose a name: "
                    "--name NAME"
                )
        return Asked(folder, tuple(tasks), plan, (*notes, f"the task {tasks[0]} is there already"))
    added = add_query_tasks(folder, name or task_name(plan), query, plan=plan)
    for one in added:
        counts = ", ".join(f"{stats.rows:,} {split}" for split, stats in one.stats.items())
        notes += (f"added task {one.manifest.name}; labels: {counts}",)
        notes += tuple(f"note: {text}" for text in (*one.notes, *one.warnings))
    return Asked(folder, tuple(tasks), plan, notes)


def find_dataset(
    source: str | Path, dataset: str | Path | None = None, progress: Any = None
) -> tuple[Path, tuple[str, ...]]:
    """The dataset folder of a source: itself, or what it was or is now imported into.

    Returns:
        The folder, and what was done.
    """
    text, path = str(source), maybe_path(source)
    if path is not None and (path / "manifest.yaml").is_file():
        if dataset is not None:
            raise UsageError(f"{source} is a dataset already: leave --dataset out")
        return path, ()
    if "://" not in text and (path is None or not path.exists()):
        raise DatasetError(
            f"{source} is neither a dataset folder nor a database. Give a folder that relfrog "
            "import made, a URL such as sqlite:///shop.db, or a folder of CSV or Parquet files."
        )
    folder = user_path(dataset) if dataset is not None else Path(_folder_name(text))
    if (folder / "manifest.yaml").is_file():
        shown, known = hide_password(text), _imported_from(folder)
        if known is None or not same_source(known, text):
            origin = "was not imported" if known is None else f"was imported from {known}"
            raise DatasetError(
                f"{folder} is there already, but {origin}, not from {shown}. Choose another "
                "folder: --dataset FOLDER"
            )
        renew = f"relfrog import {shlex.quote(shown)} {shlex.quote(str(folder))} --overwrite"
        return folder, (f"using {folder}, imported from {known} before; to read it again: {renew}",)
    result = import_database(text, folder, progress=progress)
    return folder, (f"imported {len(result.tables)} tables into {folder}",)


def _imported_from(folder: Path) -> str | None:
    try:
        return str(read_json(folder / "import.json", dict[str, Any], DatasetError)["source"])
    except (DatasetError, KeyError):
        return None


def _folder_name(source: str) -> str:
    """A folder named after a source: that of shop.db is shop."""
    last = re.split(r"[?#]", hide_password(source))[0].rstrip("/").rpartition("/")[2]
    if "://" in source:  # without a database it ends with the user, a password and the host
        last = re.sub(r"[^\w.-]", "-", last.rpartition("@")[2])
    stem = re.sub(r"\.(db|sqlite3?|duckdb|csv|parquet)$", "", last) or "dataset"
    return (
        stem
        if not Path(stem).exists() or (Path(stem) / "manifest.yaml").is_file()
        else f"{stem}-dataset"
    )


def task_name(plan: Plan) -> str:
    """A name for the task of a question: whom and what it is about, and some digits."""
    question = plan.question
    about = [question.entity.name]
    if question.column is not None:
        about.append(question.column)
    for item, source in list(question.sources.items())[:1]:
        about += [item.function.lower().replace("_", "-"), source.table.name]
    text = "-".join("-".join(words(part)) or "x" for part in about)[:60]
    digest = hashlib.sha256(" ".join(question.query.text.split()).encode()).hexdigest()
    return f"{text}-{digest[:4]}"


def _answered(place: Path, dataset: Path, task: str) -> Run:
    """A run that is there already, if it answers this question."""
    about, _ = read_run(place)
    if about["task"] != task or Path(about["dataset"]).resolve() != dataset.resolve():
        raise UsageError(
            f"{place} holds a run of another question ({about['task']}). Choose another folder: "
            "--out RUN"
        )
    return load_run(place)


class _Quick(Callback):
    """Tells a first answer when the last of the quick models is done."""

    def __init__(self, plan: Plan, tell: Callable[[FirstAnswer], None], began: float) -> None:
        self.plan, self.tell, self.began = plan, tell, began
        self.found: dict[str, tuple[float, Path, Model]] = {}

    def on_member(self, name: str, folder: Path, model: Model, record: Mapping[str, Any]) -> None:
        """Keep a quick model; of all of them, let the best answer."""
        if MODELS[name].learns:
            return
        kind, regime = model.kind, model.prepared.config.regime
        score = record["val"][regime].get(kind.metric)
        if score is not None and score == score:
            self.found[name] = (float(score), folder, model)
        quick = [n for n in member_names(kind.name) if not MODELS[n].learns]
        if name != quick[-1] or not self.found:
            return
        best = next(iter(self.found))
        for other in self.found:
            if kind.better(self.found[other][0], self.found[best][0]):
                best = other
        score, folder, model = self.found[best]
        try:
            about, config = read_run(folder)
            run = Run(folder, about, config, opened=model.prepared.opened, fitted=model)
            frame = run.predict(entities=self.plan.keys)
        except RelFrogError:  # the models that follow may do better, and say what is wrong
            return
        seconds = time.monotonic() - self.began
        self.tell(FirstAnswer(best, kind.metric, score, seconds, frame))
