"""Files for RelBench's leaderboard: what is written is what was scored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from relbench.submit import evaluate_task

import relfrog
from relfrog.cli import cli
from relfrog.experiments import submit
from relfrog.experiments.submission import leaderboards
from small_store import fit


@pytest.fixture(scope="module")
def runs(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    tasks = ("buys", "spends", "list", "wants")
    found = {task: fit(shop, folder / task, task, epochs=1).folder for task in tasks}
    found["popularity"] = relfrog.train(
        shop, "list", folder / "popularity", model="popularity"
    ).folder
    return found


@pytest.mark.slow
def test_files_are_checked_and_score_as_the_runs_do(
    shop: Path, runs: dict[str, Path], tmp_path: Path
) -> None:
    done = submit([runs[t] for t in ("buys", "spends", "list")], tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "store__buys.csv", "store__list.csv", "store__spends.csv",
    ]  # fmt: skip
    for one, metric in zip(done, ("roc_auc", "nmae", "map"), strict=True):
        run = relfrog.load_run(runs[one.task.partition("/")[2]])
        assert one.metrics[metric] == pytest.approx(run.metrics["test"]["frozen"][metric], abs=1e-5)
        assert evaluate_task(one.task, one.file, dataset=shop) == pytest.approx(one.metrics)
        assert one.rows == len(pd.read_csv(one.file)) == run.count("test")
        assert one.family is None  # no leaderboard has tasks of this store
    lists = pd.read_csv(done[2].file)["id"].map(json.loads)
    assert lists.map(len).max() <= 3
    assert leaderboards(done) == {}


@pytest.mark.slow
def test_other_models_and_refusals(shop: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    (one,) = submit([runs["popularity"]], tmp_path / "out")
    run = relfrog.load_run(runs["popularity"])
    assert one.metrics["map"] == pytest.approx(run.metrics["test"]["frozen"]["map"], abs=1e-5)
    before = one.file.read_bytes()
    with pytest.raises(relfrog.errors.OutputError, match="already exists"):
        submit([runs["list"]], tmp_path / "out")
    assert one.file.read_bytes() == before
    submit([runs["list"]], tmp_path / "out", overwrite=True)
    assert one.file.read_bytes() != before
    with pytest.raises(relfrog.errors.UsageError, match="are both of store/list"):
        submit([runs["list"], runs["popularity"]], tmp_path / "two")
    with pytest.raises(relfrog.errors.UsageError, match="no multiclass_classification"):
        submit([runs["wants"]], tmp_path / "two")
    with pytest.raises(relfrog.errors.UsageError, match="name the runs"):
        submit([])
    assert not (tmp_path / "two").exists()


@pytest.mark.slow
def test_what_the_checker_refuses_is_not_left_behind(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        submit.__globals__["Run"],
        "predict_seeds",
        lambda self, seeds, cutoff: np.full(len(seeds), 2.0),
    )
    with pytest.raises(
        relfrog.errors.OutputError, match=r"checker refuses store__buys.csv.*\[0, 1\]"
    ):
        submit([runs["buys"]], tmp_path / "out")
    assert not list(tmp_path.rglob("*.csv"))


def test_command_line(runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(cli, ["submit", str(runs["buys"]), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "store__buys.csv" in done.stdout
    assert "roc_auc" in done.stdout
    said = CliRunner().invoke(
        cli, ["submit", str(runs["buys"]), "--out", str(out), "--overwrite", "--json"]
    )
    (file,) = json.loads(said.stdout)["files"]
    assert file["task"] == "store/buys"
