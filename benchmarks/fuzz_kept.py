"""Formats of what RelFrog keeps for itself between commands: see `fuzz_formats`.

Run folders beside what a model learned, checkpoints, searches, predictions in parts, and the cache
folder.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from relbench.base import Table

import relfrog
from fuzz_changes import as_json, as_lines, as_npy, as_parquet, as_progress, as_safetensors
from relfrog.analysis.explained import Explanation, FeatureShare, Reason, TableShare
from relfrog.analysis.fd_space import Differences
from relfrog.analysis.importance import Importance, TableImportance
from relfrog.config import Config
from relfrog.datasets.files import _read_facts, _unpacked, database_in_files
from relfrog.datasets.tasks import load_task
from relfrog.experiments.study_job import DifferencesFile
from relfrog.experiments.study_run import _check_folder
from relfrog.experiments.tune import open_search
from relfrog.features.columns import fit_columns
from relfrog.features.novelty import warn_of_new_categories
from relfrog.models import boosting
from relfrog.models.aggregates import fitted_encodings
from relfrog.models.aggregates.encoded_columns import EncodedColumn
from relfrog.models.aggregates.encoded_tables import load_features, save_features
from relfrog.models.backtest import Fold
from relfrog.models.blend import DatedLabels, choose
from relfrog.models.boosting import BoostedTrees
from relfrog.models.out_of_time import FILE as BACKTESTS
from relfrog.models.out_of_time import Foretold
from relfrog.models.run_forms import Epoch, RankerFile
from relfrog.reporting.gather import gather
from relfrog.reporting.material import Answers, Material
from relfrog.reporting.page import page
from relfrog.reporting.saved import keep, recall
from relfrog.reporting.sections.provenance import _certificates
from relfrog.runs.parts_folder import MANIFEST, PLAN, begun_at, is_whole, read_parts
from relfrog.runs.run import Run
from relfrog.store.parts import Store
from relfrog.support.files import write_json
from relfrog.support.forms import read_json, read_json_lines
from relfrog.training import checkpoint
from relfrog.training.opened_task import open_task
from relfrog.training.seeds import Seeds
from relfrog.training.task_store import TaskStore

__all__ = ["Entry", "kept_formats"]

#: A format: its sample, how it is changed, how it is read.
Entry = tuple[Path, Callable[[random.Random, bytes], bytes], Callable[[], Any]]


def kept_formats(folder: Path, dataset: Path, run: Run) -> dict[str, Entry]:
    """All formats of this module.

    Args:
        folder: Where their samples are written.
        dataset: A dataset folder.
        run: A run.
    """
    return {
        **_run_files(run), **_studies(folder / "study"), **_store_files(folder / "store", dataset),
        **_predictions(folder / "predictions"), **_trees(folder / "trees", dataset),
    }  # fmt: skip


def _run_files(run: Run) -> dict[str, Entry]:
    """What lies in a run folder beside what a model learned."""
    folder = run.folder
    write_json(folder / "unseen.json", {"people.city": ["Rom", "Oslo"]})
    write_json(folder / "p.certificate.json", {"sentence": "No row was later."})
    write_json(folder / "ranker.json", {"files": {"ranker.txt": "a" * 64}})
    network = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(network.parameters())

    def step() -> None:
        network(torch.ones(1, 3)).sum().backward()
        optimizer.step()

    step()
    trainer: Any = SimpleNamespace(
        network=network, average=None, dependencies=None, device=torch.device("cpu"),
        optimizers=lambda: {"optimizer": optimizer}, folder=folder / "begun",
        at=checkpoint.TrainerState(),
    )  # fmt: skip
    trainer.folder.mkdir()
    checkpoint.save(trainer)
    sound = [{k: v.clone() for k, v in network.state_dict().items()}]

    def resume() -> None:
        network.load_state_dict(sound[0])
        checkpoint.load(trainer)
        step()

    write_json(folder / "again.json", {"epoch": 0, "loss": 0.5, "seconds": 1.0})
    line = " ".join((folder / "again.json").read_text().split()) + "\n"
    again: Any = SimpleNamespace(folder=folder / "again", at=checkpoint.TrainerState(epoch=2))
    again.folder.mkdir()
    (again.folder / "history.jsonl").write_text(3 * line)

    def cut() -> None:
        checkpoint.load(again)
        read_json_lines(again.folder / "history.jsonl", Epoch)

    when = pd.Timestamp("2020-11-01")
    count = 8
    answers = Answers(
        Seeds(np.arange(count), np.repeat(when.to_datetime64(), count)), np.arange(count) % 2,
        np.linspace(0.1, 0.9, count), np.arange(count), [f"P{i}" for i in range(count)],
    )  # fmt: skip
    reason = Reason("orders", "7", when, 1, 0.1, {"amount": "3"}, (-1,))
    share = FeatureShare("count of orders", "orders", 2.0, 3, None, when, 0.2)
    shown = Material(
        run, answers=answers,
        importance=Importance(
            "roc_auc", 0.7, 8, 8, (TableImportance("orders", None, (0.1, 0.0, 0.2), None),)
        ),
        explanations=[
            Explanation("people", "P1", when, 0.5, "probability",
                        (TableShare("orders", 3, when, 0.1),), (reason,), 3, (share,), 0.3)
        ],
        differences=Differences(
            np.zeros((2, 2)), ["orders.person -> people"] * 2, np.array([True, False]),
            {"orders.person -> people": 0.7}, {"orders.person -> people": 0.7}, 0.1, 0.5
        ),
    )  # fmt: skip
    keep(shown, deep=False)
    drawn = [0]

    def report() -> None:
        found = Material(run)
        if not recall(found, deep=False):
            raise relfrog.RelFrogError("not recalled")
        drawn[0] += 1
        if drawn[0] % 500 == 1:  # half a second: what does not fit is computed again
            try:
                page(gather(run))
            except Exception as error:
                assert gather(run).kept
                raise relfrog.RelFrogError("not drawn") from error

    return {
        "unseen.json": (
            folder / "unseen.json", as_json,
            lambda: warn_of_new_categories({"people.city": ["Bonn"]}, folder),
        ),
        "certificate.json": (
            folder / "p.certificate.json", as_json, lambda: _certificates(folder)
        ),
        "ranker.json": (
            folder / "ranker.json", as_json, lambda: read_json(folder / "ranker.json", RankerFile)
        ),
        "checkpoint.safetensors": (trainer.folder / checkpoint.LAST, as_progress, resume),
        "resumed history.jsonl": (again.folder / "history.jsonl", as_lines, cut),
        "shown.json": (folder / "shown.json", as_json, report),
        "shown.safetensors": (folder / "shown.safetensors", as_safetensors, report),
    }  # fmt: skip


def _studies(folder: Path) -> dict[str, Entry]:
    """What a study leaves for the next time."""
    folder.mkdir(parents=True)
    write_json(folder / "results.json", {"study": "main", "runs": []})
    write_json(
        folder / "differences.json",
        {"points": [[0.0, 1.0]], "key": ["a"], "matched": [True], "separation": {"a": 0.5},
         "scored": {"a": None}, "silhouette": None, "explained": 0.5},
    )  # fmt: skip
    journal = folder / "shop.journal"
    study = open_search(journal, "shop", True)
    import optuna

    space = {"lr": optuna.distributions.CategoricalDistribution([0.1, 0.2])}
    for _ in range(2):
        study.tell(study.ask(space), 0.5)
    return {
        "results.json": (folder / "results.json", as_json, lambda: _check_folder(folder, "main")),
        "differences.json": (
            folder / "differences.json", as_json,
            lambda: read_json(folder / "differences.json", DifferencesFile),
        ),
        "tune.journal": (journal, as_lines, lambda: open_search(journal, "shop", True)),
    }  # fmt: skip


def _store_files(folder: Path, dataset: Path) -> dict[str, Entry]:
    """Parts in the cache folder: what is damaged is made anew, and the result is the same."""
    folder.mkdir(parents=True)
    store = Store(folder)
    opened = relfrog.open_dataset(dataset)
    db: Any = database_in_files(opened)
    columns = fit_columns(db, before=pd.Timestamp("2020-01-06"))
    values = np.arange(6.0)
    parts = TaskStore(opened, load_task(opened, "buys"), store)

    def encoded() -> None:
        parts.encode("orders", db.table_dict["orders"], columns.tables["orders"])

    def history() -> None:
        found = parts.history(db, lambda: Table(sample, {"id": "people"}, None, None))
        for name in found.columns:
            found.column(name)

    sample = pd.DataFrame({"y": [0.5, None], "id": [1, 2], "who": ["a", "b"]})

    def labels() -> None:
        parts.labels(["train"], db, lambda: sample)

    def part(kind: str, build: Any, load: Any) -> Any:
        return lambda: store.use(kind, {"a": 1}, build, load)

    def array() -> None:
        found = part(
            "predictions", lambda place: np.save(place / "predicted.npy", values),
            lambda place: np.load(place / "predicted.npy", allow_pickle=False),
        )()  # fmt: skip
        assert found.dtype.kind in "biufcSUMmV"

    features = part(
        "features", lambda place: save_features(place, np.zeros((2, 3), np.float32), []),
        load_features,
    )  # fmt: skip

    encodings = {"people": [EncodedColumn("people", "age", "number", 0.0, (), 0)]}
    of_task: Any = SimpleNamespace(opened=SimpleNamespace(parts=parts, db=db))

    def cells() -> None:
        with patch.object(fitted_encodings, "_fit", lambda *_: ({"people": 4}, encodings)):
            found = fitted_encodings.fit_encodings(of_task, "labels", 1)[1]
        for encoded in found.get("people", ()):
            encoded.encode(pd.Series([1.0, None]))

    def header() -> None:
        array()
        list(store.parts())
        store.damaged(file("predictions", "").name)

    listed = folder / "listed.txt"
    listed.write_text("x")

    facts = folder / "facts.json"
    write_json(
        facts,
        {"known_from": {"people": {"column": "k", "file": "known-0.parquet", "keys": ["who"]}},
         "spans": {"orders": [[1, "us", None], None]}},
    )  # fmt: skip

    def read_facts() -> None:
        found = _read_facts(folder, db.table_dict)
        for span in found["spans"].values():
            _unpacked(span)

    def file(kind: str, name: str) -> Path:
        return next((folder / "parts").glob(f"{kind}-*")) / name

    array()
    features()
    encoded()
    history()
    labels()
    cells()
    parts.graph(db)
    store.fingerprint(listed)
    record = next((folder / "files").glob("*.json"))
    return {
        "part.json": (file("predictions", "part.json"), as_json, header),
        "predicted.npy": (file("predictions", "predicted.npy"), as_npy, array),
        "trail.json": (file("features", "trail.json"), as_json, features),
        "encoded.json": (file("encoded", "encoded.json"), as_json, encoded),
        "codes.npy": (file("encoded", "codes.npy"), as_npy, encoded),
        "table.json": (file("history", "table.json"), as_json, history),
        "kept history.parquet": (file("history", "rows.parquet"), as_parquet, history),
        "kept labels.parquet": (file("labels", "rows.parquet"), as_parquet, labels),
        "parents.npy": (file("graph", "parents.npy"), as_npy, lambda: parts.graph(db)),
        "facts.json": (facts, as_json, read_facts),
        "cells.json": (file("cells", "cells.json"), as_json, cells),
        "fingerprint.json": (record, as_json, lambda: store.fingerprint(listed)),
    }  # fmt: skip


def _predictions(folder: Path) -> dict[str, Entry]:
    """A folder of predictions in parts: what was begun, what there is, and a part."""
    folder.mkdir(parents=True)
    about = {"model": "m", "data": "d", "made_at": "2020-01-06T10:00:00.000001"}
    write_json(folder / PLAN, about)
    for number in range(2):
        frame = pd.DataFrame({"id": [number], "at": pd.Timestamp("2020-01-06"), "probability": 0.5})
        frame.to_parquet(folder / f"m-d-{number}.parquet")
    parts = [{"file": f"m-d-{n}.parquet", "first": n, "last": n + 1} for n in range(2)]
    write_json(folder / MANIFEST, {"format": 1, **about, "parts": parts})

    def part() -> None:
        is_whole(folder / "m-d-0.parquet")
        read_parts(folder)

    return {
        PLAN: (folder / PLAN, as_json, lambda: begun_at(folder, about)),
        "predicted manifest.json": (folder / MANIFEST, as_json, lambda: read_parts(folder)),
        "predicted part.parquet": (folder / "m-d-0.parquet", as_parquet, part),
    }  # fmt: skip


def _trees(folder: Path, dataset: Path) -> dict[str, Entry]:
    """What the features of boosted trees are; the trees themselves are another format."""
    folder.mkdir(parents=True)
    opened = open_task(dataset, "buys")
    prepared = opened.prepare(Config(model="lightgbm", trials=1), encode=False)
    about = prepared.describe_labels(prepared.train_seeds)
    model = BoostedTrees(prepared, about)
    model.fit(folder)
    model.save(folder)
    seeds = opened.seeds("test")
    boosting.read_boosters = cache_by_width(boosting.read_boosters)

    def read() -> None:
        again = BoostedTrees(prepared, about)
        again.load(folder)
        again.predict(seeds, None)

    train = prepared.train_seeds
    assert train is not None
    some = np.arange(len(train))[-9:]
    cut = opened.dataset.val_timestamp - opened.task.timedelta
    Foretold([Fold(cut, some, some)], [np.linspace(0, 1, len(some))]).save(folder)

    def weigh() -> None:
        again = BoostedTrees(prepared, about)
        again._folder = folder
        known = again.foretold
        for fold, said in zip(known.folds, known.predicted, strict=True) if known else ():
            truth = model.truth(train.take(fold.scored))
            earlier = [DatedLabels(truth, {"lightgbm": said, "mean": np.zeros(len(said))})]
            choose(model.kind, truth[:9], {"lightgbm": said[:9], "mean": said[:9] / 2},
                   earlier=earlier)  # fmt: skip

    return {
        "features.json": (folder / BoostedTrees.FILE, as_json, read),
        "backtests.safetensors": (folder / BACKTESTS, as_safetensors, weigh),
    }


def cache_by_width(read: Callable[..., Any]) -> Callable[..., Any]:
    """Read trees once for each number of features, and for each list of files."""
    known: dict[str, Any] = {}

    def cached(folder: Path, sums: dict[str, str], features: int) -> Any:
        name = f"{sorted(sums.items())} {features}"
        if name not in known:
            known[name] = read(folder, sums, features)
        return known[name]

    return cached
