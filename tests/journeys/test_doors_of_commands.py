"""What is given to commands, and where they look: addresses, patterns, folders of parts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import relfrog
from fuzz_samples import LABELS, tiny_dataset
from helpers import inside
from relfrog.cli import cli
from relfrog.datasets.entities import read_entities
from relfrog.datasets.manifest_forms import _Task
from relfrog.datasets.new_task import add_task
from relfrog.datasets.task_file import _NOT_IN_FILE, TaskFile
from relfrog.datasets.tasks import load_task
from relfrog.errors import DatasetError, OutputError, RunError, TaskError, UsageError
from relfrog.features.text import _refuse_code
from relfrog.runs import ask
from relfrog.runs.parts_folder import MANIFEST, PLAN
from relfrog.runs.predict_parts import Request, predict_to, read_parts
from small_store import fit

SECRET = "c4n4ry-p4ss"
ADDRESSES = [
    f"postgresql://me:{SECRET}@localhost:1/db", f"mysql://me:{SECRET}@localhost:1",
    f"sqlite:///no/shop.db?password={SECRET}", f"webhdfs://host:1/x?delegation={SECRET}",
]  # fmt: skip


def given(parameter: click.Parameter, text: str) -> list[str]:
    """The words that give a parameter a value."""
    if isinstance(parameter.type, click.Choice):
        text = next(iter(parameter.type.choices))
    values = [text] * max(parameter.nargs, 1)
    return values if isinstance(parameter, click.Argument) else [parameter.opts[0], *values]


def takes_text(parameter: click.Parameter) -> bool:
    return isinstance(parameter.type, click.Path | click.types.StringParamType) and not getattr(
        parameter, "is_flag", False
    )


def places(address: str) -> Iterator[list[str]]:
    """Every command with an address in each place that takes a text, and nothing sound beside."""
    for name, command in cli.commands.items():
        needed = [p for p in command.params if p.required or isinstance(p, click.Argument)]
        for parameter in filter(takes_text, command.params):
            others = [w for p in needed if p is not parameter for w in given(p, "nothing")]
            # Arguments are told apart by their order.
            if isinstance(parameter, click.Argument):
                others = []
                for p in needed:
                    others += given(p, address if p is parameter else "nothing")
                yield [name, *others]
            else:
                yield [name, *others, *given(parameter, address)]


@pytest.mark.slow
@pytest.mark.parametrize("address", ADDRESSES)
def test_no_place_of_any_command_repeats_a_password(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    tried = set()
    for words in places(address):
        if words[0] in ("demo", "store"):
            monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "cache"))
        code, out, err = inside(capfd, *words)
        assert SECRET not in out + err, words
        assert "Unexpected" not in err, words
        assert code != 0, words
        tried.add(words[0])
    assert tried >= {"import", "ask", "suggest", "audit", "store", "experiment", "submit", "demo"}
    assert not [path for path in tmp_path.rglob("*") if SECRET in str(path)]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("name", ["RELFROG_CACHE", "RELFROG_CACHE_GB", "RELFROG_MEMORY"])
def test_no_variable_is_repeated_with_a_password(
    name: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    dataset = tiny_dataset(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, address)
    for words in (["check", str(dataset)], ["store", "list"], ["store", "remove", "--all"]):
        code, out, err = inside(capfd, *words)
        assert SECRET not in out + err, words
        assert "Unexpected" not in err, words
    assert name != "RELFROG_CACHE" or code == 2
    assert not [path for path in tmp_path.rglob("*") if SECRET in str(path)]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (f"postgresql://me:{SECRET}@host", "host"), (f"postgresql://me:{SECRET}@host:5432/", None),
        (f"mysql://me:a/{SECRET}@host", "host"), (f"sqlite:///x/shop.db?password={SECRET}", "shop"),
        ("postgresql://host/../../etc", "etc"), ("sqlite:///x/..", None), ("folder/shop", "shop"),
    ],
)  # fmt: skip
def test_the_folder_of_a_question_is_named_after_no_password(
    source: str, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = ask._folder_name(source)
    assert SECRET not in found
    assert Path(found).name == found not in ("", ".", "..")
    assert name is None or found == name


# Folders whose names are patterns.


@pytest.mark.slow
def test_a_pattern_in_the_name_of_a_folder_is_no_pattern(tmp_path: Path) -> None:
    """DuckDB would read the files of another folder, or of both."""
    other = tiny_dataset(tmp_path / "ds1")
    path = other / "db" / "orders.parquet"
    pd.read_parquet(path).assign(x=99).to_parquet(path)
    for name in ("ds[1]", "ds*"):
        dataset = tiny_dataset(tmp_path / name)
        (dataset / "tasks" / "buys" / "train.parquet").unlink()
        manifest = dataset / "tasks" / "buys" / "manifest.yaml"
        about = yaml.safe_load(manifest.read_text())
        sql = LABELS.replace("count(o.id) > 0", "count(o.id) + coalesce(max(o.x), 0) > 90")
        manifest.write_text(yaml.safe_dump(about | {"sql": sql}))
        found = load_task(relfrog.open_dataset(dataset), "buys").get_table("train").df
        assert not found["y"].any(), name
        tables = {table["name"]: table for table in relfrog.inspect(dataset)["tables"]}
        assert tables["orders"]["first_time"].startswith("2020-01-01")
        assert not [f for f in relfrog.check(dataset).findings if "cannot be read" in f.text]


# Text that is no UTF-8, which Arrow hands on as it is.


def no_text(path: Path, column: str) -> None:
    """Let the first value of a column be bytes that are no text."""
    table = pq.read_table(path)
    texts = [str(value).encode() for value in table[column].to_pylist()]
    raw = pa.array([b"\xff\xfe", *texts[1:]], pa.binary())
    wrong = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    pq.write_table(table.set_column(table.column_names.index(column), column, wrong), path)


@pytest.mark.slow
def test_text_that_is_none_is_refused(tmp_path: Path, capfd: Any) -> None:
    dataset = tiny_dataset(tmp_path / "ds")
    asked = tmp_path / "asked.parquet"
    pd.DataFrame({"id": [0, 1], "timestamp": "2020-01-06"}).to_parquet(asked, index=False)
    no_text(asked, "timestamp")
    with pytest.raises(TaskError, match="cannot be read"):
        read_entities(dataset, "people", "id", 4, asked, time_names=("timestamp",))
    small = {"epochs": 1, "channels": 4}
    for model in ("mean", "lightgbm", "frog"):
        run = relfrog.train(
            dataset, "buys", tmp_path / model, model=model, baselines=False, settings=small
        )
        assert run.predict("2020-01-09", [1]).shape[0] == 1
    asked_of_trees = [
        [command, str(tmp_path / "lightgbm"), "--entity=0"][: 3 if command == "explain" else 2]
        for command in ("predict", "explain", "evaluate")
    ]
    before = [inside(capfd, *words)[:2] for words in asked_of_trees]
    no_text(dataset / "db" / "people.parquet", "name")
    with pytest.raises(DatasetError, match="cannot be read"):
        relfrog.open_dataset(dataset).get_db()
    # These trees do not read the column: it changes nothing in what they answer.
    assert [inside(capfd, *words)[:2] for words in asked_of_trees] == before
    assert {code for code, _ in before} == {0}
    quick = ["--no-report", "--set", "epochs=1", "--set", "channels=4", "--set", "trials=1"]
    for words in (
        ["check", "ds"], ["suggest", "ds", "--seconds", "1"], ["explain", "frog", "--entity=0"],
        ["predict", "frog", "--out", str(tmp_path / "p.csv")],
        ["train", "ds", "buys", "--out", str(tmp_path / "n"), "--model", "lightgbm", *quick],
        ["train", "ds", "buys", "--out", str(tmp_path / "f"), "--model", "frog", *quick],
    ):  # fmt: skip
        words[1] = str(tmp_path / words[1])
        code, _, err = inside(capfd, *words)
        assert code == 1 or words[0] == "suggest", (words, err)  # which reads what it asks about
        assert "Unexpected" not in err, (words, err)


# Labels.


@pytest.mark.slow
def test_labels_may_be_made_of_what_is_hidden(tmp_path: Path) -> None:
    """Models do not see these columns; the SQL, and an autocomplete task, need them."""
    dataset = tiny_dataset(tmp_path / "ds")
    task = dataset / "tasks" / "buys"
    about = yaml.safe_load((task / "manifest.yaml").read_text())
    about |= {"remove_columns": [["orders", "x"]], "sql": LABELS.replace("o.id", "o.x")}
    (task / "manifest.yaml").write_text(yaml.safe_dump(about))
    for split in ("train", "val", "test"):
        (task / f"{split}.parquet").unlink()
    labels = load_task(relfrog.open_dataset(dataset), "buys").get_table("train").df
    assert labels["y"].sum() > 0
    run = relfrog.train(dataset, "buys", tmp_path / "run", model="mean", baselines=False)
    assert "x" not in run.prepared.db.table_dict["orders"].df
    assert run.predict("2020-01-09").shape[0] > 0
    add_task(dataset, "fill", autocomplete="orders.x", val="2020-01-05", test="2020-01-08")
    for split in ("train", "val", "test"):
        (dataset / "tasks" / "fill" / f"{split}.parquet").unlink(missing_ok=True)
    relfrog.train(dataset, "fill", tmp_path / "filled", model="mean", baselines=False)


def test_every_entry_of_a_task_has_a_form() -> None:
    known = {field.name for field in msgspec.structs.fields(_Task)}
    assert {field.name for field in fields(TaskFile)} - set(_NOT_IN_FILE) <= known


# Predictions in parts.


@pytest.fixture
def run(tmp_path: Path) -> relfrog.Run:
    dataset = tiny_dataset(tmp_path / "ds")
    return relfrog.train(dataset, "buys", tmp_path / "run", model="mean", baselines=False)


def test_a_damaged_part_is_made_anew(run: relfrog.Run, tmp_path: Path) -> None:
    out, asked = tmp_path / "out", Request(at="2020-01-09", everyone=True)
    predict_to(run, out, asked, size=2)
    expected, whole = read_parts(out), sorted(p.name for p in out.iterdir())
    first = next(out.glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-9])
    with pytest.raises(OutputError, match="a part cannot be read"):
        read_parts(out)
    manifest = json.loads((out / MANIFEST).read_text())
    begun = {name: manifest[name] for name in ("model", "data", "made_at")}
    (out / PLAN).write_text(json.dumps(begun))
    predict_to(run, out, asked, size=2, overwrite=True)
    pd.testing.assert_frame_equal(read_parts(out), expected, check_exact=True)
    assert sorted(p.name for p in out.iterdir()) == whole
    for wrong in ({"made_at": "soon"}, {"made_at": None}, {"model": 3}):
        (out / PLAN).write_text(json.dumps({**begun, **wrong}))
        with pytest.raises(OutputError, match="is damaged"):
            predict_to(run, out, asked, size=2, overwrite=True)


def test_parts_lie_in_their_folder(run: relfrog.Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    predict_to(run, out, Request(at="2020-01-09", everyone=True))
    part = next(out.glob("*.parquet"))
    shutil.move(part, tmp_path / part.name)
    manifest = json.loads((out / MANIFEST).read_text())
    for name in (f"../{part.name}", str(tmp_path / part.name), "..", ""):
        manifest["parts"][0]["file"] = name
        (out / MANIFEST).write_text(json.dumps(manifest))
        with pytest.raises(OutputError, match="damaged"):
            read_parts(out)


# Models.


def test_modules_of_a_text_model_lie_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    kind = "sentence_transformers.models.Dense"
    for path, sound in (("2_Dense", True), ("", True), ("../weights", False), ("/tmp", False)):
        (folder / "modules.json").write_text(json.dumps([{"type": kind, "path": path}]))
        if sound:
            _refuse_code(folder)
        else:
            with pytest.raises(UsageError, match="would run code"):
                _refuse_code(folder)


@pytest.mark.slow
def test_features_of_trees_are_what_they_should_be(store: Path, tmp_path: Path) -> None:
    run = fit(store, tmp_path / "run", model="lightgbm", trials=1)
    path = run.folder / "lightgbm.json"
    about = json.loads(path.read_text())
    cells = about["features"]["cells"]
    cells.sort(key=lambda cell: cell["kind"] == "label")
    first = cells[0]
    for change in ({"kind": "label"}, {"kind": "lumber"}, {"part": 7}, {"center": None}):
        cells[0] = first | change
        path.write_text(json.dumps(about))
        with pytest.raises(RunError, match="damaged"):
            relfrog.load_run(run.folder).predict()
