"""Small files that would take for ever, names that no file has, models that name what to call."""

from __future__ import annotations

import ast
import json
import os
import shutil
import sqlite3
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

import relfrog
from fuzz_formats import tiny_dataset
from relfrog.analysis.audit.predictions import _decoded
from relfrog.datasets.external import read_frame
from relfrog.datasets.files import database_in_files
from relfrog.datasets.label_sql import run_sql
from relfrog.datasets.tasks import load_task
from relfrog.errors import (
    DatasetError,
    OutputError,
    RelFrogError,
    RunError,
    TaskError,
    UsageError,
)
from relfrog.features.text import _refuse_code
from relfrog.runs.predict_parts import Request, predict_to, read_parts
from relfrog.support import forms
from relfrog.support.files import maybe_path, user_path
from relfrog.support.relbench import Database
from relfrog.training import checkpoint

PACKAGE = Path(relfrog.__file__).parent
STORED = Path(__file__).parents[1] / "stored" / "format-1" / "run"


# YAML and JSON.


def merged(levels: int) -> str:
    """Mappings merged of mappings that are merged of others: eight times as much each time."""
    lines = ["a0: &a0 {k: 1}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 8)}]}}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        merged(30), "a: &a {k: 1}\nb: {!!merge x: *a}", "a: " + "1:" * 100_000 + "1",
        'a: !!int "' + "1:" * 100_000 + '1"', "a: 0x" + "f" * 3_000_000, "a: " + "[" * 100_000,
        "".join(" " * depth + "a:\n" for depth in range(500)), "a: &a [*a]", "a: &a {b: *a}",
        "a:\n" + "- x\n" * 1_100_000,
    ],
)  # fmt: skip
def test_small_yaml_that_takes_for_ever_is_refused_at_once(text: str, tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(DatasetError, match=r"some\.yaml"):
        forms.read_yaml(path, "some.yaml", DatasetError)
    assert time.process_time() - began < 15


def test_sound_yaml_is_read_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    content = {"a": [1, -2.5, None, True, "<<", "x" * 5000, "2020-01-01", "1:2:3"], "b": {"c": {}}}
    path.write_text(yaml.safe_dump(content) + "d: &d [1]\ne: *d\nf: 2020-01-01\n")
    found = forms.read_yaml(path, "some.yaml", DatasetError)
    assert found == yaml.safe_load(path.read_text())


def test_json_of_too_many_values_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "MOST_VALUES", 1000)
    for value in ([[]] * 1000, [{}] * 1000, list(range(2000)), {"a": [1] * 1001}):
        (tmp_path / "some.json").write_text(json.dumps(value))
        with pytest.raises(RunError, match="too much"):
            forms.read_json(tmp_path / "some.json")
        with pytest.raises(RunError, match="too much"):
            forms.read_json_lines(tmp_path / "some.json", Any)
    (tmp_path / "some.json").write_text(json.dumps([1] * 900))
    assert len(forms.read_json(tmp_path / "some.json")) == 900


# Predictions and labels.


@pytest.mark.parametrize(
    "value",
    ["[" * 100_000, "[Infinity]", "[1e400]", "[NaN]", f"[1{'0' * 400}]", "[1.5]", '{"1": 2}', "5",
     '"12"', "null", "[[1]]", '["1"]', "[1", 5, None, {"a": 1}, [[1]], [float("inf")], [None]],
)  # fmt: skip
def test_what_is_no_list_of_targets_is_refused(value: Any) -> None:
    with pytest.raises(TaskError, match="no list of targets"):
        _decoded("p.csv", value)


def test_lists_of_targets_are_read() -> None:
    for value in ("[3, 1]", " [3,1.0]", [3, 1], (3.0, 1.0)):
        assert _decoded("p.csv", value) == [3, 1]
    assert _decoded("p.csv", "[]") == []


@pytest.mark.parametrize("names", ["id, id,y", "id,y,y", "id,y, y "])
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_two_columns_of_one_name_are_refused(names: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"p.{ending}"
    text = f"{names}\n0,0,1\n"
    path.write_text(text if ending == "csv" else text.replace(",", "\t"))
    with pytest.raises(TaskError, match="two columns"):
        read_frame(path)


def test_tables_of_text_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text('\ufeff id ,"a, b",y\n007,NA,\n"x\ny",1e5, z\n', encoding="utf-8")
    found = read_frame(path)
    assert list(found) == ["id", "a, b", "y"]
    assert found.to_numpy().tolist() == [["007", "NA", ""], ["x\ny", "1e5", " z"]]


# Names that no file has.

NAMES = ["~nobody-of-this-name/x", "x" * 300, "a/" + "x" * 300 + "/b", "a\0b"]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_no_file_has_are_refused(name: str, tmp_path: Path) -> None:
    assert maybe_path(name) is None
    with pytest.raises(UsageError, match="cannot be the name of a file"):
        user_path(name)
    dataset = tiny_dataset(tmp_path / "ds")
    run = Path(shutil.copytree(STORED, tmp_path / "run"))
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**about, "dataset": name}))
    for call in (
        lambda: relfrog.load_run(run).predict(),
        lambda: relfrog.load_run(name),
        lambda: relfrog.inspect(name),
        lambda: relfrog.check(name),
        lambda: relfrog.import_database(name, tmp_path / "made"),
        lambda: relfrog.import_database(str(dataset), name),
        lambda: relfrog.train(dataset, "buys", name, model="mean"),
        lambda: relfrog.ask(name, "PREDICT COUNT(a.*, 0, 1, days) FOR EACH b.c"),
    ):
        with pytest.raises(RelFrogError):
            call()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ds", "run"]


def test_a_name_becomes_a_path_in_one_place() -> None:
    """Elsewhere a home folder that does not exist, or a long name, would end in a traceback."""
    for path in PACKAGE.rglob("*.py"):
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        made = [n for n in tree if isinstance(n, ast.Attribute) and n.attr == "expanduser"]
        assert not made or path.name in ("files.py", "completion.py"), path


def test_the_name_of_a_table_is_not_too_long(tmp_path: Path) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    manifest = yaml.safe_load((dataset / "manifest.yaml").read_text())
    manifest["tables"]["ä" * 200] = {"pkey": "id", "time_col": None, "fkeys": {}}
    (dataset / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    with pytest.raises(DatasetError, match="not a file name"):
        relfrog.open_dataset(dataset)
    assert not relfrog.check(dataset).ok


@pytest.mark.parametrize(
    ("where", "entry", "value"),
    [
        ("manifest.yaml", "val_timestamp", "1 " * 500_000),
        ("tasks/buys/manifest.yaml", "timedelta", "1 day " * 500_000),
        ("tasks/buys/manifest.yaml", "sql", "SELECT 1" + " + 1" * 500_000),
        ("tasks/buys/manifest.yaml", "query", "PREDICT " + "(" * 1_100_000),
    ],
)
def test_what_is_parsed_is_not_too_long(where: str, entry: str, value: str, tmp_path: Path) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    content = yaml.safe_load((dataset / where).read_text())
    (dataset / where).write_text(yaml.safe_dump({**content, entry: value}, width=1 << 30))
    began = time.process_time()
    with pytest.raises(RelFrogError, match="of length <="):
        load_task(relfrog.open_dataset(dataset), "buys")
    assert time.process_time() - began < 15


# Language models that a run names.


@pytest.mark.parametrize(
    ("file", "content", "is_sound"),
    [
        ("2_Dense/config.json", {"activation_function": "torch.nn.Tanh"}, True),
        ("2_Dense/config.json", {"activation_function": "torch.nn.modules.linear.Identity"}, True),
        ("config.json", {"activation_function": "gelu_new"}, True),
        ("2_Dense/config.json", {"activation_function": "os.abort"}, False),
        ("2_Dense/config.json", {"activation_function": "torch.hub.load"}, False),
        ("2_Dense/config.json", {"activation_function": ["os.abort"]}, False),
        ("config.json", {"text_config": {"auto_map": {"AutoModel": "x.Y"}}}, False),
        ("config.json", [[{"auto_map": {}}]], False),
        ("modules.json", [{"type": "sentence_transformers.models.Pooling", "path": "1"}], True),
        ("modules.json", [{"type": "sentence_transformers.models.Router", "path": "1"}], False),
        ("modules.json", [{"type": "sentence_transformers.models.Asym", "path": "1"}], False),
        ("modules.json", [{"type": "joblib.numpy_pickle", "path": "1"}], False),
        ("modules.json", [{"path": "1"}], False),
        ("modules.json", [{"type": "sentence_transformers.models.Dense", "path": "a\0b"}], False),
    ],
)
def test_a_language_model_calls_nothing_that_its_files_name(
    file: str, content: Any, is_sound: bool, tmp_path: Path
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(json.dumps(content))
    if is_sound:
        _refuse_code(tmp_path)
    else:
        with pytest.raises(UsageError, match="would run code"):
            _refuse_code(tmp_path)


# Links.


def test_a_lock_empties_no_other_file(tmp_path: Path) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    run = relfrog.train(dataset, "buys", tmp_path / "run", model="mean", baselines=False).folder
    precious = tmp_path / "precious"
    precious.write_text("all I have")
    for make in (lambda p: p.symlink_to(precious), Path.mkdir, os.mkfifo):
        (run / ".lock").unlink(missing_ok=True)
        make(run / ".lock")
        for options in ({"overwrite": True}, {"resume": True}):
            with pytest.raises(RunError, match=r"\.lock"):
                relfrog.train(dataset, "buys", run, model="mean", baselines=False, **options)
        if (run / ".lock").is_dir():
            (run / ".lock").rmdir()
    assert precious.read_text() == "all I have"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ds", "precious", "run"]


def test_tasks_that_lie_elsewhere_are_neither_kept_nor_put_back(tmp_path: Path) -> None:
    """Of a dataset that is opened, or replaced by an import."""
    dataset = tiny_dataset(tmp_path / "ds")
    (dataset / "tasks").rename(tmp_path / "elsewhere")
    (dataset / "tasks").symlink_to(tmp_path / "elsewhere")
    aside = tmp_path / "elsewhere" / ".mine.partial-1-old"
    aside.mkdir()
    with sqlite3.connect(tmp_path / "shop.db") as made:
        made.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, at TIMESTAMP)")
        days = pd.date_range("2020-01-01", periods=9)
        made.executemany(
            "INSERT INTO people VALUES (?, ?)", [(n, str(d)) for n, d in enumerate(days)]
        )
    made.close()
    with pytest.raises(DatasetError, match="leads out of the folder"):
        relfrog.import_database(str(tmp_path / "shop.db"), dataset, overwrite=True)
    with pytest.raises(DatasetError, match="leads out of the folder"):
        relfrog.open_dataset(dataset)
    assert aside.is_dir()
    assert (dataset / "tasks").is_symlink()


def test_parts_of_predictions_are_files_in_their_folder(tmp_path: Path) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    run = relfrog.train(dataset, "buys", tmp_path / "run", model="mean", baselines=False)
    asked = Request(at="2020-01-09", everyone=True)
    predict_to(run, tmp_path / "out", asked)
    part = next((tmp_path / "out").glob("*.parquet"))
    for make in (os.mkfifo, lambda p: p.symlink_to(tmp_path / "moved")):
        part.replace(tmp_path / "moved")
        make(part)
        with pytest.raises(OutputError, match=r"leads out|neither a file"):
            read_parts(tmp_path / "out")
        with pytest.raises(OutputError, match=r"leads out|neither a file"):
            predict_to(run, tmp_path / "out", asked, overwrite=True)
        part.unlink()
        (tmp_path / "moved").replace(part)
    assert len(read_parts(tmp_path / "out")) == 4


# Runs and tables.


def test_the_history_of_a_run_that_goes_on_may_be_anything(tmp_path: Path) -> None:
    trainer: Any = SimpleNamespace(folder=tmp_path, at=checkpoint.TrainerState(epoch=2))
    path = tmp_path / "history.jsonl"
    for content in (b"\xff\xfe\n\x00\n{}\n", b"", b"{}\n" * 3):
        path.write_bytes(content)
        checkpoint.load(trainer)
        assert path.read_bytes() == b"".join(content.splitlines(keepends=True)[:2])
    path.unlink()
    path.mkdir()
    with pytest.raises(RunError, match="is no file"):
        checkpoint.load(trainer)


@pytest.mark.parametrize(
    ("first", "last", "unit", "is_sound"),
    [
        ("0001-01-01", "9999-12-31T23:59:59", "us", True),
        ("1678-01-01", "2262-01-01", "ns", True),
        ("-0001-01-01", "2020-01-01", "us", False),
        ("2019-01-01", "10000-01-01", "us", False),
        ("-200000-01-01", "200000-01-01", "us", False),
        ("-200000000-01-01", "200000000-01-01", "ms", False),
    ],
)
@pytest.mark.parametrize("key", ["id", None])
def test_rows_have_times_of_the_calendar(
    first: str, last: str, unit: str, is_sound: bool, key: str | None, tmp_path: Path
) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    path = dataset / "db" / "orders.parquet"
    times = pd.read_parquet(path)["at"].to_numpy().astype(f"datetime64[{unit}]")
    times[0], times[-1] = np.datetime64(first, unit), np.datetime64(last, unit)
    frame = pd.read_parquet(path).assign(at=times)
    frame.to_parquet(path, index=False)
    manifest = yaml.safe_load((dataset / "manifest.yaml").read_text())
    manifest["tables"]["orders"]["pkey"] = key
    (dataset / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    shutil.rmtree(dataset / "keys")
    (dataset / "import.json").unlink()
    report = relfrog.check(dataset)
    said = " ".join(finding.text for finding in report.findings)
    assert ("outside the years 1 to 9999" in said) is not is_sound, said
    if is_sound:
        assert len(database_in_files(relfrog.open_dataset(dataset)).table_dict["orders"]) == 12
    else:
        with pytest.raises(DatasetError, match="outside the years 1 to 9999"):
            relfrog.train(dataset, "buys", tmp_path / "run", model="mean", baselines=False)


@pytest.mark.parametrize("statistics", [True, False])
def test_keys_beyond_their_parents_are_null_to_sql(statistics: bool, tmp_path: Path) -> None:
    """Whether the header of the file says that there are such or not."""
    dataset = tiny_dataset(tmp_path / "ds")
    path = dataset / "db" / "orders.parquet"
    frame = pd.read_parquet(path)
    frame["x"] = frame["x"].where(frame["x"] % 3 > 0).astype("Int64")
    pq.write_table(
        pq.read_table(path).from_pandas(frame, preserve_index=False), path,
        write_statistics=statistics,
    )  # fmt: skip
    db = database_in_files(relfrog.open_dataset(dataset))
    table = db.table_dict["orders"].with_limits({"people": 2})
    sql = "SELECT id, who, x FROM orders ORDER BY id"
    day = pd.Timedelta("1 day")
    found = run_sql(sql, Database({"orders": table}), [pd.Timestamp("2020-01-01")], day)
    expected = pd.DataFrame({name: table.column(name) for name in ("id", "who", "x")})
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert expected["who"].isna().sum() == 6
