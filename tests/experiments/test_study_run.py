"""Experiments end to end on a small store: every study, resuming, results, tables, charts."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

import relfrog
from relfrog.cli import cli
from relfrog.cluster import workers
from relfrog.cluster.guarded import guarded
from relfrog.config import read_preset
from relfrog.experiments import experiment, study_datasets
from relfrog.experiments import study_run as experiments
from relfrog.experiments.paper import paper_tasks, published_scores, search_space
from relfrog.experiments.render import role_shares
from relfrog.experiments.score_tables import marked, summarize
from relfrog.experiments.studies import STUDIES
from relfrog.experiments.study_charts import (
    compare_values,
    compare_variants,
    plot_pairs,
    plot_shares,
)
from relfrog.kinds import MODELS
from relfrog.runs.train import RunInterrupted
from relfrog.training.trainer import Trainer
from small_store import QUICK

SETTINGS = {**QUICK, "epochs": 1}
FIELDS = {
    "dataset",
    "task",
    "model",
    "regime",
    "seed",
    "metrics",
    "settings",
    "seconds",
    "peak_mb",
    "versions",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders that the studies share."""
    return tmp_path_factory.mktemp("shared") / "runs"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run jobs in this process, which saves the seconds in which another one starts."""

    def in_process(run: Any, jobs: Any, *_: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        return ((number, guarded(run, job)) for number, job in enumerate(jobs))

    monkeypatch.setattr(workers, "run_jobs", in_process)


@pytest.fixture
def study(shop: Path, runs: Path, tmp_path: Path, here: None) -> Callable[..., dict[str, Any]]:
    """Run a study with few settings."""

    def run(name: str, tasks: list[str], **options: Any) -> dict[str, Any]:
        options = {"seeds": 1, "settings": SETTINGS, "out": tmp_path / name, **options}
        return experiment(name, datasets=[shop], tasks=tasks, runs=runs, **options)

    return run


def check_files(folder: Path, charts: int) -> str:
    """All files of a study are there and well-formed; the table."""
    drawn = sorted(folder.glob("*.svg"))
    assert len(drawn) == charts
    table = (folder / "table.md").read_text()
    for path in drawn:
        check_svg(path.read_text())
        assert f"]({path.name})" in table
    results = json.loads((folder / "results.json").read_text())
    assert all(run.keys() >= FIELDS for run in results["runs"])
    return table


def check_svg(text: str) -> ET.Element:
    """Well-formed, with a text alternative, for light and dark pages, without a background."""
    root = ET.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert root.get("role") == "img"
    assert root.findtext(f"{space}title") == root.get("aria-label")
    assert "prefers-color-scheme" in (root.findtext(f"{space}style") or "")
    assert not root.findall(f".//{space}script")
    assert "nan" not in text
    return root


# Every study.


@pytest.mark.slow
def test_what_learned_once_more_stands_beside_what_was_chosen(
    study: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    models = ["mean", "sage", "auto"]
    given = {**SETTINGS, "trials": 1}
    # In the blend of this task is a member that learns: quick ones are not refitted.
    tasks = ["counts"]
    plain = study(
        "main", tasks, models=models, settings={**given, "refit": "off"}, out=tmp_path / "plain"
    )
    refit = study(
        "main", tasks, models=models, settings={**given, "refit": True}, out=tmp_path / "refit"
    )
    found = [
        {(r["variant"], r["regime"]): r["metrics"] for r in results["runs"]}
        for results in (plain, refit)
    ]
    names = {variant for variant, _ in found[1]}
    assert names == {"mean", "sage", "sage-refit", "auto", "auto-refit"}
    for key, metrics in found[0].items():
        assert found[1][key] == metrics
        if key[0] != "mean":
            assert found[1][f"{key[0]}-refit", key[1]] != metrics
    assert {r["settings"]["refit"] for r in refit["runs"] if r["variant"] == "sage"} == {False}
    assert "sage-refit" in check_files(tmp_path / "refit", 2)


@pytest.mark.slow
def test_main(study: Callable[..., Any], tmp_path: Path) -> None:
    said: list[str] = []
    results = study(
        "main", ["buys", "list"], seeds=2, models=["frog", "id-gnn", "popularity"], say=said.append
    )
    table = check_files(tmp_path / "main", 2)
    found = {(r["task"], r["model"], r["seed"], r["regime"]) for r in results["runs"]}
    regimes = ("frozen", "rolling")
    assert found == {
        (task, model, seed, regime)
        for task, model, seed in [
            ("buys", "frog", 0), ("buys", "frog", 1), ("list", "frog", 0), ("list", "frog", 1),
            ("list", "id-gnn", 0), ("list", "id-gnn", 1),
            ("list", "popularity", 0),  # another seed would give the same
        ]
        for regime in regimes
    }  # fmt: skip
    run = results["runs"][0]
    assert run["settings"]["channels"] == 8
    assert run["versions"].keys() >= {"relfrog", "python", "torch"}
    assert run["seconds"] > 0
    assert run["peak_mb"] > 50
    skipped = [line for line in said if line.startswith("skipped: ")]
    assert len(skipped) == len(results["skipped"]) == 2
    assert all("on store buys: model" in line for line in skipped)
    assert "store buys | rolling |" in table
    assert "Skipped:" in table
    assert sum("left" in line for line in said) == 6  # all runs but the last say how long


@pytest.mark.slow
def test_roles_fd_and_structure_share_a_run(
    study: Callable[..., Any], tmp_path: Path, runs: Path
) -> None:
    roles = study("roles", ["buys"])
    assert [r["variant"] for r in roles["runs"]] == [
        v for v in ("node", "edge", "random", "learned") for _ in (0, 1)
    ]
    assert [r["settings"]["roles"] for r in roles["runs"]][::2] == [
        "node",
        "edge",
        "random",
        "learned",
    ]
    table = check_files(tmp_path / "roles", 2)
    assert "**" in table
    assert "_" in table
    said: list[str] = []
    fd = study("fd", ["buys"], say=said.append)
    assert "4 runs, 1 of them finished before" in said[0]
    weights = [(r["settings"]["beta"], r["settings"]["gamma"]) for r in fd["runs"]][::2]
    assert weights == [(1e-6, 0.01), (0, 0.01), (1e-6, 0), (0, 0)]
    check_files(tmp_path / "fd", 2)
    said.clear()
    structure = study("structure", ["buys"], say=said.append)
    assert "1 runs, 1 of them finished before; 0 to do" in said[0]
    (entry,) = structure["structure"]
    for question, shares_of in entry["shares"].items():
        assert not shares_of or sum(shares_of.values()) == pytest.approx(1), question
    table = check_files(tmp_path / "structure", 1)
    assert "co-occurrence: node" in table
    learned = {r["run"] for r in roles["runs"] if r["variant"] == "learned"}
    assert learned == {r["run"] for r in structure["runs"]} <= {r["run"] for r in fd["runs"]}


@pytest.mark.slow
def test_transfer_freezes_the_structure_of_another_task(
    study: Callable[..., Any], tmp_path: Path, runs: Path
) -> None:
    results = study("transfer", ["buys", "list"])
    check_files(tmp_path / "transfer", 2)
    by = {(r["task"], r["variant"]): runs / r["run"] for r in results["runs"]}
    assert by.keys() == {
        (t, v) for t in ("buys", "list") for v in ("learned", "roles of buys", "roles of list")
    }
    gates = {
        at: relfrog.load_run(path).roles().set_index("route")["gate"] for at, path in by.items()
    }
    for task in ("buys", "list"):
        for source in ("buys", "list"):
            frozen, learned = gates[task, f"roles of {source}"], gates[source, "learned"]
            both = frozen.index.intersection(learned.index)
            assert len(both) > 2
            assert frozen[both].to_list() == pytest.approx(learned[both].to_list(), abs=1e-6)
            assert (frozen.drop(both) == 0.5).all()
    # A list has a table of earlier labels with two keys, which the other task has no roles for.
    assert results["gates_filled"].keys() == {"store list with buys"}


@pytest.mark.slow
def test_fd_space(study: Callable[..., Any], tmp_path: Path) -> None:
    results = study("fd-space", ["buys"])
    table = check_files(tmp_path / "fd-space", 1)
    assert [d["variant"] for d in results["differences"]] == ["with L_FD", "without L_FD"]
    for found in results["differences"]:
        assert len(found["separation"]) == 3
        assert "points" not in found
    assert "orders.person -> people" in table
    assert "silhouette" in table
    (chart,) = (tmp_path / "fd-space").glob("*.svg")
    marks = ".//{*}g[@class='mark-symbol role-mark concat_0_marks']/*"
    assert len(check_svg(chart.read_text()).findall(marks)) > 250


@pytest.mark.slow
def test_sensitivity(
    study: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = STUDIES["sensitivity"].variants
    some = tuple(v for v in few if v.name in ("beta=0", "beta=1e-06", "gamma=0.01", "gamma=1"))
    monkeypatch.setitem(
        experiments.find_study.__globals__["STUDIES"], "sensitivity",
        experiments.Study("sensitivity", "Weights", "a figure", some),
    )  # fmt: skip
    results = study("sensitivity", ["buys"])
    same = {r["run"] for r in results["runs"] if r["variant"] in ("beta=1e-06", "gamma=0.01")}
    assert len(same) == 1  # the defaults, which other studies have run
    assert len(results["runs"]) == 8
    check_files(tmp_path / "sensitivity", 2)


@pytest.mark.slow
def test_tune_goes_on_and_gives_a_preset(
    study: Callable[..., Any], tmp_path: Path, shop: Path, runs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pytest.importorskip("optuna", reason="needs optuna: pip install 'relfrog[tune]'")
    base = {k: v for k, v in SETTINGS.items() if k not in ("lr", "neighbors")}
    stop: list[str] = []

    def say(line: str) -> None:
        stop.append(line)
        if line.startswith("[1/2]"):
            raise KeyboardInterrupt

    with pytest.raises(RunInterrupted, match="go on with the same command"):
        study("tune", ["buys"], settings=base, trials=2, say=say)
    trained: list[dict[str, Any]] = []

    def counted(run: Any, jobs: Any, *_: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        trained.extend(jobs)
        return ((number, guarded(run, job)) for number, job in enumerate(jobs))

    monkeypatch.setattr(workers, "run_jobs", counted)
    results = study("tune", ["buys"], settings=base, trials=2, say=stop.append)
    assert len(trained) == 1  # one run more, not two
    (tuned,) = results["tuned"]
    assert len(tuned["trials"]) == 2
    assert all(t["settings"].keys() == {"lr", "neighbors", "dropout"} for t in tuned["trials"])
    assert all(t["settings"]["lr"] in search_space()["lr"] for t in tuned["trials"])
    assert tuned["validation"] == max(t["validation"] for t in tuned["trials"])
    (preset,) = (tmp_path / "tune").glob("*.yaml")
    chosen = yaml.safe_load(preset.read_text())
    assert chosen == read_preset(str(preset)) == tuned["settings"]
    again = relfrog.train(shop, "buys", tmp_path / "again", preset=str(preset), baselines=False)
    best = {r["val_metrics"]["roc_auc"] for r in results["runs"] if r["regime"] == "rolling"}
    assert again.metrics["val"]["rolling"]["roc_auc"] in best
    table = (tmp_path / "tune" / "table.md").read_text()
    assert "trials by validation" in table
    for path in (tmp_path / "tune").iterdir():
        assert path.is_dir() or b"\x80\x04" not in path.read_bytes()  # no pickle
    # Other settings, in the same folder: a search of their own.
    trained.clear()
    other = study("tune", ["buys"], settings={**base, "dropout": 0.25}, trials=1, say=stop.append)
    assert len(trained) == 1
    (tuned,) = other["tuned"]
    assert tuned["settings"]["dropout"] == 0.25
    assert [t["settings"].keys() for t in tuned["trials"]] == [{"lr", "neighbors"}]
    assert {r["settings"]["dropout"] for r in other["runs"]} == {0.25}
    # Runs that were removed are made again.
    for name in {run["run"] for run in results["runs"]}:
        shutil.rmtree(runs / Path(name).name)
    trained.clear()
    again_there = study("tune", ["buys"], settings=base, trials=2, say=stop.append)
    assert len(trained) == 1
    assert again_there["tuned"][0]["validation"] == results["tuned"][0]["validation"]


# Interruptions.


@pytest.mark.slow
def test_processes_crash_and_go_on(shop: Path, tmp_path: Path) -> None:
    """Real processes: what was finished before Ctrl-C is not run again."""
    options: dict[str, Any] = {
        "datasets": [shop], "tasks": ["buys"], "models": ["frog", "sage", "relgnn"], "seeds": 1,
        "settings": SETTINGS, "out": tmp_path / "main", "jobs": 1, "threads": 1,
    }  # fmt: skip

    def stop(line: str) -> None:
        if line.startswith("[1/3]"):
            raise KeyboardInterrupt

    with pytest.raises(RunInterrupted, match="runs are finished and kept"):
        experiment("main", **options, say=stop)
    finished = {
        p: p.stat().st_mtime_ns for p in (tmp_path / "main" / "runs").glob("*/metrics.json")
    }
    assert 1 <= len(finished) < 3  # the second had begun
    said: list[str] = []
    results = experiment("main", **options, say=said.append)
    assert f"3 runs, {len(finished)} of them finished before" in said[0]
    assert len(results["runs"]) == 6
    assert all(path.stat().st_mtime_ns == at for path, at in finished.items())
    assert {r["versions"]["threads"] for r in results["runs"]} == {"1"}


def test_a_run_in_progress_is_taken_up_again(
    study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, runs: Path
) -> None:
    settings = {**QUICK, "epochs": 3}
    end = Trainer.end_epoch
    epochs: list[int] = []

    def dies(self: Trainer) -> None:
        end(self)
        epochs.append(self.at.epoch)
        if len(epochs) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "end_epoch", dies)
    failed = study("structure", ["buys"], settings=settings)
    assert failed["failed"] == ["store buys, learned, seed 0: interrupted"]
    assert failed["runs"] == []
    said: list[str] = []
    results = study("structure", ["buys"], settings=settings, say=said.append)
    assert "1 to be taken up again" in said[0]
    assert len(results["runs"]) == 2
    assert results["failed"] == []
    assert epochs == [1, 2, 3]


# What is asked for.


def test_what_cannot_be_reached_is_skipped(
    study: Callable[..., Any], shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_datasets, "_ask", lambda name, found: time.sleep(5))
    said: list[str] = []
    started = time.monotonic()
    found = study_datasets.find_datasets(
        ["rel-avito", "rel-event", str(shop)], ["buys"], [], said.append, 0.2
    )
    assert time.monotonic() - started < 3
    assert [place.kinds for place in found] == [{"buys": "binary_classification"}]
    assert said == [
        f"skipped: dataset {n} cannot be reached (no answer within 0 s)"
        for n in ("rel-avito", "rel-event")
    ]
    monkeypatch.setattr(study_datasets, "_ask", lambda name, found: found.update({name: "gone"}))
    with pytest.raises(relfrog.errors.RunError, match="no dataset is within reach"):
        experiment("fd", out=tmp_path / "none")
    said.clear()
    assert study_datasets.find_datasets([str(tmp_path)], [], [], said.append) == []
    assert "manifest.yaml is missing" in said[0]


def test_wrong_options(study: Callable[..., Any], shop: Path, tmp_path: Path) -> None:
    for match, name, options in [
        ("no experiment.*man.*main", "man", {}),
        ("seeds must be 1 or more", "main", {"seeds": 0}),
        ("several seeds", "main", {"settings": {"seed": 3}}),
        ("no setting.*chanels", "main", {"settings": {"chanels": 3}}),
        ("models are compared by main", "roles", {"models": ["sage"]}),
        ("no model.*sagee", "main", {"models": ["sagee"]}),
        ("no preset", "main", {"preset": "papers"}),
    ]:
        with pytest.raises(relfrog.errors.UsageError, match=match):
            study(name, ["buys"], **options)
    with pytest.raises(relfrog.errors.UsageError, match=r"no task.*bus"):
        study("main", ["bus"], out=tmp_path / "none")
    assert not (tmp_path / "none").exists()  # nothing is left behind
    study("structure", ["buys"], out=tmp_path / "one")
    with pytest.raises(relfrog.errors.UsageError, match="holds results of structure"):
        study("fd", ["buys"], out=tmp_path / "one")
    with pytest.raises(relfrog.errors.UsageError, match="two datasets are called store"):
        experiment("fd", datasets=[shop, str(shop) + "/../copy/"], out=tmp_path / "two")


def test_command_line(shop: Path, runs: Path, tmp_path: Path, here: None) -> None:
    words = ["experiment", "--datasets", str(shop), "--tasks", "buys,spends", "structure"]
    words += ["--seeds", "1", "--out", str(tmp_path / "out"), "--runs", str(runs)]
    words += [word for k, v in SETTINGS.items() for word in ("--set", f"{k}={v}")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert done.stdout == (tmp_path / "out" / "table.md").read_text()
    assert f"Results: {tmp_path / 'out'}" in done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {r["task"] for r in results["runs"]} == {"buys", "spends"}
    said = CliRunner().invoke(cli, [*words, "--json"])
    assert json.loads(said.stdout)["runs"] == results["runs"]
    command = results["command"].split()
    assert command[:4] == ["relfrog", "experiment", "structure", "--datasets"]
    assert CliRunner().invoke(cli, command[1:]).exit_code == 0  # as it stands in the results
    listed = CliRunner().invoke(cli, ["experiment", "main", "--list", "--json"])
    assert len(json.loads(listed.stdout)) == 23
    assert "relbench" in CliRunner().invoke(cli, ["experiment", "fd", "--list"]).stdout


# Parts.


def test_the_papers_tasks_and_figures() -> None:
    tasks = paper_tasks()
    assert len(tasks) == len({task.name for task in tasks}) == 23
    assert {task.dataset for task in tasks} == {
        f"rel-{name}" for name in ("avito", "event", "f1", "hm", "stack", "trial")
    }
    assert all(task.address.endswith(f"/{task.dataset}") for task in tasks)
    figures = published_scores("main")
    assert figures["rel-f1/driver-dnf"]["frog"] == (74.39, 0.85)
    assert published_scores("fd")["rel-f1/driver-dnf"]["no L_emb"] == (73.25, None)
    ours = {variant.name for variant in STUDIES["main"].variants}  # names are spelled as ours
    assert ours > set(MODELS)
    assert {model for row in figures.values() for model in row} <= ours
    for name in ("roles", "fd"):
        variants = {v.name for v in STUDIES[name].variants}
        assert all(row.keys() <= variants for row in published_scores(name).values())


def test_best_and_second_are_marked() -> None:
    texts = ["1.00 ± 0.10", "3.00", "2.00", ""]
    assert marked(texts, [1, 3, 2, None], True) == ["1.00 ± 0.10", "**3.00**", "_2.00_", ""]
    assert marked(texts, [1, 3, 2, None], False) == ["**1.00 ± 0.10**", "3.00", "_2.00_", ""]
    # What looks equal is equal, as in the paper.
    assert marked(["2.87", "2.87", "2.86"], [2.871, 2.869, 2.86], True) == [
        "**2.87**",
        "**2.87**",
        "_2.86_",
    ]
    assert marked(["1", "none"], [1, math.nan], True) == ["1", "none"]  # nothing to compare
    assert marked([], [], True) == []


def test_mean_and_deviation() -> None:
    found = summarize([0.5, 0.7, None, math.nan], percent=True)
    assert found.text(True) == "60.00 ± 14.14"
    assert found.seeds == 2
    assert [summarize([v]).text(False) for v in (3.0, 44.7536, 12610.732)] == [
        "3.0000",
        "44.754",
        "12611",
    ]
    assert summarize([]).text(True) == "none"


def test_figures_take_any_names() -> None:
    odd = '<script>alert("&")</script>'
    scores = {
        odd: summarize([1.0, 1.5]),
        "b": summarize([1.0]),
        "c": summarize([]),
        "d": summarize([-3e6]),
    }
    for compare in (compare_variants, compare_values):
        title = check_svg(compare(odd, {odd: scores, "empty": {}})).findtext("{*}title") or ""
        assert title.startswith(f"{odd}. {odd}: {odd} 1.25, b 1, d -3e+06. empty")
    questions = {odd: ("yes", "no"), "other": ("yes", "no")}
    shares = {odd: {odd: {"yes": 0.25, "no": 0.75}, "other": {}}}
    drawn = plot_shares(odd, shares, questions)
    assert {"75%", "none"} <= {text.text for text in check_svg(drawn).iter() if text.text}
    one = {"variant": odd, "seed": 0, "points": [[0, 0], [1, 2]], "key": [odd, "b"],
           "matched": [True, False]}  # fmt: skip
    none = {"variant": "e", "seed": 0, "points": [], "key": [], "matched": []}
    assert plot_pairs(odd, [one, none], "words") == plot_pairs(odd, [one, none], "words")
    check_svg(plot_pairs(odd, [one, none], "words"))


def test_shares_of_roles() -> None:
    rows = [
        ("a <- x -> b", "co-occurrence", "a", "x", "b", 0.9, "edge"),
        ("b <- x -> a", "co-occurrence", "b", "x", "a", 0.53, "undecided"),
        ("a <-[p]- y -[q]-> a", "co-occurrence", "a", "y", "a", 0.9, "edge"),
        ("a <-[q]- y -[p]-> a", "co-occurrence", "a", "y", "a", 0.1, "node"),
        ("a <- z -> c", "co-occurrence", "a", "z", "c", 0.1, "node"),
        ("c <- z -> a", "co-occurrence", "c", "z", "a", 0.5, "undecided"),
        ("x -> a -> c", "completion", "x", "a", "c", 0.1, "node"),
        ("a <- labels -> b", "co-occurrence", "a", "labels", "b", 0.1, "node"),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["route", "paradigm", "u", "v", "w", "gate", "role"])
    assert role_shares(frame, set("abcxyz")) == {
        "co-occurrence": {"node": 2 / 6, "edge": 2 / 6, "undecided": 2 / 6},
        "completion": {"node": 1, "edge": 0, "undecided": 0},
        "directions": {"same": 0, "different": 1},
    }
    empty = role_shares(frame.iloc[:0], set("abc"))
    assert empty == {"co-occurrence": {}, "completion": {}, "directions": {}}


def test_commands_of_the_guide_are_commands() -> None:
    page = Path(__file__).parents[2] / "docs" / "reproduce-the-paper.md"
    lines = re.findall(r"^relfrog (.*?)(?:  +#.*)?$", page.read_text(), re.M)
    assert len(lines) > 8
    parent = click.Context(cli, info_name="relfrog", **cli.context_settings)
    for line in lines:
        name, *words = shlex.split(line)
        cli.commands[name].make_context(name, words, parent=parent)
    assert all(f"`{name}`" in page.read_text() for name in STUDIES)
