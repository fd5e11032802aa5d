"""The command line: exit codes, streams, examples, speed."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import relfrog as library
import relfrog.cli as cli_module
from bare_shop import LIST
from helpers import csv_folder, inside
from relfrog.cli import cli
from relfrog.support.files import locked
from small_store import QUICK, change, copied, fit


def relfrog(*arguments: str, folder: Path | None = None, given: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "relfrog", *arguments],
        capture_output=True, text=True, cwd=folder, input=given, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_help_answers_at_once() -> None:
    best = 9.0
    for _ in range(10):
        before = os.times()
        code, out, _ = relfrog("--help")
        after = os.times()
        # Others may be using the cores: what it computes, not what it waits for.
        best = min(
            best,
            after.children_user + after.children_system
            - before.children_user - before.children_system,
        )  # fmt: skip
        assert code == 0
        assert "import" in out
        if best < 0.5:
            return
    pytest.fail(f"{best:.2f} s")


def test_help_imports_nothing_heavy() -> None:
    heavy = [
        "torch",
        "pandas",
        "numpy",
        "duckdb",
        "pyarrow",
        "relbench",
        "sqlalchemy",
        "rich",
        "numba",
    ]
    code = f"import sys, relfrog, relfrog.cli; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", list(cli.commands))
def test_every_command_has_help_with_an_example(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = inside(capfd, name, "--help")
    assert code == 0
    assert "Example:" in out
    command = cli.commands[name]
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"{name} --{option.name}"


@pytest.mark.slow
def test_the_examples_run(
    workplace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    order = [
        "import",
        "suggest",
        "task",
        "inspect",
        "check",
        "train",
        "evaluate",
        "predict",
        "roles",
    ]
    order += ["completion", "report", "explain", "submit", "audit", "experiment", "ask", "store"]
    assert {*order, "demo"} == set(cli.commands)  # the demo has a test of its own
    monkeypatch.chdir(workplace)
    for name in order:
        command = cli.commands[name]
        example = command.example  # type: ignore[attr-defined]
        words = shlex.split(example)
        assert words[:2] == ["relfrog", name]
        short = ["--minutes", "0.05", "--no-report"] if name == "ask" else []
        code, out, err = inside(capfd, *words[1:], *short)
        assert code == 0, (example, err)
        assert out or name in ("predict", "report")
        assert "Traceback" not in err
    assert len((workplace / "churn.csv").read_text().splitlines()) == 1 + 5
    for page in ("churn.html", "runs/churn/report.html"):
        assert (workplace / page).read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_the_journey_with_its_streams(
    workplace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = relfrog("import", "shop.db", "out", folder=workplace)
    assert code == 0
    assert err.splitlines() == ["read customers: 5 rows", "read orders: 399 rows"]
    assert out.splitlines()[0] == "Imported 2 tables, 404 rows from sqlite:///shop.db"
    assert out.splitlines()[-1] == "  relfrog check out"
    monkeypatch.chdir(workplace)
    code, out, _ = inside(capfd, "inspect", "out", "--json")
    assert set(json.loads(out)) >= {"tables", "foreign_keys", "routes", "tasks"}
    code, out, _ = inside(capfd, "check", "out", "--json")
    assert (code, json.loads(out)["ok"]) == (0, True)
    code, out, err = relfrog(
        "task", "out", "churn", "--sql", "-", "--type", "binary", "--entity", "customers",
        "--horizon", "30 days", folder=workplace, given=(workplace / "churn.sql").read_text(),
    )  # fmt: skip
    assert code == 0, err
    assert "train" in out
    code, out, err = inside(
        capfd, "task", "out", "churn", "--sql", "churn.sql", "--type", "binary", "--entity",
        "customers", "--horizon", "30 days", "--overwrite", "--json",
    )  # fmt: skip
    added = json.loads(out)
    assert (added["task"], added["task_type"]) == ("churn", "binary_classification")
    assert added["splits"]["test"]["rows"] == 5
    code, out, _ = inside(capfd, "inspect", "out", "--svg", "s.svg")
    assert (code, out) == (0, "")
    assert (workplace / "s.svg").read_text().startswith("<svg")


def test_dry_run_writes_the_mapping_and_nothing_else(
    workplace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    before = set(os.listdir(workplace))
    code, out, _ = inside(capfd, "import", "shop.db", "--dry-run")
    assert code == 0
    assert out.startswith("# What RelFrog makes of this source")
    code, out, err = inside(capfd, "import", "shop.db", "--dry-run", "--mapping", "m.yaml")
    assert (code, out) == (0, "")
    assert "relfrog import shop.db DEST --mapping m.yaml" in err
    assert set(os.listdir(workplace)) == before | {"m.yaml"}
    code, out, _ = inside(capfd, "import", "shop.db", "--dry-run", "--mapping", "m.yaml")
    assert out == (workplace / "m.yaml").read_text(encoding="utf-8")
    code, out, _ = inside(capfd, "import", "shop.db", "--dry-run", "--json")
    assert json.loads(out)["tables"]["orders"]["time"]["column"] == "ordered_at"
    code, out, _ = inside(capfd, "import", "shop.db", "out", "--json")
    assert json.loads(out)["tables"]["orders"]["rows"] == 399


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["import"], 2, "Missing argument"),
        (["import", "shop.db"], 2, "DEST"),
        (["import", "shop.db", "out", "--pk", "orders"], 2, "names no column"),
        (["import", "none.db", "out"], 1, "SourceError: none.db is neither"),
        (["import", "shop.db", "churn.sql"], 1, "is a file"),
        (["import", "shop.db", "out", "--mapping", "churn.sql"], 1, "SchemaError"),
        (["import", "shop.db", "out", "--colour"], 2, "No such option"),
        (["import", "churn.sql", "out"], 1, "neither a database nor a folder"),
        (["inspect", "shop.db"], 1, "Import it first: relfrog import shop.db DEST"),
        (["inspect", "./none"], 1, "does not exist"),
        (["inspect", "ds", "--svg", "no/such/folder.svg"], 2, "cannot be written"),
        (["check", "ds", "none"], 1, "TaskError: "),
        (["task", "ds", "x", "--sql", "none.sql"], 2, "none.sql"),
        (["tsak"], 2, "No such command"),
    ],
)
def test_wrong_input_gets_one_clear_answer(
    arguments: list[str],
    code: int,
    words: str,
    workplace: Path,
    bare_shop: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    os.symlink(bare_shop, workplace / "ds")
    before = set(os.listdir(workplace))
    monkeypatch.chdir(workplace)
    got, out, err = inside(capfd, *arguments)
    assert got == code
    assert words in err
    assert "Traceback" not in err
    assert out == ""
    assert set(os.listdir(workplace)) == before


@pytest.mark.slow
def test_findings_make_check_fail(workplace: Path) -> None:
    library.import_database(str(workplace / "shop.db"), workplace / "out")
    (workplace / "out" / "db" / "orders.parquet").unlink()
    code, out, err = relfrog("check", "out", folder=workplace)
    assert code == 1
    assert "error: orders: db/orders.parquet is missing" in out
    assert err == ""


def test_a_traceback_only_when_asked_for(workplace: Path) -> None:
    _, _, err = relfrog("import", "none.db", "out", "--debug", folder=workplace)
    assert "Traceback" in err


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(workplace: Path) -> None:
    library.import_database(str(workplace / "shop.db"), workplace / "out")
    line = f"{sys.executable} -m relfrog inspect out --json | head -c 1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=workplace)
    assert done.stderr == ""


@pytest.mark.slow
def test_a_progress_bar_on_a_terminal(workplace: Path) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "relfrog", "import", "shop.db", "out"],
        stderr=child, stdout=subprocess.PIPE, cwd=workplace, env={**os.environ, "COLUMNS": "120"},
    )  # fmt: skip
    os.close(child)
    seen = b""
    try:
        while chunk := os.read(parent, 4096):
            seen += chunk
    except OSError:  # the terminal is gone when the process is
        pass
    out, _ = process.communicate(timeout=60)
    os.close(parent)
    assert process.returncode == 0
    assert b"tables" in seen
    assert b"rows" in seen
    assert b"Imported 2 tables" in out


def test_a_password_is_not_shown_even_in_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = ["import", "postgresql://me:c4n4ry@127.0.0.1:1/db", str(tmp_path / "out")]
    for _, out, err in (
        inside(capfd, *asked),
        inside(capfd, *asked, "--dry-run"),
        relfrog(*asked, "--debug"),
    ):
        assert "c4n4ry" not in out + err
        assert "me:***@127.0.0.1" in err


@pytest.mark.slow
def test_nothing_is_printed_for_a_csv_folder_but_the_summary(tmp_path: Path) -> None:
    csv_folder(tmp_path / "csv", t="id,v\n1,2\n2,3\n")
    code, out, err = relfrog("import", "csv", "out", folder=tmp_path)
    assert code == 0
    assert "read t: 2 rows" in err
    assert "no table has a time column" in out


# Runs.

SET = ["--model", "frog"]
SET += [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def runs(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset, a finished run and one that was interrupted."""
    folder = tmp_path_factory.mktemp("cli-runs")
    (folder / "store").symlink_to(store)
    fit(folder / "store", folder / "run")
    fit(folder / "store", folder / "half", epochs=1)
    about = json.loads((folder / "half" / "run.json").read_text())
    (folder / "half" / "run.json").write_text(json.dumps({**about, "status": "training"}))
    (folder / "folder").mkdir()
    (folder / "folder" / "thesis.tex").write_text("years of work")
    (folder / "gates.json").write_text("{}")
    (folder / "who.csv").write_text("code\nP03\nP01\nP03\n")
    (folder / "strangers.csv").write_text("code\nP03\nnobody\n")
    return folder


@pytest.mark.slow
def test_training_says_how_far_it_is_and_what_came_out(
    runs: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(runs)
    out = str(tmp_path / "a run")
    code, said, err = inside(capfd, "train", "store", "buys", "--out", out, *SET)
    assert code == 0, err
    lines = err.splitlines()
    assert lines[0].startswith("284 training seeds, ")
    assert [line.split("  ")[0] for line in lines if line.startswith("epoch")] == ["epoch"] * 2
    assert lines[-3].startswith("keeping epoch ")
    assert lines[-2].startswith("baselines ")
    assert lines[-1] == f"Report written to {out}/report.html: open it in a browser."
    assert (tmp_path / "a run" / "report.html").is_file()
    assert "recent" in said
    table = said.splitlines()
    assert table[0].startswith("buys on ")
    assert [line.split()[:2] for line in table[4:8]] == [
        [split, regime] for split in ("val", "test") for regime in ("frozen", "rolling")
    ]
    assert table[-1] == f"  relfrog predict '{out}' --out predictions.csv"
    code, said, err = inside(
        capfd, "train", "store", "buys", "--out", out, "--overwrite", "--json", "--model", "sage",
        "--seed", "3", "--no-report", *SET[2:],
    )  # fmt: skip
    assert not (tmp_path / "a run" / "report.html").exists()
    found = json.loads(said)
    run = library.load_run(out)
    assert found == {"run": out, "metrics": run.metrics, "baselines": run.baselines}
    assert library.load_run(out).config.seed == 3
    code, said, err = inside(capfd, "roles", out)
    assert (code, said) == (0, "This model has no routes: every table is a node.\n")
    code, said, err = inside(capfd, "train", "store", "buys", "--out", out, "--resume", "--json",
                             "--no-report")  # fmt: skip
    assert json.loads(said) == found  # it has ended already


def test_an_explanation_as_json_and_as_a_table(
    runs: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    asked = ["explain", "run", "--entity", "P15", "--at", "2020-06-01", "--rows", "5"]
    code, said, err = inside(capfd, *asked)
    assert (code, err) == (0, "")
    lines = said.splitlines()
    assert lines[0].startswith("people P15 at 2020-06-01 00:00:00: probability of buys 0.")
    assert lines[2].split("  ")[0] == "table"
    code, said, err = inside(capfd, *asked, "--json")
    found = json.loads(said)
    shown = re.search(r"buys ([\d.]+)(?:, calibrated ([\d.]+))?$", lines[0])
    assert shown is not None, lines[0]
    assert found["prediction"] == pytest.approx(float(shown[1]), abs=1e-4)
    if found["calibrated"] is not None:
        assert found["calibrated"] == pytest.approx(float(shown[2]), abs=1e-4)
    assert (found["task"], found["key"], len(found["rows"])) == ("buys", "P15", 5)
    for share in found["tables"]:
        assert share["newest"] is None or share["newest"] <= "2020-06-01 00:00:00"
        assert any(line.startswith(f"{share['table']} ") for line in lines)


def test_scores_as_json_and_as_a_table(
    runs: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    metrics = library.load_run("run").metrics
    for split in ("val", "test"):
        for regime in ("frozen", "rolling"):
            asked = ["evaluate", "run", "--split", split, "--regime", regime]
            code, out, err = inside(capfd, *asked, "--json")
            assert (code, err) == (0, "")
            assert json.loads(out) == {
                "task": "buys", "split": split, "regime": regime,
                "metrics": metrics[split][regime], "rows": 60,
            }  # fmt: skip
    assert list(json.loads(out)) == ["task", "split", "regime", "metrics", "rows"]
    code, plain, err = inside(capfd, "evaluate", "run")
    assert plain.splitlines()[0] == "buys, test, rolling, 60 seeds"
    assert f"{metrics['test']['rolling']['roc_auc']:.4f}" in plain
    code, out, err = inside(capfd, "roles", "run", "--json")
    roles = library.load_run("run").roles()
    assert json.loads(out) == roles.to_dict("records")
    code, out, err = inside(capfd, "roles", "run")
    gates = [float(line.split()[-2]) for line in out.splitlines()[2:]]
    assert gates == sorted(gates, reverse=True)
    assert len(gates) == len(roles)


def test_predictions_into_files_and_databases(
    runs: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import sqlite3

    import pandas as pd

    monkeypatch.chdir(runs)
    expected = library.load_run("run").predict("2020-10-01", ["P03", "P01", "P03"])
    expected = expected.assign(run="run", horizon="20 days")
    asked = ["predict", "run", "--at", "2020-10-01", "--entities", "who.csv", "--out"]
    address = f"sqlite:///{tmp_path / 'out.db'}"
    for out in (str(tmp_path / "a.csv"), str(tmp_path / "a.parquet"), address):
        more = ["--table", "answers"] if out == address else []
        code, said, err = inside(capfd, *asked, out, *more)
        assert (code, said) == (0, ""), err
        assert err.startswith("3 predictions written to ")
        code, _, err = inside(capfd, *asked, out, *more)
        assert code == 1
        assert "--overwrite" in err
        assert inside(capfd, *asked, out, *more, "--overwrite")[0] == 0
    connection = sqlite3.connect(tmp_path / "out.db")
    times = ["time", "made_at"]
    answers = pd.read_sql("SELECT * FROM answers", connection, parse_dates=times)
    connection.close()
    for found in (
        pd.read_csv(tmp_path / "a.csv", parse_dates=times),
        pd.read_parquet(tmp_path / "a.parquet"),
        answers,
    ):
        made = found.pop("made_at")
        assert (pd.Timestamp.now("UTC").tz_localize(None) - made < pd.Timedelta("1 hour")).all()
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["train", "store", "buys"], 2, "Missing option '--out'"),
        (["train", "store", "bys", "--out", "new"], 1, "TaskError: there is no task 'bys'"),
        (["train", "nowhere/", "buys", "--out", "new"], 1, "DatasetError: nowhere does not exist"),
        (["train", "store", "buys", "--out", "new", "--set", "lr"], 2, "takes KEY=VALUE (got 'lr')"),
        (["train", "store", "buys", "--out", "new", "--set", "lr=fast"], 2, "lr must be a number"),
        (["train", "store", "buys", "--out", "new", "--set", "epochs=0"], 2, "epochs must be from 1"),
        (["train", "store", "buys", "--out", "new", "--set", "rl=1"], 2, "no setting 'rl'"),
        (["train", "store", "buys", "--out", "new", "--seed", "1", "--set", "seed=2"], 2, "seed is given"),
        (["train", "store", "buys", "--out", "new", "--seed", "-1"], 2, "--seed"),
        (["train", "store", "buys", "--out", "new", "--preset", "mine"], 2, "no preset 'mine'"),
        (["train", "store", "buys", "--out", "new", "--model", "tree"], 2, "--model"),
        (["train", "store", "buys", "--out", "new", "--size", "huge"], 2, "--size"),
        (["train", "store", "buys", "--out", "new", "--roles", "none.json"], 2, "roles must be learned"),
        (["train", "store", "buys", "--out", "new", "--roles", "gates.json"], 2, "have no gate"),
        (["train", "store", "buys", "--out", "new", "--device", "abacus"], 2, "device 'abacus'"),
        (["train", "store", "buys", "--out", "new", "--resume"], 1, "nothing to resume"),
        (["train", "store", "buys", "--out", "run"], 1, "Replace it with --overwrite"),
        (["train", "store", "buys", "--out", "folder", "--overwrite"], 1, "is no run folder"),
        (["train", "store", "buys", "--out", "who.csv"], 1, "is no run folder"),
        (["train", "store", "spends", "--out", "half", "--resume"], 2, "is a run of task buys"),
        (["train", "store", "buys", "--out", "half", "--resume", "--overwrite"], 2, "either"),
        (["evaluate", "none"], 1, "RunError: none is no run folder"),
        (["evaluate", "folder"], 1, "RunError: folder is no run folder"),
        (["evaluate", "half"], 1, "--out half --resume"),
        (["evaluate", "run", "--split", "train"], 2, "--split"),
        (["evaluate", "run", "--regime", "warm"], 2, "--regime"),
        (["evaluate", "run", "--device", "abacus"], 2, "device 'abacus'"),
        (["predict", "run", "--certify"], 2, "--certify needs a file: --out FILE"),
        (["predict", "run", "--out", "x.xlsx"], 2, ".parquet"),
        (["predict", "run", "--out", "new.csv", "--table", "t"], 2, "is a file"),
        (["predict", "run", "--out", "who.csv"], 1, "already exists"),
        (["predict", "run", "--out", "new.csv", "--at", "soon"], 2, "'soon' is no time"),
        (["predict", "run", "--out", "new.csv", "--entities", "none.csv"], 2, "no file none.csv"),
        (["predict", "run", "--out", "new.csv", "--entities", "strangers.csv"], 1, "code=nobody"),
        (["predict", "half", "--out", "new.csv"], 1, "has not ended"),
        (["roles", "none"], 1, "RunError: none is no run folder"),
        (["report", "none"], 1, "RunError: none is no run folder"),
        (["report", "half"], 1, "has not ended"),
        (["report", "run", "--compare", "none"], 1, "RunError: none is no run folder"),
        (["explain", "run"], 2, "Missing option '--entity'"),
        (["explain", "run", "--entity", "nobody"], 1, "code=nobody"),
        (["explain", "run", "--entity", "P03", "--at", "soon"], 2, "'soon' is no time"),
    ],
)  # fmt: skip
def test_wrong_input_about_runs_gets_one_clear_answer(
    arguments: list[str],
    code: int,
    words: str,
    runs: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(runs)
    before = set(os.listdir(runs))
    got, out, err = inside(capfd, *arguments)
    assert (got, out) == (code, "")
    assert words in err
    assert "Traceback" not in err
    assert set(os.listdir(runs)) == before


@pytest.mark.slow
def test_a_recommendation(
    bare_shop: Path,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    library.add_task(
        bare_shop, "things", LIST, type="recommendation", source="people", target="things.thing",
        horizon="20 days", overwrite=True,
    )  # fmt: skip
    code, out, _ = inside(
        capfd, "train", str(bare_shop), "things", "--out", "run", "--model", "past-visit", "--json",
        "--no-report",
    )  # fmt: skip
    assert code == 0
    assert "map" in out
    code, _, err = inside(capfd, "predict", "run", "--k", "2", "--exclude-known", "--out", "l.csv")
    assert code == 0
    assert "written to l.csv" in err
    code, _, err = inside(capfd, "predict", "run", "--k", "0", "--out", "m.csv")
    assert code == 2


def test_a_second_process_is_kept_out(
    runs: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    with locked(runs / "half"):
        for flag in ("--resume", "--overwrite"):
            code, _, err = inside(capfd, "train", "store", "buys", "--out", "half", flag)
            assert code == 1
            assert "half is in use: another process is training there" in err


def test_what_is_new_in_the_database_is_one_line_each(
    store: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    changed = copied(store, tmp_path)
    fit(changed, tmp_path / "run", epochs=1)
    change(changed, "people", lambda f: f.assign(hat="top"))
    for arguments in (["evaluate", "--json"], ["predict", "--out", str(tmp_path / "a.csv")]):
        code, out, err = inside(capfd, arguments[0], str(tmp_path / "run"), *arguments[1:])
        assert code == 0
        lines = [line for line in err.splitlines() if "predictions written" not in line]
        assert len(lines) == 1
        assert lines[0].startswith("warning: table people: new and ignored: 1 column (hat).")
    change(changed, "people", lambda f: f.drop(columns=["hat", "age"]))
    code, out, err = inside(capfd, "evaluate", str(tmp_path / "run"))
    assert (code, out) == (1, "")
    assert "SchemaError: not in the database: 1 column (people.age)." in err


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(runs: Path, tmp_path: Path) -> None:
    out, scratch = tmp_path / "a run", tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "relfrog", "train", "store", "buys", "--out", str(out), *SET,
         "--set", "epochs=100000", "--set", "patience=100000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=runs,
        env={**os.environ, "TMPDIR": str(scratch)}, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("epoch   1"):
            break
    process.send_signal(signal.SIGINT)
    said, err = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")
    again = err.splitlines()[-1].removeprefix("Interrupted. Go on with: ")
    assert "Traceback" not in err
    words = shlex.split(again)
    assert words[:2] == ["relfrog", "train"]
    assert words[3:] == ["buys", "--out", str(out), "--resume"]
    assert Path(words[2]).samefile(runs / "store")
    with pytest.raises(library.errors.RunError, match="has not ended"):
        library.load_run(out)
    assert (out / "checkpoint.safetensors").exists()
    assert not list(out.glob(".*partial*"))
    assert not list(scratch.iterdir())
    with pytest.raises(ProcessLookupError):  # nobody is left of its group
        os.killpg(process.pid, 0)


def process(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as it ends a process, after some code."""
    return subprocess.run(
        [sys.executable, "-c", f"{code}\nfrom relfrog.cli import process; process()", *arguments],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_process_ends_with_all_that_was_said_and_what_was_to_be_done_at_its_end() -> None:
    last = "import atexit; atexit.register(print, 'the last word')"
    done = process(last, "--help")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].startswith("Usage")
    assert done.stdout.splitlines()[-1] == "the last word"
    done = process(last, "predict", "nowhere", "--all", "--out", "x.csv")
    assert (done.returncode, done.stdout) == (1, "the last word\n")
    assert "nowhere" in done.stderr
    wait = "threading.Thread(target=lambda: (threading.main_thread().join(), print('a thread')))"
    # Nothing is taken apart, of which DuckDB would say that its objects are leaked.
    kept = "class Kept:\n  def __del__(self): print('taken apart')\nkept = Kept()"
    thread = f"import threading; {wait}.start()\n{kept}"
    done = process(thread, "--help")
    assert (done.stdout.splitlines()[-1], done.stderr) == ("a thread", "")


@pytest.mark.slow
def test_a_prediction_loads_no_more_than_it_needs(store: Path, tmp_path: Path) -> None:
    fit(store, tmp_path / "run", epochs=1)
    (tmp_path / "asked.csv").write_text("code\nP03\nP01\n")
    say = (
        "import atexit, sys; atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))"
    )
    out = str(tmp_path / "out.csv")
    done = process(
        say,
        "predict",
        str(tmp_path / "run"),
        "--entities",
        str(tmp_path / "asked.csv"),
        "--out",
        out,
    )
    assert done.returncode == 0, done.stderr
    assert len(Path(out).read_text().splitlines()) == 3
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "torch" in loaded
    heavy = {
        "lightgbm", "relfrog.experiments", "relfrog.reporting", "scipy.linalg", "sklearn",
        "sqlalchemy", "sqlglot", "torch._dynamo", "torch._meta_registrations", "torch_frame",
    }  # fmt: skip
    assert not heavy & loaded


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_streams_that_are_closed_are_nothing_to_read_or_write(closed: str) -> None:
    command = shlex.join([sys.executable, "-m", "relfrog"])
    done = subprocess.run(
        f"{command} --version {closed}", shell=True, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("relfrog") == (">&-" not in closed.replace("2>&-", ""))
    done = subprocess.run(
        f"{command} roles nothing {closed}", shell=True, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("RunError") == ("2>&-" not in closed)


def unread(*streams: str) -> tuple[int, bytes]:
    """How the command for help ends where nobody reads what it writes to some streams."""
    reading, writing = os.pipe()
    given = {name: writing if name in streams else subprocess.PIPE for name in ("stdout", "stderr")}
    process = subprocess.Popen([sys.executable, "-m", "relfrog", "--help"], **given)
    os.close(reading)
    os.close(writing)
    said = process.communicate(timeout=60)[1]
    return process.returncode, said or b""


@pytest.mark.skipif(os.name == "nt", reason="the system cannot tell")
def test_it_is_no_error_if_nobody_reads_on() -> None:
    """As in ``relfrog ... | head -1``; but if errors are not read, either, nobody knows."""
    assert unread("stdout") == (0, b"")
    assert unread("stdout", "stderr")[0] == 1
    assert unread("stderr")[0] == 0


def test_another_pipe_that_breaks_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr(cli.commands["completion"], "callback", broken)
    code, out, err = inside(capfd, "completion", "bash")
    assert (code, out) == (1, "")
    assert "Broken pipe" in err
    assert "Traceback" not in err


def test_processes_end_where_a_library_makes_something_else_of_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def confused(*_: object, **__: object) -> None:
        raise RuntimeError("query failed")

    ended: list[bool] = []
    monkeypatch.setattr(cli.commands["completion"], "callback", confused)
    monkeypatch.setattr(cli_module, "interrupted", lambda: True)
    monkeypatch.setattr(cli_module, "end_processes", lambda: ended.append(True))
    code, _, err = inside(capfd, "completion", "bash")
    assert (code, err, ended) == (130, "Interrupted. Nothing half-made is left behind.\n", [True])
