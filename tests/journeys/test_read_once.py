"""A command reads its database once and encodes each table once, however many models share it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import relfrog
from relfrog.cli import cli
from relfrog.features.table import TableColumns
from relfrog.models.boosting import BoostedTrees
from relfrog.models.rankers import BoostedRanker
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
