"""The command line: exit codes, streams, examples, speed."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from helpers import csv_folder, sqlite
from relfrog.cli import cli, main
from test_tasks import BUYS, shop  # noqa: F401


def relfrog(*arguments: str, folder: Path | None = None, given: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "relfrog", *arguments],
        capture_output=True, text=True, cwd=folder, input=given, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def inside(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The same without a new process: quicker, where only words and exit codes matter."""
    capfd.readouterr()
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    before, sys.argv = sys.argv, ["relfrog", *arguments]
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.argv = before
        for number, handler in handlers.items():
            signal.signal(number, handler)
    out, err = capfd.readouterr()
    return code, out, err


def test_help_answers_at_once() -> None:
    best = 9.0
    for _ in range(3):
        start = time.perf_counter()
        code, out, _ = relfrog("--help")
        best = min(best, time.perf_counter() - start)
        assert code == 0
        assert "import" in out
    assert best < 0.5


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


@pytest.fixture
def workplace(shop: Path, tmp_path: Path) -> Path:  # noqa: F811
    """A folder in which the examples of all commands run."""
    days = ", ".join(
        f"({i}, {i % 5}, '2020-{i % 12 + 1:02d}-{i % 28 + 1:02d}')" for i in range(1, 400)
    )
    sqlite(
        tmp_path / "shop.db",
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT);"
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers (id), "
        "ordered_at DATE);"
        "INSERT INTO customers VALUES (0, 'a'), (1, 'b'), (2, 'c'), (3, 'd'), (4, 'e');"
        f"INSERT INTO orders VALUES {days};",
    )
    (tmp_path / "churn.sql").write_text(
        "SELECT t.timestamp, c.id, CAST(count(o.id) < 7 AS INTEGER) AS churn FROM timestamps t "
        "CROSS JOIN customers c LEFT JOIN orders o ON o.customer = c.id AND o.ordered_at > "
        "t.timestamp AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}' GROUP BY ALL"
    )
    return tmp_path


def test_the_examples_run(workplace: Path) -> None:
    for name in ("import", "task", "inspect", "check", "demo"):
        command = cli.commands[name]
        example = command.example  # type: ignore[attr-defined]
        words = shlex.split(example)
        assert words[:2] == ["relfrog", name]
        code, out, err = relfrog(*words[1:], folder=workplace)
        assert code == 0, (example, err)
        assert out
        assert "Traceback" not in err


def test_the_journey_with_its_streams(workplace: Path) -> None:
    code, out, err = relfrog("import", "shop.db", "out", folder=workplace)
    assert code == 0
    assert err.splitlines() == ["read customers: 5 rows", "read orders: 399 rows"]
    assert out.splitlines()[0] == "Imported 2 tables, 404 rows from sqlite:///shop.db"
    assert out.splitlines()[-1] == "  relfrog check out"
    code, out, _ = relfrog("inspect", "out", "--json", folder=workplace)
    assert set(json.loads(out)) >= {"tables", "foreign_keys", "routes", "tasks"}
    code, out, _ = relfrog("check", "out", "--json", folder=workplace)
    assert (code, json.loads(out)["ok"]) == (0, True)
    code, out, err = relfrog(
        "task", "out", "churn", "--sql", "-", "--type", "binary", "--entity", "customers",
        "--horizon", "30 days", folder=workplace, given=(workplace / "churn.sql").read_text(),
    )  # fmt: skip
    assert code == 0, err
    assert "train" in out
    code, out, _ = relfrog("inspect", "out", "--svg", "s.svg", folder=workplace)
    assert (code, out) == (0, "")
    assert (workplace / "s.svg").read_text().startswith("<svg")


def test_dry_run_writes_the_mapping_and_nothing_else(workplace: Path) -> None:
    before = set(os.listdir(workplace))
    code, out, _ = relfrog("import", "shop.db", "--dry-run", folder=workplace)
    assert code == 0
    assert out.startswith("# What RelFrog makes of this source")
    code, out, err = relfrog(
        "import", "shop.db", "--dry-run", "--mapping", "m.yaml", folder=workplace
    )
    assert (code, out) == (0, "")
    assert "relfrog import shop.db DEST --mapping m.yaml" in err
    assert set(os.listdir(workplace)) == before | {"m.yaml"}
    code, out, _ = relfrog(
        "import", "shop.db", "--dry-run", "--mapping", "m.yaml", folder=workplace
    )
    assert out == (workplace / "m.yaml").read_text(encoding="utf-8")
    code, out, _ = relfrog("import", "shop.db", "out", "--json", folder=workplace)
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
    shop: Path,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    os.symlink(shop, workplace / "ds")
    before = set(os.listdir(workplace))
    monkeypatch.chdir(workplace)
    got, out, err = inside(capfd, *arguments)
    assert got == code
    assert words in err
    assert "Traceback" not in err
    assert out == ""
    assert set(os.listdir(workplace)) == before


def test_findings_make_check_fail(workplace: Path) -> None:
    relfrog("import", "shop.db", "out", folder=workplace)
    (workplace / "out" / "db" / "orders.parquet").unlink()
    code, out, err = relfrog("check", "out", folder=workplace)
    assert code == 1
    assert "error: orders: db/orders.parquet is missing" in out
    assert err == ""


def test_a_traceback_only_when_asked_for(workplace: Path) -> None:
    _, _, err = relfrog("import", "none.db", "out", "--debug", folder=workplace)
    assert "Traceback" in err


def test_a_closed_pipe_is_no_error(workplace: Path) -> None:
    relfrog("import", "shop.db", "out", folder=workplace)
    line = f"{sys.executable} -m relfrog inspect out --json | head -c 1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=workplace)
    assert done.stderr == ""


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


def test_a_password_is_not_shown_even_in_a_traceback(tmp_path: Path) -> None:
    address = "postgresql://me:c4n4ry@127.0.0.1:1/db"
    for extra in ([], ["--debug"], ["--dry-run"]):
        _, out, err = relfrog("import", address, str(tmp_path / "out"), *extra)
        assert "c4n4ry" not in out + err
        assert "me:***@127.0.0.1" in err


def test_shell_completion_is_there() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from relfrog.cli import main; main()"],
        env={**os.environ, "_RELFROG_COMPLETE": "bash_source"}, capture_output=True, text=True,
    )  # fmt: skip
    assert "relfrog" in done.stdout


def test_nothing_is_printed_for_a_csv_folder_but_the_summary(tmp_path: Path) -> None:
    csv_folder(tmp_path / "csv", t="id,v\n1,2\n2,3\n")
    code, out, err = relfrog("import", "csv", "out", folder=tmp_path)
    assert code == 0
    assert "read t: 2 rows" in err
    assert "no table has a time column" in out
