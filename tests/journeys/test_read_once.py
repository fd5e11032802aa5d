"""A command reads its database once and encodes each table once, however many models share it."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import relfrog
from relfrog.analysis.changed_tables import ChangedTask
from relfrog.cli import cli
from relfrog.datasets import tasks
from relfrog.features.table import TableColumns
from relfrog.models.boosting import BoostedTrees
from relfrog.models.network_model import NetworkModel
from relfrog.models.past_labels import PastModel
from relfrog.models.rankers import BoostedRanker
from relfrog.training.opened_task import open_task
from small_store import QUICK

TABLES = 5  # with the table of earlier labels


@pytest.fixture
def counted(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the database was read, and tables encoded."""
    count: Counter[str] = Counter()
    dataset = type(relfrog.open_dataset(shop))
    read, encode = dataset.get_db, TableColumns.encode

    def counted_read(self: Any, *given: Any, **options: Any) -> Any:
        count["read"] += 1
        return read(self, *given, **options)

    def counted_encode(self: Any, *given: Any) -> Any:
        count["encode"] += 1
        return encode(self, *given)

    monkeypatch.setattr(dataset, "get_db", counted_read)
    monkeypatch.setattr(TableColumns, "encode", counted_encode)
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)
    monkeypatch.setattr(BoostedRanker, "ROUNDS", 20)
    return count


def command(*words: Any) -> None:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output


def settings(**more: Any) -> list[str]:
    given = {**QUICK, "epochs": 1, "trials": 1, **more}
    return [word for name, value in given.items() for word in ("--set", f"{name}={value}")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "model", "more"),
    [
        ("buys", "auto", {"refit": "true"}),
        ("list", "auto", {}),
        ("buys", "frog", {"history": "auto"}),
        ("list", "frog", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_once_per_command(
    task: str,
    model: str,
    more: dict[str, Any],
    shop: Path,
    tmp_path: Path,
    counted: Counter[str],
) -> None:
    run = tmp_path / "run"
    command("train", shop, task, "--out", run, "--model", model, *settings(**more))
    assert (run / "report.html").exists()
    assert counted["read"] <= 1
    assert counted["encode"] <= TABLES
    for words in (
        ["evaluate", run, "--split", "val"],
        ["predict", run, "--out", tmp_path / "p.csv", "--overwrite"],
        ["report", run, "--fresh"],
        ["explain", run, "--entity", "P03", "--at", "2020-10-01"],
    ):
        counted.clear()
        command(*words)
        assert counted["read"] <= 1, words
        assert counted["encode"] <= TABLES, words
    counted.clear()
    command("roles", run)  # from the run folder alone
    assert not counted


@pytest.mark.slow
def test_a_certificate_alters_what_was_read(
    shop: Path, tmp_path: Path, counted: Counter[str]
) -> None:
    """Three other futures are three other databases to encode; none of them is read again."""
    run = tmp_path / "run"
    train = ("train", shop, "buys", "--out", run, "--model", "auto", "--no-report")
    command(*train, *settings())
    counted.clear()
    out = tmp_path / "p.csv"
    command("predict", run, "--out", out, "--at", "2020-10-01", "--certify")
    assert counted["read"] <= 1
    assert counted["encode"] <= 4 * TABLES


@pytest.fixture
def with_one_time(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shop, whose splits have one seed time each, with a cache that no other run has filled."""
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)
    data = Path(shutil.copytree(shop, tmp_path / "data"))
    path = data / "tasks" / "buys" / "manifest.yaml"
    manifest = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**manifest, "num_eval_timestamps": 1}))
    for split in ("train", "val", "test"):
        path.with_name(f"{split}.parquet").unlink(missing_ok=True)
    return data


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str]]:
    """Each model that predicts for a split, and the split, as often as it does."""
    found: list[tuple[Any, str]] = []
    for kind in (NetworkModel, BoostedTrees, PastModel):

        def predict(self: Any, seeds: Any, *given: Any, plain: Any = kind.predict) -> Any:
            split = self.prepared.opened.split_of(seeds)
            if split is not None and not isinstance(self.prepared.opened, ChangedTask):
                found.append((self, split))
            return plain(self, seeds, *given)

        monkeypatch.setattr(kind, "predict", predict)
    return found


LATER = (
    ["evaluate"], ["evaluate", "--regime", "frozen"], ["evaluate", "--split", "val"],
    ["report", "--fresh"],
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("model", ["frog", "lightgbm", "recent"])
def test_each_split_is_predicted_once(
    model: str, with_one_time: Path, tmp_path: Path, predicted: list[tuple[Any, str]]
) -> None:
    """By the model and by each baseline, in the first command that asks, whatever comes later."""
    run = tmp_path / "run"
    command("train", with_one_time, "buys", "--out", run, "--model", model, *settings())
    for words in ([], *LATER):
        if words:
            command(words[0], run, *words[1:])
        count = Counter((type(one).__name__, split) for one, split in predicted)
        assert len(count) >= 6, count  # the model and baselines, on two splits
        assert set(count.values()) == {1}, (words, count)  # frozen and rolling are the same


@pytest.mark.slow
def test_members_predict_each_split_once(
    with_one_time: Path, tmp_path: Path, predicted: list[tuple[Any, str]]
) -> None:
    """A model that was refitted is another one; the blend and all later commands predict nothing."""
    run = tmp_path / "run"
    more = settings(networks=2, refit="true")
    command("train", with_one_time, "buys", "--out", run, "--model", "auto", *more)
    known = len(predicted)
    count = Counter((id(one), split) for one, split in predicted)
    assert set(count.values()) == {1}, Counter((type(o).__name__, split) for o, split in predicted)
    for words in LATER:
        command(words[0], run, *words[1:])
        assert len(predicted) == known, (words, predicted[known:])


@pytest.mark.slow
def test_labels_are_made_once(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `inspect`; asked again, and in a training, they come from the store."""
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "cache"))
    data = Path(shutil.copytree(shop, tmp_path / "data"))
    for path in data.glob("tasks/*/*.parquet"):
        path.unlink()
    made: Counter[tuple[str, str]] = Counter()
    make = tasks._StoredLabels._get_table

    def counted_make(self: Any, split: str, *given: Any) -> Any:
        made[self.name, split] += 1
        return make(self, split, *given)

    monkeypatch.setattr(tasks._StoredLabels, "_get_table", counted_make)
    first = relfrog.inspect(data)
    sql = {name for name, split in made}
    assert {"buys", "list"} <= sql
    assert made == Counter((name, split) for name in sql for split in ("train", "val", "test"))
    assert relfrog.inspect(data) == first
    plain = relfrog.inspect(shop)["tasks"]  # whose labels are files
    assert [task["splits"] for task in first["tasks"]] == [task["splits"] for task in plain]
    for name in ("buys", "list"):
        opened = open_task(data, name)
        sizes = {split: len(opened.seeds(split)) for split in ("train", "val", "test")}
        known = next(task["splits"] for task in first["tasks"] if task["name"] == name)
        assert sizes == {split: about["rows"] for split, about in known.items()}
    assert set(made.values()) == {1}, made
