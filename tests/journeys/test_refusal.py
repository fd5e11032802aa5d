"""`train` refuses what `check` calls an error, and checks each content once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import relfrog
from fuzz_formats import LABELS, tiny_dataset
from relfrog.datasets.checks import refusal
from relfrog.errors import TaskError


def trained(dataset: Path, out: Path) -> relfrog.Run:
    return relfrog.train(dataset, "buys", out, model="mean", baselines=False)


def rewritten(dataset: Path, sql: str) -> None:
    """Give the task another SQL; its labels follow from it."""
    path = dataset / "tasks" / "buys" / "manifest.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "sql": sql}))
    for file in path.parent.glob("*.parquet"):
        file.unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: rewritten(d, LABELS.replace("<= t.timestamp", "<= t.timestamp + INTERVAL 9 DAY")),
         "depend on rows after their window"),
        (lambda d: rewritten(d, LABELS.replace("count(o.id) > 0", "p.id > 1")),
         "the same without anything after"),
        (lambda d: pd.read_parquet(d / "tasks/buys/val.parquet").assign(y=1)
         .to_parquet(d / "tasks/buys/val.parquet"), "stored labels differ"),
        (lambda d: pd.DataFrame({"id": [7, 7, 7, 7]}).to_parquet(d / "keys/people.parquet"),
         "duplicates"),
    ],
)  # fmt: skip
def test_what_check_calls_an_error_is_not_trained_on(
    change: object, said: str, tmp_path: Path
) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    assert relfrog.check(dataset).ok
    trained(dataset, tmp_path / "sound")
    change(dataset)  # type: ignore[operator]
    with pytest.raises(TaskError, match=said):
        trained(dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    found = [f.text for f in relfrog.check(dataset).findings if f.level == "error"]
    assert any(said in text for text in found), found


def test_an_error_of_the_machine_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "cache"))
    dataset, check = tiny_dataset(tmp_path / "ds"), refusal.check_task

    def without_room(*arguments: Any, **options: Any) -> None:
        check(*arguments, **options)
        arguments[3].error("task buys", "label SQL cannot run: the disk is full", "Make room.")

    with monkeypatch.context() as full:
        full.setattr(refusal, "check_task", without_room)
        with pytest.raises(TaskError, match="the disk is full"):
            trained(dataset, tmp_path / "run")
    trained(dataset, tmp_path / "run")


def test_a_content_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command that adds the task, by `check`, or by the first training."""
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "cache"))
    dataset, calls = tiny_dataset(tmp_path / "ds"), []
    check = refusal.check_task

    def counted(*arguments: object, **options: object) -> None:
        calls.append(arguments[1])
        check(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(refusal, "check_task", counted)
    for number in range(3):
        trained(dataset, tmp_path / f"run{number}")
    assert calls == ["buys"]
    copy = Path(shutil.copytree(dataset, tmp_path / "copy"))
    rewritten(copy, f"{LABELS} ORDER BY 1, 2")
    assert relfrog.check(copy).ok
    trained(copy, tmp_path / "checked")
    relfrog.add_task(
        copy, "buys", LABELS, type="binary", entity="people", horizon="1 day", overwrite=True
    )
    trained(copy, tmp_path / "added")
    assert calls == ["buys"]
