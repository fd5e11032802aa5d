"""No one gets in: nothing is executed on loading, no path escapes, nobody is called."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import relfrog
from relfrog import RelFrogError, load_run
from relfrog.datasets import source_keys
from relfrog.datasets.label_sql import run_sql
from relfrog.errors import RunError
from relfrog.graph.relational import open_graph
from relfrog.importing import plan_import
from relfrog.io.output import write_frame
from small_store import copied, fit

PACKAGE = Path(relfrog.__file__).parent
#: Calls that run what they read.
FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "pickle.Unpickler",
    "torch.load", "torch.jit.load", "joblib.load", "dill.load", "dill.loads", "marshal.load",
    "marshal.loads", "shelve.open", "yaml.load", "yaml.unsafe_load", "yaml.full_load",
    "pd.read_pickle", "pandas.read_pickle", "os.system", "os.popen", "subprocess.run",
    "subprocess.Popen", "subprocess.call", "subprocess.check_output",
}  # fmt: skip


def called(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{called(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_nothing_that_runs_what_it_reads_is_called(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = called(node.func)
            if path.stem in ("sandbox", "local_team") and name == "subprocess.Popen":
                continue  # of our own code
            assert name not in FORBIDDEN, f"{path.name}:{node.lineno}: {name}"
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle":
                    assert isinstance(keyword.value, ast.Constant)
                    assert keyword.value.value is False, f"{path.name}:{node.lineno}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", "") or ""
            names = {module, *(alias.name for alias in node.names)}
            assert not names & {"pickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> relfrog.Run:
    return fit(store, tmp_path_factory.mktemp("runs") / "run", epochs=1)


NAMES = ["model.safetensors", "columns.safetensors", "columns.json", "run.json", "config.yaml",
         "roles.json", "history.jsonl", "metrics.json"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_trap_in_a_run_folder_does_not_go_off(
    name: str, run: relfrog.Run, tmp_path: Path
) -> None:
    copy = shutil.copytree(run.folder, tmp_path / "run")
    place = tmp_path / "owned"
    for trap in (
        pickle.dumps(Bomb(place)),
        f"!!python/object/apply:os.mkdir ['{place}']\n".encode(),
        f'{{"__reduce__": ["os.mkdir", "{place}"]}}'.encode(),
    ):
        (copy / name).write_bytes(trap)
        with pytest.raises(RelFrogError):  # noqa: PT012
            opened = load_run(copy)
            opened.predict("2020-10-01", ["P01"])
            opened.roles()
            opened.history()
            _ = opened.metrics
            raise RunError("it was not read at all")
        assert not place.exists()


@pytest.mark.slow
def test_a_trap_in_a_dataset_folder_does_not_go_off(store: Path, tmp_path: Path) -> None:
    place = tmp_path / "owned"
    bomb = pickle.dumps(Bomb(place))
    folder = copied(store, tmp_path)
    path = folder / "db" / "things.parquet"
    # In the metadata of a Parquet file, where extension types and pandas look.
    table = pq.read_table(path)
    schema = table.schema.with_metadata(
        {b"pandas": bomb, b"ARROW:extension:name": b"arrow.py_extension_type",
         b"ARROW:extension:metadata": bomb}
    )  # fmt: skip
    fields = [
        f.with_metadata(
            {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": bomb}
        )
        for f in schema
    ]
    pq.write_table(table.cast(pa.schema(fields, metadata=schema.metadata)), path)
    try:
        relfrog.check(folder, "buys")
        fit(folder, tmp_path / "run", epochs=1)
    except RelFrogError:
        pass
    assert not place.exists()
    for name in ("manifest.yaml", "tasks/buys/manifest.yaml", "import.json", "db/things.parquet",
                 "keys/people.parquet"):  # fmt: skip
        broken = Path(shutil.copytree(store, tmp_path / name.replace("/", "-")))
        for trap in (bomb, f"!!python/object/apply:os.mkdir ['{place}']\n".encode()):
            (broken / name).write_bytes(trap)
            try:
                relfrog.check(broken, "buys")
                relfrog.inspect(broken)
                source_keys(broken, "people")
            except RelFrogError:
                pass
            assert not place.exists()


def test_a_graph_of_pickles_is_refused(tmp_path: Path) -> None:
    import numpy as np

    (tmp_path / "graph.json").write_text(
        '{"format": 1, "unit": "us", "num_rows": {}, "foreign_keys": [], "keys": [], "tables": []}'
    )
    for name in ("parents", "children", "blocks", "times"):
        np.save(tmp_path / f"{name}.npy", np.array([Bomb(tmp_path / "owned")]), allow_pickle=True)
    with pytest.raises(RelFrogError):
        open_graph(tmp_path)
    assert not (tmp_path / "owned").exists()


# Paths.


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "..", "a/../../secret", "x\x00y"])
def test_a_table_cannot_lie_outside_its_folder(name: str, store: Path, tmp_path: Path) -> None:
    folder = copied(store, tmp_path)
    pd.DataFrame({"canary": ["do not read me"]}).to_parquet(tmp_path / "secret.parquet")
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text())
    manifest["tables"][name] = {"pkey": None, "fkeys": {}, "time_col": None}
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    report = relfrog.check(folder)
    assert not report.ok
    assert "canary" not in str(report.findings)
    for call in (
        lambda: fit(folder, tmp_path / "run"),
        lambda: relfrog.inspect(folder),
        lambda: relfrog.open_dataset(folder),
    ):
        with pytest.raises(RelFrogError, match="cannot be a table's name"):
            call()


def test_a_task_cannot_lie_outside_its_folder(store: Path, tmp_path: Path) -> None:
    folder = copied(store, tmp_path)
    shutil.copytree(folder / "tasks" / "buys", tmp_path / "outside")
    for name in ("../../outside", str(tmp_path / "outside"), ".."):
        with pytest.raises(RelFrogError):
            relfrog.train(folder, name, tmp_path / "run")


# Label SQL.


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_parquet('https://example.org/x.parquet')",
        "SELECT getenv('HOME')",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "COPY (SELECT 1) TO '/tmp/relfrog-owned.csv'",
        "SET enable_external_access = true",
        "SELECT 1; SELECT 2",
        "PRAGMA database_list",
    ],
)
def test_label_sql_reaches_nothing(sql: str, store: Path) -> None:
    db = relfrog.open_dataset(store).get_db()
    with pytest.raises(relfrog.errors.TaskError):
        run_sql(sql, db, [pd.Timestamp("2020-05-01")], pd.Timedelta("1 day"))
    assert not Path("/tmp/relfrog-owned.csv").exists()


def test_label_sql_has_limits(store: Path) -> None:
    db = relfrog.open_dataset(store).get_db()
    times, horizon = [pd.Timestamp("2020-05-01")], pd.Timedelta("1 day")
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c"
    with pytest.raises(relfrog.errors.TaskError, match="stopped after"):
        run_sql(endless, db, times, horizon, seconds=0.5)
    greedy = "SELECT list(a.range::VARCHAR || repeat('x', 1000)) FROM range(10000000) a"
    with pytest.raises(relfrog.errors.TaskError, match=r"(?i)memory"):
        run_sql(greedy, db, times, horizon, memory=50 << 20)


# Sources, secrets, network.


EVIL = '"; DROP TABLE x; --'


@pytest.mark.slow
def test_an_evil_table_is_imported_like_any_other(fresh_postgres: str, tmp_path: Path) -> None:
    import psycopg

    quoted = '"' + EVIL.replace('"', '""') + '"'
    statements = [
        "CREATE TABLE x (id integer PRIMARY KEY, at timestamp)",
        "INSERT INTO x VALUES (1, '2020-01-01'), (2, '2021-01-01')",
        f"CREATE TABLE {quoted} (id integer PRIMARY KEY, {quoted} integer REFERENCES x (id), "
        "at timestamp)",
        f"INSERT INTO {quoted} VALUES (1, 1, '2020-06-01'), (2, 2, '2021-06-01')",
    ]
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)
    with sqlite3.connect(tmp_path / "a.db") as lite:
        for statement in statements:
            lite.execute(statement)
    lite.close()
    for number, address in enumerate([fresh_postgres, f"sqlite:///{tmp_path / 'a.db'}"]):
        out = tmp_path / f"ds{number}"
        assert len(relfrog.import_database(address, out).tables) == 2
        db = relfrog.open_dataset(out).get_db(upto_test_timestamp=False)
        assert sorted(len(t.df) for t in db.table_dict.values()) == [2, 2]
        assert sum(len(t.fkey_col_to_pkey_table) for t in db.table_dict.values()) == 1
        assert relfrog.check(out).ok
    with psycopg.connect(fresh_postgres) as connection:
        assert connection.execute("SELECT count(*) FROM x").fetchone() == (2,)
    assert sqlite3.connect(tmp_path / "a.db").execute("SELECT count(*) FROM x").fetchone() == (2,)


def test_the_canary_does_not_come_along(
    fresh_postgres: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A password that works: it is in nothing that the import says or leaves behind."""
    import psycopg

    secret = "c4n4ry-p4ssw0rd"
    address = fresh_postgres.replace("postgres:@", f"postgres:{secret}@")
    assert secret in address
    with psycopg.connect(fresh_postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE x (id integer PRIMARY KEY, at timestamp)")
        connection.execute("INSERT INTO x VALUES (1, '2020-01-01'), (2, '2021-01-01')")
    result = relfrog.import_database(address, tmp_path / "ds")
    relfrog.check(tmp_path / "ds")
    said = [repr(result), plan_import(address).mapping.to_yaml(), *capfd.readouterr()]
    assert not [text for text in said if secret in text]
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) > 3
    assert not [p for p in files if secret.encode() in p.read_bytes()]


@pytest.mark.slow
def test_nobody_is_called(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way without a network: anyone who tries to open a socket fails."""

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("somebody calls home")

    for name in ("connect", "connect_ex", "sendto", "bind"):
        monkeypatch.setattr(socket.socket, name, refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    address = f"sqlite:///{store.parent / 'store.db'}"
    relfrog.import_database(address, tmp_path / "ds", time=("people.joined",))
    relfrog.check(store, "buys")
    relfrog.inspect(store)
    run = fit(store, tmp_path / "run", epochs=1)
    run.evaluate()
    run.predict()


@pytest.mark.slow
def test_the_canary_is_in_no_run(tmp_path: Path, store: Path, run: relfrog.Run) -> None:
    """A password in an address reaches neither the dataset's nor the run's files."""
    secret = "c4n4ry-p4ssw0rd"
    with pytest.raises(RelFrogError) as caught:
        relfrog.import_database(f"postgresql://me:{secret}@127.0.0.1:1/none", tmp_path / "ds")
    assert secret not in str(caught.value)
    with pytest.raises(RelFrogError) as caught:
        write_frame(run.predict(), f"postgresql://me:{secret}@127.0.0.1:1/none", table="x")
    assert secret not in str(caught.value)
    for path in run.folder.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()
    assert json.loads((run.folder / "run.json").read_text())["dataset"] == str(store)
