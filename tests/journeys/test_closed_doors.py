"""A stranger's folder can do nothing but be refused: names, links, files, limits, passwords."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import relbench
import yaml

import relfrog
from fuzz_changes import OWNED
from fuzz_formats import LABELS, tiny_dataset
from helpers import inside
from relfrog import RelFrogError, load_run
from relfrog.datasets.entities import read_entities
from relfrog.datasets.tasks import load_task
from relfrog.errors import (
    DatasetError,
    RelFrogWarning,
    RunError,
    SourceError,
    StoreError,
    TaskError,
)
from relfrog.io.output import write_frame
from relfrog.io.sources import open_source
from relfrog.models import booster_file
from relfrog.store.parts import open_store
from small_store import fit

PACKAGE = Path(relfrog.__file__).parent


# Names that reach SQL or code.


RUNNING = ("query", "sql", "eval", "exec", "execute", "system", "unsafe_load", "read_pickle")


def running(source: str) -> set[str]:
    """The calls in a source that run the text they are given."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return {ast.unparse(call.func).rpartition(".")[2] for call in calls} & set(RUNNING)


def test_relbench_runs_text_in_three_places_only() -> None:
    """If this fails, RelBench has changed: make sure that no name from data gets there."""
    root = Path(relbench.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        if path.relative_to(root).parts[0] in ("modeling", "submit.py"):
            continue  # never imported
        for name in running(path.read_text(encoding="utf-8")):
            found.add((str(path.relative_to(root)), name))
    assert found == {
        ("base/table.py", "query"), ("base/task_autocomplete.py", "sql"), ("load.py", "sql"),
        ("load.py", "execute"),
    }  # fmt: skip


def test_the_scan_of_relbench_finds_what_runs_text() -> None:
    assert running("self.df.query(f'{time} <= @upto')") == {"query"}
    assert running("def f(x):\n return duckdb.sql(x).df()") == {"sql"}
    assert running("pd.read_pickle(path); eval(text)") == {"read_pickle", "eval"}
    assert running("frame.sort_values(name)") == set()


#: What goes into SQL without being quoted on the spot: quoted before, or made by our own code.
#: Whoever adds an entry has looked where it comes from.
REVIEWED = {
    "checks/tables.py": {"key", "pkey", "child_time", "parent_time", "child_rows", "parent_rows"},
    "datasets/demo.py": {"name", "marks"},
    "datasets/key_views.py": {"joined"},
    "datasets/label_sql.py": {"', '.join(columns) or 'NULL'", "name", "columns", "number"},
    "datasets/overview.py": {"time"},
    "datasets/sql_job.py": {"', '.join(casts)", "setting", "value", "select", "paths"},
    "importing/inherited.py": {"timed[0]", "timed[1]"},
    "importing/staging.py": {"setting", "value.replace(chr(39), chr(39) * 2)"},
    "importing/writer.py": {"expressions", "selected", "staged.sql", "table.sql"},
    "sources/files.py": {"self._relation(name)"},
    "targets/files.py": {"self._quoted(self._partial)", "new", "place", "MARK"},
    "sources/mysql.py": {"query"},
    "targets/mysql.py": {"query"},
    "aggregates/query.py": {"columns", "made", "first", "first + AT_ONCE"},
    "relfrog/testing.py": {"_quoted(table.name)", "marks", "clause"},
}


def test_every_name_in_sql_is_quoted() -> None:
    """A scan of all statements that are put together where they are run."""
    seen = 0
    for path in PACKAGE.rglob("*.py"):
        known = REVIEWED.get(f"{path.parent.name}/{path.name}", set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr not in ("execute", "sql", "ordered_batches", "executemany"):
                continue
            for part in ast.walk(node.args[0]) if node.args else ():
                if isinstance(part, ast.FormattedValue):
                    text = ast.unparse(part.value)
                    seen += 1
                    safe = text in known or re.match(r"(quoted|literal|path_literal)\(", text)
                    assert safe, f"{path}:{node.lineno}: {text} goes into SQL as it is"
    assert seen > 30


def test_the_scan_finds_a_name_that_is_not_quoted() -> None:
    tree = ast.parse("connection.execute(f'SELECT * FROM {name}')")
    found = [ast.unparse(n.value) for n in ast.walk(tree) if isinstance(n, ast.FormattedValue)]
    assert found == ["name"]


def test_every_path_in_sql_is_no_pattern() -> None:
    """DuckDB reads whatever fits a path, so that the name of a folder could name other files."""
    seen = 0
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            for before, part in itertools.pairwise(parts):
                text = str(before.value) if isinstance(before, ast.Constant) else ""
                if re.search(r"read_(parquet|csv)\($", text):
                    seen += 1
                    made = ast.unparse(part.value)  # type: ignore[attr-defined]
                    safe = made.startswith("path_literal(") or made == "below"
                    assert safe, f"{path}:{node.lineno}: {made} is taken for a pattern"
    assert seen > 6


def test_text_becomes_html_in_two_places_only() -> None:
    """Elsewhere HTML is a constant, whose ``format`` escapes what is put into it."""
    seen = 0
    for path in PACKAGE.rglob("*.py"):
        if path.name in ("html.py", "charts.py"):  # `tag`, which escapes; a library's drawings
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Markup"):
                seen += 1
                made = [arg for arg in node.args if not isinstance(arg, ast.Constant)]
                assert not made, f"{path}:{node.lineno}: a text becomes HTML as it is"
    assert seen


PAYLOADS = [
    f"@pd.io.common.os.mkdir('{OWNED}') or at",
    f"at); COPY (SELECT 1) TO '{OWNED}'; --",
    "order date",
]


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_name_of_a_time_column_runs_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = tiny_dataset(tmp_path / "ds")
    path = dataset / "db" / "orders.parquet"
    pq.write_table(pq.read_table(path).rename_columns(["id", "who", name, "x"]), path)
    manifest = yaml.safe_load((dataset / "manifest.yaml").read_text())
    manifest["tables"]["orders"]["time_col"] = name
    (dataset / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    for call in (
        lambda: relfrog.open_dataset(dataset).get_db(),
        lambda: relfrog.inspect(dataset),
        lambda: relfrog.train(dataset, "buys", tmp_path / "run", model="mean"),
    ):
        with pytest.raises(DatasetError, match="cannot be a time column"):
            call()
    assert not relfrog.check(dataset).ok
    assert not list(tmp_path.rglob(OWNED))


def test_the_name_of_a_column_to_fill_in_is_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RelBench would run it as SQL: it is never asked to make labels."""
    monkeypatch.chdir(tmp_path)
    dataset = tiny_dataset(tmp_path / "ds")
    name = f"x FROM orders); COPY (SELECT 1) TO '{OWNED}'; --"
    path = dataset / "db" / "orders.parquet"
    pq.write_table(pq.read_table(path).rename_columns(["id", "who", "at", name]), path)
    folder = dataset / "tasks" / "fill"
    folder.mkdir()
    about = {
        "name": "fill", "kind": "autocomplete", "task_type": "regression",
        "entity_table": "orders", "target_col": name,
    }  # fmt: skip
    (folder / "manifest.yaml").write_text(yaml.safe_dump(about))
    frame = load_task(relfrog.open_dataset(dataset), "fill").get_table("train").df
    assert frame[name].tolist() == list(range(6))
    relfrog.inspect(dataset)
    relfrog.check(dataset, "fill")
    assert not list(tmp_path.rglob(OWNED))


def test_a_task_is_of_its_dataset_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    shutil.copytree(dataset / "tasks" / "buys", tmp_path / "here" / "buys")
    other = tmp_path / "here" / "buys" / "train.parquet"
    pd.read_parquet(other).assign(y=1).to_parquet(other)
    monkeypatch.chdir(tmp_path / "here")
    task = relfrog.open_dataset(dataset).load_task("buys")
    assert task.get_table("train").df["y"].sum() == 4


# Tables and labels.


def column(name: str, values: Any) -> Any:
    return lambda frame: frame.assign(**{name: values(frame[name])})


@pytest.mark.parametrize(
    "change",
    [
        column("at", lambda v: v.astype(str)),
        column("at", lambda v: v.dt.tz_localize("Asia/Tokyo")),
        column("at", lambda v: v[::-1].to_numpy()),
        column("at", lambda v: pd.NaT),
        column("id", lambda v: v + 1),
        column("id", lambda v: v.astype(str)),
        column("id", lambda v: v.astype(float)),
        column("who", lambda v: v + 100),
        column("who", lambda v: v - 5),
        column("who", lambda v: v.astype(str)),
        lambda frame: frame.drop(columns="at"),
        lambda frame: frame.drop(columns="who"),
        lambda frame: frame.drop(columns="id"),
    ],
)
def test_what_check_calls_an_error_is_refused(change: Any, tmp_path: Path) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    path = dataset / "db" / "orders.parquet"
    change(pd.read_parquet(path)).to_parquet(path, index=False)
    assert not relfrog.check(dataset).ok
    with pytest.raises(DatasetError):
        relfrog.open_dataset(dataset).get_db()
    with pytest.raises(RelFrogError):
        relfrog.train(dataset, "buys", tmp_path / "run", model="mean")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame[:0],
        lambda frame: frame.drop(columns="y"),
        lambda frame: frame.drop(columns="timestamp"),
        lambda frame: frame.assign(y=["a", "b", "c", "d"] * 5),
        lambda frame: frame.assign(y=[0, 1, None, 1] * 5),
        lambda frame: frame.assign(y=7),
        lambda frame: frame.assign(id=[0, 1, 2, 99] * 5),
        lambda frame: frame.assign(id=[0, 1, 2, -1] * 5),
        lambda frame: frame.assign(id=["a", "b", "c", "d"] * 5),
        lambda frame: frame.assign(timestamp="2020-01-03"),
        lambda frame: frame.assign(timestamp=frame["timestamp"].dt.tz_localize("UTC")),
        lambda frame: pd.concat([frame, frame]),
    ],
)
def test_labels_that_are_none_are_refused(change: Any, tmp_path: Path) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    path = dataset / "tasks" / "buys" / "train.parquet"
    change(pd.read_parquet(path)).to_parquet(path, index=False)
    with pytest.raises(TaskError):
        load_task(relfrog.open_dataset(dataset), "buys").get_table("train")


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ("manifest.yaml", "val_timestamp", float("nan")),
        ("manifest.yaml", "val_timestamp", "NaT"),
        ("manifest.yaml", "test_timestamp", "2020-01-09T00:00:00+02:00"),
        ("manifest.yaml", "tables", {"orders": {"pkey": 3}}),
        ("tasks/buys/manifest.yaml", "timedelta", "-1 days"),
        ("tasks/buys/manifest.yaml", "timedelta", float("nan")),
        ("tasks/buys/manifest.yaml", "num_eval_timestamps", 10**12),
        ("tasks/buys/manifest.yaml", "remove_columns", [["a"]]),
    ],
)
def test_manifests_are_what_they_should_be(
    where: str, key: str, value: Any, tmp_path: Path
) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    content = yaml.safe_load((dataset / where).read_text())
    (dataset / where).write_text(yaml.safe_dump({**content, key: value}))
    with pytest.raises(RelFrogError):
        load_task(relfrog.open_dataset(dataset), "buys")


def test_a_horizon_of_a_nanosecond_is_refused_at_once(tmp_path: Path) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    path = dataset / "tasks" / "buys" / "manifest.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "timedelta": "1 ns"}))
    (path.parent / "train.parquet").unlink()
    began = time.monotonic()
    with pytest.raises(TaskError, match="longer horizon"):
        load_task(relfrog.open_dataset(dataset), "buys").get_table("train")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("name", ["db/orders.parquet", "tasks/buys/train.parquet", "import.json"])
def test_links_out_of_a_folder_are_refused(name: str, tmp_path: Path) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    (dataset / name).rename(tmp_path / "outside")
    (dataset / name).symlink_to(tmp_path / "outside")
    with pytest.raises(DatasetError, match="leads out of the folder"):
        relfrog.open_dataset(dataset)
    (dataset / name).unlink()
    (dataset / name).symlink_to(dataset / name)  # to itself, and so nowhere
    with pytest.raises(DatasetError, match="leads out of the folder"):
        relfrog.open_dataset(dataset)
    (dataset / name).unlink()
    os.mkfifo(dataset / name)  # whoever reads it waits for ever
    with pytest.raises(DatasetError, match="neither a file nor a folder"):
        relfrog.open_dataset(dataset)


def test_a_dataset_may_itself_be_a_link(tmp_path: Path) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    (dataset / "db" / "copy").symlink_to(dataset / "db" / "orders.parquet")
    (tmp_path / "link").symlink_to(dataset)
    assert len(relfrog.open_dataset(tmp_path / "link").get_db().table_dict["orders"]) > 0


def test_the_record_of_an_import_names_tables_of_the_dataset_alone(tmp_path: Path) -> None:
    """Another name would lead `check` to any Parquet file."""
    dataset = tiny_dataset(tmp_path / "ds")
    pd.DataFrame({"secret": [1]}).to_parquet(tmp_path / "outside.parquet")
    record = json.loads((dataset / "import.json").read_text())
    record["tables"]["../../outside"] = record["tables"]["people"]
    (dataset / "import.json").write_text(json.dumps(record))
    assert "secret" not in str(relfrog.check(dataset).findings)


@pytest.mark.parametrize("name", ["asked.csv.gz", "asked.parquet"])
def test_lists_of_entities_that_cannot_be_read_are_refused(name: str, tmp_path: Path) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    frame = pd.DataFrame({"id": [0, 1]})
    frame.to_csv(tmp_path / "asked.csv.gz", index=False)
    frame.to_parquet(tmp_path / "asked.parquet", index=False)
    content = bytearray((tmp_path / name).read_bytes())
    content[-13:-9] = b"\xff" * 4  # no longer compressed text
    (tmp_path / name).write_bytes(content if name.endswith("gz") else content[:-9])
    with pytest.raises(TaskError, match="cannot be read"):
        read_entities(dataset, "people", "id", 4, tmp_path / name)


@pytest.mark.parametrize(
    "values", [[b"a", b"b", b"c", b"d"], [{"a": 1}] * 4, [[1]] * 4, [pd.Timedelta("1 day")] * 4]
)
def test_keys_of_types_that_no_key_has_are_refused(values: list[Any], tmp_path: Path) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    pd.DataFrame({"id": values}).to_parquet(dataset / "keys" / "people.parquet")
    with pytest.raises(DatasetError, match="which no key has"):
        read_entities(dataset, "people", "id", 4, [1])
    assert not relfrog.check(dataset).ok


def test_a_view_of_a_database_reads_nothing_outside(tmp_path: Path) -> None:
    import duckdb

    (tmp_path / "secret.txt").write_text("secret")
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as made:
        made.execute("CREATE TABLE people (id INTEGER PRIMARY KEY)")
        made.execute("INSERT INTO people VALUES (1), (2)")
        place = tmp_path / "secret.txt"
        made.execute(f"CREATE VIEW v AS SELECT 1 AS id, content FROM read_text('{place}')")
    with open_source(str(tmp_path / "shop.duckdb")) as source:
        (people, view) = source.tables(also=["v"])
        assert sum(batch.num_rows for batch in source.read(people)) == 2
        with pytest.raises(SourceError, match="outside the database"):
            list(source.read(view))


def test_a_cache_that_others_can_change_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("RELFROG_CACHE", str(folder))
    with pytest.warns(RelFrogWarning, match="other accounts can change"):
        found = open_store()
    assert found.folder != folder
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "own"))
    assert open_store().folder == tmp_path / "own"


def test_what_is_kept_of_a_report_may_not_fit(tmp_path: Path, monkeypatch: Any) -> None:
    """It is computed again, as a damaged part of the cache is."""
    from relfrog import reporting

    run = relfrog.train(tiny_dataset(tmp_path / "ds"), "buys", tmp_path / "run", model="mean")
    drawn = []

    def page(material: Any, other: Any) -> str:
        drawn.append(material.kept)
        if material.kept:
            raise IndexError("forged")
        return "<html></html>"

    monkeypatch.setattr(reporting, "page", page)
    run.report(tmp_path / "one.html")
    run.report(tmp_path / "two.html")
    assert drawn == [False, True, False]


# LightGBM.


@pytest.fixture(scope="module")
def trees(store: Path, tmp_path_factory: pytest.TempPathFactory) -> relfrog.Run:
    return fit(store, tmp_path_factory.mktemp("trees") / "run", model="lightgbm", trials=1)


def forged(run: Path, change: Any) -> None:
    """Change a booster's file, and its checksum with it."""
    path = run / "lightgbm-0-0.txt"
    path.write_text(change(path.read_text()))
    about = json.loads((run / "lightgbm.json").read_text())
    about["files"][path.name] = booster_file._checksum(path.read_text())
    (run / "lightgbm.json").write_text(json.dumps(about))


def numbers(name: str, value: str) -> Any:
    def change(text: str) -> str:
        made = re.sub(rf"(?m)^{name}=\S+", f"{name}={value}", text, count=1)
        assert made != text
        head, _, rest = made.partition("\n\n")
        parts = rest.split("end of trees")[0].split("Tree=")[1:]
        sizes = " ".join(str(len(f"Tree={part}")) for part in parts)
        return re.sub(r"tree_sizes=.*", f"tree_sizes={sizes}", head) + "\n\n" + rest

    return change


HOSTILE = [
    numbers("split_feature", "99999"), numbers("split_feature", "-7"),
    numbers("left_child", "0"), numbers("left_child", "99999"), numbers("right_child", "-99999"),
    numbers("num_leaves", "2000000000"), numbers("num_cat", "7"), numbers("decision_type", "255"),
    numbers("leaf_value", "nan"), numbers("threshold", "nan"), numbers("is_linear", "1"),
    numbers("max_feature_idx", "0"), numbers("num_class", "99999"), numbers("objective", "xyz"),
    lambda text: re.sub("tree_sizes=.*", "tree_sizes=1 99999999999", text),
    lambda text: text.replace("Tree=0", "Tree=1"), lambda text: text[: len(text) // 2],
    lambda text: "", lambda text: text.replace("end of trees", ""),
]  # fmt: skip


@pytest.mark.slow
def test_damaged_and_hostile_trees_are_refused(trees: relfrog.Run, tmp_path: Path) -> None:
    before = trees.predict()
    pd.testing.assert_frame_equal(load_run(trees.folder).predict(), before, check_exact=True)
    copy = Path(shutil.copytree(trees.folder, tmp_path / "run"))
    path = copy / "lightgbm-0-0.txt"
    path.write_text(path.read_text().replace("leaf_value=", "leaf_value=1", 1))
    with pytest.raises(RunError, match="checksum is wrong"):
        load_run(copy).predict()
    for number, change in enumerate(HOSTILE):
        shutil.copytree(trees.folder, copy, dirs_exist_ok=True)
        forged(copy, change)
        with pytest.raises(RunError, match="damaged") as caught:
            load_run(copy).predict()
        assert "\n" not in str(caught.value), number


@pytest.mark.slow
def test_a_crash_of_lightgbm_takes_nothing_along(
    trees: relfrog.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the check of the structure should miss something."""
    monkeypatch.setattr(booster_file, "checked_model", lambda text, features: text)
    copy = Path(shutil.copytree(trees.folder, tmp_path / "run"))
    for change in (numbers("left_child", "99999999"), numbers("num_leaves", "2000000000")):
        shutil.copytree(trees.folder, copy, dirs_exist_ok=True)
        forged(copy, change)
        with pytest.raises(RunError, match="LightGBM cannot read its models"):
            load_run(copy).predict()


@pytest.mark.slow
def test_the_order_of_entities_changes_nothing(store: Path, tmp_path: Path) -> None:
    run = fit(store, tmp_path / "run", epochs=1)
    people = [f"P{i:02d}" for i in range(20)]
    shuffled = np.random.default_rng(0).permutation(people).tolist()
    one = run.predict("2020-10-01", people).set_index("code")
    other = run.predict("2020-10-01", shuffled).set_index("code").loc[people]
    pd.testing.assert_frame_equal(one, other, check_exact=True)


# Passwords.


SECRET = "c4n4ry-p4ss"
ADDRESSES = [f"postgresql://me:{SECRET}@host/db", f"sqlite:///shop.db?password={SECRET}",
             f"mysql://me:a@b:{SECRET}@host/db"]  # fmt: skip
COMMANDS = [
    ["inspect", "{}"], ["check", "{}"], ["task", "{}", "t", "--sql", "x.sql"],
    ["train", "{}", "t", "--out", "out"], ["train", "ds", "{}", "--out", "out"],
    ["train", "ds", "t", "--out", "{}"], ["evaluate", "{}"], ["predict", "{}", "--out", "x.csv"],
    ["roles", "{}"], ["report", "{}"], ["explain", "{}", "P01"], ["--debug", "evaluate", "{}"],
    ["evaluate", "{}", "--debug"], ["nonsense", "{}"], ["inspect", "ds", "{}"],
    ["import", "{}", "out", "--mapping", "{}"],
]  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_command_repeats_a_password(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.sql").write_text("SELECT 1")
    for words in COMMANDS:
        code, out, err = inside(capfd, *(word.format(address) for word in words))
        assert code != 0
        assert SECRET not in out + err, words
        assert err, words
    for path in tmp_path.rglob("*"):
        assert SECRET not in str(path)


def test_no_error_repeats_a_password() -> None:
    """Whatever raises it, and however it quotes."""
    for text in (
        f"postgresql://me:{SECRET}@host/db is wrong", f"'postgres:/me:{SECRET}@host' is no folder",
        f"x.db?mode=ro&Password={SECRET}&x=1", f"mysql://me:x@y/{SECRET}@host:3306/db",
        f"webhdfs://host:1/x?delegation={SECRET}", f"s3://b/x?region=x&access_key={SECRET}&a=b",
        f"https://h/x?se=2027&sig={SECRET}", f"gs://b/x?API-Key=1&apikey={SECRET}",
    ):  # fmt: skip
        assert SECRET not in str(RelFrogError(text))
    kept = "see https://example.org/a?b=c&design=d, write to me@example.org at 12:30"
    assert str(RelFrogError(kept)) == kept


# Signals.


#: Ways to be stuck after the first signal: in Python, and in a library that releases the GIL, where
#: Python runs no handler.
STUCK = {
    "python": "while True: time.sleep(0.1)",
    "library": "lock = ctypes.create_string_buffer(64); m = ctypes.CDLL(None).pthread_mutex_lock; "
    "m(lock); m(lock)",
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("stuck", list(STUCK))
def test_a_second_signal_ends_at_once(number: int, stuck: str) -> None:
    """Whoever hangs while cleaning up is not waited for."""
    if stuck == "library" and not sys.platform.startswith("linux"):
        pytest.skip("a buffer of zeros is a lock on Linux")
    code = f"""
        import ctypes, time
        from relfrog.cli.interruption import listen
        listen()
        try:
            print("ready", flush=True)
            time.sleep(60)
        finally:
            print("cleaning", flush=True)
            {STUCK[stuck]}
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        process.send_signal(signal.SIGTERM)  # at once: the same key press
        assert process.stdout.readline() == "cleaning\n"
        time.sleep(0.7)
        assert process.poll() is None
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Ended." in err


# Disks.


QUESTION = "PREDICT COUNT(orders.*, 0, 1, days) > 0 FOR EACH people.id"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of 400 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)  # parts may still be mapped


@pytest.mark.slow
def test_a_really_full_disk_is_said_and_loses_nothing(store: Path, disk: Path) -> None:
    small = tiny_dataset(disk / "ds")
    before = {p: p.read_bytes() for p in disk.rglob("*") if p.is_file()}
    number = os.open(disk / "full", os.O_CREAT | os.O_WRONLY)
    with pytest.raises(OSError, match="space"):  # noqa: PT012
        while True:
            os.write(number, bytes(4096))
    os.close(number)
    address = f"sqlite:///{store.parent / 'store.db'}"
    run = relfrog.train(small, "buys", disk.parent / "run", model="mean", baselines=False)
    for call in (
        lambda: relfrog.import_database(address, disk / "imported"),
        lambda: relfrog.add_task(
            small, "buys", LABELS, type="binary", entity="people", horizon="1 day", overwrite=True
        ),
        lambda: relfrog.train(small, "buys", disk / "run", model="mean", baselines=False),
        lambda: run.predict("2020-01-09").pipe(write_frame, str(disk / "p.csv")),
        lambda: run.report(disk / "report.html"),
        lambda: relfrog.ask(small, QUESTION, disk / "asked", minutes=0.01),
    ):
        with pytest.raises((RelFrogError, OSError)) as caught:
            call()
        assert "space" in str(caught.value) or "room" in str(caught.value), caught.value
    (disk / "full").unlink()
    assert {p: p.read_bytes() for p in disk.rglob("*") if p.is_file()} == before


def test_a_full_cache_is_said(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELFROG_CACHE", str(disk / "cache"))
    small = tiny_dataset(tmp_path / "ds")
    open_store()
    number = os.open(disk / "full", os.O_CREAT | os.O_WRONLY)
    with pytest.raises(OSError, match="space"):  # noqa: PT012
        while True:
            os.write(number, bytes(4096))
    os.close(number)
    with pytest.raises(StoreError, match=r"is full\. Make room"):
        relfrog.train(small, "buys", tmp_path / "run", model="mean", baselines=False)
    (disk / "full").unlink()
    relfrog.train(small, "buys", tmp_path / "run", model="mean", baselines=False)
    assert all(not open_store().damaged(part.name) for part in open_store().parts())


@pytest.mark.slow
def test_a_disk_that_cannot_be_written_is_read_all_the_same(store: Path, disk: Path) -> None:
    small = tiny_dataset(disk / "ds")
    run = relfrog.train(small, "buys", disk / "run", model="mean", baselines=False)
    expected = run.predict("2020-01-09")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    opened = load_run(disk / "run")
    pd.testing.assert_frame_equal(opened.predict("2020-01-09"), expected, check_exact=True)
    assert relfrog.inspect(small)
    with pytest.raises(RelFrogError, match=r"(?i)read-only"):
        relfrog.train(small, "buys", disk / "other", model="mean", baselines=False)
    with pytest.raises(RelFrogError, match=r"(?i)read-only"):
        write_frame(expected, str(disk / "p.csv"))
