"""The report: one file, nothing from outside, nothing from data that could run, nothing hidden."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import relfrog
from relfrog import Run, load_run
from relfrog.errors import RunError, UsageError
from relfrog.models.boosting import BoostedTrees
from relfrog.reporting import report
from relfrog.reporting.html import Markup, amount, join, model_name, sheet, signed, tag
from relfrog.reporting.schema_drawing import draw_schema, read_schema
from report_cases import EVIL, evil_report, forty, moved
from small_store import QUICK, copied, fit

SECTIONS = ["answer", "schema", "training", "dependencies", "predictions", "worth", "explained",
            "made"]  # fmt: skip


class Reader(HTMLParser):
    """Reads a page, and complains where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: dict[str, str] = {}
        self.figures = self.labelled = self.scripts = 0
        self.now = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if name not in ("meta", "input", "br"):
            self.open.append(name)
        if name == "section":
            self.now = given["id"] or ""
            self.sections[self.now] = ""
        self.figures += name == "figure"
        self.scripts += name == "script"
        if name == "svg":
            self.labelled += bool(given.get("aria-label"))
        assert not {"src", "onload", "onerror", "onclick"} & set(given)
        assert (given.get("href") or "#").startswith("#")

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if self.now and "script" not in self.open:
            self.sections[self.now] += data


def read(path: Path) -> Reader:
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 5_000_000
    assert not re.search(
        r"(https?:)?//[a-z]", re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    )
    found = Reader(text)
    assert list(found.sections) == SECTIONS
    assert found.labelled >= found.figures
    assert found.scripts == 1
    return found


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(store, tmp_path_factory.mktemp("reporting") / "run", epochs=3)


@pytest.mark.slow
def test_a_whole_report(run: Run, tmp_path: Path) -> None:
    told: list[str] = []
    path = report(run, tmp_path / "deep" / "r.html", fresh=True, progress=told.append)
    assert path == tmp_path / "deep" / "r.html"
    page = read(path)
    words = page.sections
    score = run.metrics["test"]["rolling"]["roc_auc"]
    assert f"{score:.4f}" in words["answer"]
    assert "rolling" in words["answer"]
    assert "No baselines were computed" in words["answer"]
    assert "noise" in words["answer"]
    for row in run.roles().itertuples():
        assert row.route in words["schema"]
        assert f"{row.gate:.3f}" in words["schema"]
    assert "3 epochs" in words["training"]
    assert "orders.person -> people" in words["dependencies"]
    assert "Calibration" in words["predictions"]
    assert "ROC curve, area" in words["predictions"]
    assert "P0" in words["predictions"]  # keys of mistakes
    assert "labels of the task" in words["worth"]
    assert words["explained"].count("newest time used") == 3
    for text in ("2020-08-01", "2020-10-01", "fingerprint", "torch", "peak memory", "batch_size"):
        assert text in words["made"]
    assert "the data are unchanged" in words["made"]
    assert page.figures >= 14
    assert told


@pytest.mark.slow
def test_by_default_it_lies_in_the_run_folder(run: Run, tmp_path: Path) -> None:
    place = moved(run, tmp_path)
    assert report(place) == place / "report.html"
    with pytest.raises(UsageError, match="cannot be written"):
        report(place, place / "run.json" / "r.html")
    with pytest.raises(RunError, match="is no run folder"):
        report(tmp_path)


def test_without_the_dataset_it_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    words = read(report(moved(run, tmp_path))).sections
    for name in ("predictions", "worth", "explained", "dependencies"):
        assert "The dataset cannot be read" in words[name]
    assert "the data could not be read again" in words["made"]
    # The rest is in the run folder.
    assert f"{run.metrics['test']['rolling']['roc_auc']:.4f}" in words["answer"]
    assert all(route in words["schema"] for route in run.roles()["route"])
    assert "2020-08-01" in words["made"]


def test_an_old_or_poor_run_folder(run: Run, tmp_path: Path) -> None:
    place = moved(run, tmp_path)
    (place / "database.json").unlink()
    metrics = json.loads((place / "metrics.json").read_text())
    (place / "metrics.json").write_text(json.dumps({"val": metrics["val"]}))
    (place / "history.jsonl").write_text("")
    words = read(report(place)).sections
    assert "There is no test score" in words["answer"]
    assert "database.json is missing" in words["schema"]
    assert "the history in its run folder is empty" in words["training"]
    assert "no split times" in words["made"]


@pytest.mark.slow
def test_a_database_that_has_changed_is_said_to_have(
    run: Run, store: Path, tmp_path: Path
) -> None:  # fmt: skip
    changed = copied(store, tmp_path)
    frame = pd.read_parquet(changed / "db" / "things.parquet")
    frame.assign(price=frame["price"] + 1).to_parquet(changed / "db" / "things.parquet")
    report(run)
    place = Path(shutil.copytree(run.folder, tmp_path / "run"))
    other = Run(place, {**run.about, "dataset": str(changed)}, run.config)
    before = read(report(other)).sections
    assert "the data were not read" in before["made"]
    words = read(report(other, fresh=True)).sections
    assert "the data have changed since" in words["made"]
    assert words["explained"] != before["explained"]


@pytest.mark.slow
def test_the_run_folder_alone_gives_the_same_report(run: Run, tmp_path: Path) -> None:
    first = read(report(run, tmp_path / "first.html", fresh=True)).sections
    place = moved(run, tmp_path, kept=True)
    again = read(report(place)).sections
    for name in SECTIONS:
        if name != "made":  # it says whether the data were read
            same = again[name].replace(str(place), str(run.folder)).replace("(moved)", "(run)")
            assert same == first[name]
    assert "kept when it was trained" in again["made"]
    # Less than was asked for is more than nothing.
    assert read(report(place, deep=True)).sections["worth"] == again["worth"].replace(
        str(run.folder), str(place)
    )
    assert "The dataset cannot be read" in read(report(place, fresh=True)).sections["worth"]


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["weights", "json", "arrays", "lengths", "older", "types"])
def test_what_was_kept_must_be_whole_and_of_this_model(
    harm: str, run: Run, tmp_path: Path
) -> None:  # fmt: skip
    report(run)
    place = moved(run, tmp_path, kept=True)
    assert "The dataset" not in read(report(place)).sections["worth"]
    shown = place / "shown.json"
    content = json.loads(shown.read_text())
    if harm == "weights":
        (place / "config.yaml").write_text((place / "config.yaml").read_text() + "\n")
    elif harm == "json":
        shown.write_text(shown.read_text()[:-100])
    elif harm == "arrays":
        (place / "shown.safetensors").write_bytes(b"no tensors")
    elif harm == "lengths":
        content["answers"]["keys"].pop()
        shown.write_text(json.dumps(content))
    elif harm == "older":
        shown.write_text(json.dumps({**content, "format": 0}))
    else:
        shown.write_text(json.dumps({**content, "importance": [1], "explanations": 3}))
    assert "The dataset cannot be read" in read(report(place)).sections["worth"]


def baselines(place: Path, value: float) -> None:
    scores = {
        split: {r: {"roc_auc": value} for r in ("frozen", "rolling")} for split in ("val", "test")
    }
    (place / "baselines.json").write_text(
        json.dumps({"models": {"recent": scores, "lightgbm": scores}, "seconds": 1.0})
    )


@pytest.mark.slow
def test_it_admits_defeat(run: Run, tmp_path: Path) -> None:
    place = Path(shutil.copytree(run.folder, tmp_path / "run"))
    for value, sentence in (
        (0.999, r"LightGBM \(0.9990\) beats|Mean of recent labels \(0.9990\) beats"),
        (run.metrics["test"]["rolling"]["roc_auc"] - 1e-4, "may be noise"),
        (0.2, "beats every baseline|may be noise"),
    ):
        baselines(place, value)
        words = read(report(place)).sections["answer"]
        assert re.search(sentence, words), sentence
        assert "LightGBM" in words
        assert "No baselines" not in words


@pytest.mark.slow
@pytest.mark.parametrize("task", ["spends", "wants", "sorts", "list"])
def test_every_type_of_task(task: str, shop: Path, tmp_path: Path) -> None:
    run = fit(shop, tmp_path / "run", task, epochs=1)
    words = read(report(run)).sections
    expected = {
        "spends": "Residuals", "wants": "Calibration", "sorts": "Calibration",
        "list": "Examples of lists",
    }  # fmt: skip
    assert expected[task] in words["predictions"]
    assert "MAP@3" in words["answer"] or task != "list"
    assert "cannot" not in words["worth"]
    assert words["explained"].count("newest time used") == 3
    again = read(report(moved(run, tmp_path, kept=True))).sections
    assert {len(again[name]) for name in ("answer", "predictions")} == {
        len(words[name].replace(str(run.folder), str(tmp_path / "moved")))
        for name in ("answer", "predictions")
    }
    assert again["predictions"].split() == [
        word.replace(str(run.folder), str(tmp_path / "moved"))
        for word in words["predictions"].split()
    ]


def test_a_model_that_is_no_network(shop: Path, tmp_path: Path) -> None:
    run = relfrog.train(shop, "list", tmp_path / "run", model="past-visit")
    words = read(report(run)).sections
    assert "Examples of lists" in words["predictions"]
    assert (
        read(report(moved(run, tmp_path, kept=True))).sections["predictions"]
        == (words["predictions"])
    )
    assert "rows hidden" in words["worth"]
    assert "earlier labels that name" in words["explained"]
    assert "has no network" in words["dependencies"]
    assert "has none" in words["schema"]
    assert "without epochs or trials" in words["training"]
    assert model_name("popularity") in words["answer"]  # a baseline
    assert "No baselines" not in words["answer"]


@pytest.mark.slow
def test_auto_shows_its_members(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)
    settings = {**QUICK, "epochs": 1, "trials": 1}
    run = relfrog.train(store, "spends", tmp_path / "run", model="auto", settings=settings)
    blend = json.loads((run.folder / "blend.json").read_text())
    blend["skipped"] = {"recent": "the 30 minutes were over"}
    (run.folder / "blend.json").write_text(json.dumps(blend))
    words = read(report(run)).sections["answer"]
    assert "No baselines" not in words
    assert "baseline" not in words
    for member, known in blend["members"].items():
        assert model_name(member) in words
        scores = json.loads((run.folder / "members" / member / "metrics.json").read_text())
        assert amount(scores["test"]["rolling"]["mae"]) in words
        assert amount(known["val"]["rolling"]["mae"]) in words
    for weight in blend["weights"].values():
        assert f"{weight:.0%}" in words
    assert "the 30 minutes were over" in words
    # Who answers, beside what validation would have taken next; never the best on test.
    assert "auto averages" in words or "auto answers with" in words
    assert "the best by backtests and validation." in words
    assert f"mean of {len(blend['backtests']['lightgbm'])} backtests" in words
    assert amount(statistics.fmean(blend["backtests"]["lightgbm"])) in words
    assert "Test scores are no ground" not in words
    blend["weights"], blend["backtests"] = {"lightgbm": 1.0}, {}
    (run.folder / "blend.json").write_text(json.dumps(blend))
    alone = read(report(run)).sections["answer"]
    assert "auto answers with LightGBM alone: it is the best on validation." in alone
    val = {n: k["val"]["rolling"][run.kind.metric] for n, k in blend["members"].items()}
    second = min((n for n in val if n != "lightgbm"), key=lambda n: val[n])
    assert f"The next on validation, {model_name(second)}, has" in alone
    again = read(report(moved(run, tmp_path, kept=True))).sections["answer"]
    assert len(again.split()) == len(alone.split())


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mean", "recent", "lightgbm"])
def test_every_model_is_compared_with_baselines(
    model: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)
    run = relfrog.train(store, "spends", tmp_path / "run", model=model, settings={"trials": 1})
    others = {"mean", "median", "global-mean", "global-median", "recent"} - {model}
    assert set(run.baselines) == others
    words = read(report(run)).sections["answer"]
    for name in others:
        assert model_name(name) in words


@pytest.mark.slow
def test_what_comes_from_data_stays_text(store: Path, tmp_path: Path) -> None:
    path = evil_report(store, tmp_path)
    page = read(path)
    assert EVIL in page.sections["predictions"]  # as text
    assert EVIL in page.sections["explained"]
    text = path.read_text(encoding="utf-8")
    assert EVIL not in text
    assert "<img" not in text
    assert "Will &lt;img src=x onerror=alert(1)&gt;" in text


@pytest.mark.slow
def test_two_runs_side_by_side(run: Run, store: Path, tmp_path: Path) -> None:
    other = fit(store, tmp_path / "other", "spends", epochs=2, seed=3)
    words = read(report(run, tmp_path / "r.html", compare=other.folder)).sections["schema"]
    assert "The same for spends (other)" in words
    both = dict(zip(run.roles()["route"], run.roles()["gate"]))
    for route, gate in zip(other.roles()["route"], other.roles()["gate"]):
        assert f"{gate:.3f}" in words
        assert signed(both[route] - gate, 3) in words


def test_forty_tables_and_all_their_routes(run: Run, tmp_path: Path) -> None:
    database, roles = forty()
    place = moved(run, tmp_path)
    (place / "database.json").write_text(json.dumps(database))
    (place / "roles.json").write_text(json.dumps(roles))
    path = report(place)
    words = read(path).sections["schema"]
    assert f"40 tables, {len(database['foreign_keys'])} foreign keys" in words
    assert all(entry["route"] in words for entry in roles)
    drawn = draw_schema(read_schema(database, roles), title="t")
    assert drawn.count('data-table="') == 40
    assert {int(n) for n in re.findall(r'data-route="(\d+)"', drawn)} == set(range(len(roles)))


def test_text_is_escaped_and_html_is_not() -> None:
    assert (
        tag("p", "<b>", Markup("<i></i>"), title='"x"')
        == '<p title="&#34;x&#34;">&lt;b&gt;<i></i></p>'
    )
    assert tag("p", title=Markup('"><script>')) == '<p title="&#34;&gt;&lt;script&gt;"></p>'
    assert join(["a & b", None, 3]) == "a &amp; b3"
    table = sheet(["<x>"], [["<y>"], [("<z>", '"')]], label="<l>")
    assert "<y>" not in table
    assert "<z>" not in table
    assert "<x>" not in table


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.61234, "0.6123"), (1234567, "1,234,567"), (1234.5, "1,234"), (42.5, "42.50"), (3, "3"),
     (None, "–"), (float("nan"), "–"), (0.00001, "1.0e-05"), (0.0, "0.0000")],
)  # fmt: skip
def test_numbers_for_people(value: float | None, shown: str) -> None:
    assert amount(value) == shown


def test_a_finished_run_is_needed(run: Run, tmp_path: Path) -> None:
    place = moved(run, tmp_path)
    about = json.loads((place / "run.json").read_text())
    (place / "run.json").write_text(json.dumps({**about, "status": "training"}))
    with pytest.raises(RunError, match="has not ended"):
        report(place)
    assert load_run(run.folder).about["status"] == "complete"


def test_a_report_that_fails_does_not_spoil_the_run(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import relfrog.reporting
    from relfrog.cli.runs import report_after

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("no figures")

    monkeypatch.setattr(relfrog.reporting, "page", fail)
    report_after(run)
    said = capsys.readouterr().err
    assert said.startswith(
        "warning: there is no report: ZeroDivisionError: no figures See: relfrog"
    )
