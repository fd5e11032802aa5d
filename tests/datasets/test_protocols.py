"""The border to RelBench: its public names alone, and labels that are the same as its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import relbench
import yaml
from relbench.base import BaseTask, Table

import relfrog
from relfrog import open_dataset
from relfrog.datasets.protocols import Dataset, Task
from relfrog.datasets.tasks import load_task
from relfrog.errors import TaskError
from small_store import copied

PACKAGE = Path(relfrog.__file__).parent
SPLITS = ("train", "val", "test")


@pytest.fixture(scope="module")
def all_kinds(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small store with tasks of all kinds: labels by SQL, as files, and of a column."""
    folder = copied(shop, tmp_path_factory.mktemp("kinds"))
    for name in ("spends", "list"):
        old, new = folder / "tasks" / name, folder / "tasks" / f"{name}-files"
        manifest = yaml.safe_load((old / "manifest.yaml").read_text())
        (old / "val.parquet").unlink()  # so that its SQL has to run
        new.mkdir()
        for split in SPLITS:
            source = shop / "tasks" / name / f"{split}.parquet"
            (new / source.name).write_bytes(source.read_bytes())
        manifest |= {"name": new.name, "kind": "external", "sql": None}
        (new / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    for target, kind in (("amount", "regression"), ("channel", "multiclass_classification")):
        manifest = {
            "name": target, "kind": "autocomplete", "task_type": kind, "entity_table": "orders",
            "target_col": target,
        }  # fmt: skip
        (folder / "tasks" / target).mkdir()
        (folder / "tasks" / target / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    return folder


def same(ours: Table, theirs: Table) -> None:
    pd.testing.assert_frame_equal(ours.df, theirs.df)
    assert ours.fkey_col_to_pkey_table == theirs.fkey_col_to_pkey_table
    assert (ours.pkey_col, ours.time_col) == (theirs.pkey_col, theirs.time_col)


def test_what_relbench_has_fits_the_protocols(all_kinds: Path) -> None:
    plain, opened = relbench.load_dataset(all_kinds), open_dataset(all_kinds)
    assert isinstance(plain, Dataset)
    assert isinstance(opened, Dataset)
    assert isinstance(opened, type(plain))
    assert not isinstance(object(), Dataset)
    kinds = set()
    for name in opened.get_task_names():
        for dataset in (plain, opened):
            task = load_task(dataset, name)
            assert isinstance(task, Task)
            assert isinstance(task, BaseTask)  # RelBench's own functions take it, too
        assert bool(task.dst_entity_table) == bool(task.eval_k) == name.startswith("list")
        kinds.add((task.sql is None, task.task_type))
    assert len(kinds) == 5 + 3


NAMES = ("buys", "spends", "wants", "counts", "list", "spends-files", "list-files", "amount", "channel")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_labels_are_those_of_relbench(name: str, all_kinds: Path) -> None:
    plain, opened = relbench.load_dataset(all_kinds), open_dataset(all_kinds)
    for regenerate in (False, True) if not name.endswith("-files") else (False,):
        ours = load_task(opened, name, regenerate=regenerate)
        theirs = plain.load_task(name, regenerate=regenerate)
        for split in SPLITS:
            same(ours.get_table(split), theirs.get_table(split))
            unmasked = ours.get_table(split, mask_input_cols=False)
            same(unmasked, theirs.get_table(split, mask_input_cols=False))
            assert len(unmasked) > 10
        assert ours.hidden_columns() == theirs.hidden_columns()
        assert (ours.timedelta, ours.time_col) == (theirs.timedelta, theirs.time_col)
        assert ours.num_eval_timestamps == theirs.num_eval_timestamps
        if theirs.metrics:
            truth = theirs.get_table("val", mask_input_cols=False)
            shape = (len(truth), theirs.eval_k) if name.startswith("list") else len(truth)
            guess = pd.Series(range(len(truth))).sample(frac=1, random_state=0).to_numpy()
            guess = guess.reshape(-1, 1).repeat(3, 1) % 8 if isinstance(shape, tuple) else guess
            assert isinstance(ours, BaseTask)
            assert ours.evaluate(guess, truth) == theirs.evaluate(guess, truth)


def test_a_missing_file_or_field_is_named(all_kinds: Path, tmp_path: Path) -> None:
    folder = copied(all_kinds, tmp_path)
    (folder / "tasks" / "spends-files" / "val.parquet").unlink()
    task = load_task(open_dataset(folder), "spends-files")
    with pytest.raises(TaskError, match="labels are files"):
        task.get_table("val")
    with pytest.raises(TaskError, match="labels are files"):
        load_task(open_dataset(folder), "spends-files", regenerate=True)
    frame = pd.read_parquet(folder / "tasks" / "buys" / "val.parquet")
    frame.drop(columns="buys").to_parquet(folder / "tasks" / "buys" / "val.parquet")
    task = load_task(open_dataset(folder), "buys")
    assert len(task.get_table("val", mask_input_cols=True)) == len(frame)
    for masked in (None, False):
        with pytest.raises(TaskError, match="no column 'buys'"):
            task.get_table("val", mask_input_cols=masked)
    path = folder / "tasks" / "list-files" / "manifest.yaml"
    manifest = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**manifest, "time_col": None}))
    with pytest.raises(TaskError, match="list-files: the manifest does not say its time_col"):
        load_task(open_dataset(folder), "list-files")
    path.write_text(yaml.safe_dump({**manifest, "evaluator": "tgb"}))
    scored_elsewhere: Any = load_task(open_dataset(folder), "list-files")
    with pytest.raises(TaskError, match="is scored by tgb"):
        scored_elsewhere.evaluate(None)


def trespasses(source: str) -> list[str]:
    """Private names of RelBench that are used, and attributes of its objects that are set."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("relbench"):
            found += [name.name for name in node.names if name.name.startswith("_")]
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            if owner in ("task", "dataset", "opened", "loaded", "db", "full") and (
                isinstance(node.ctx, ast.Store) or re.match("_(?!_)", node.attr)
            ):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "vars"):
            found += (
                [ast.unparse(node)]
                if re.search(r"\b(task|dataset|db)\b", ast.unparse(node))
                else []
            )
    return found


def test_relbench_is_used_by_its_public_names_alone() -> None:
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        # The attributes that a class of ours keeps in itself are its own.
        found = [what for what in trespasses(source) if not what.startswith("self.")]
        assert (path.name, found) == (path.name, [])
    for text in (
        "from relbench.load import _ForecastEntityTask", "task.get_table = f", "dataset._x",
        "setattr(task, 'a', 1)", "vars(db)['a'] = 1", "run.prepared.task.eval_k = 3",
    ):  # fmt: skip
        assert trespasses(text)


def test_the_protocols_hold_nothing_that_is_not_used() -> None:
    sources = [p.read_text("utf-8") for p in PACKAGE.rglob("*.py") if p.name != "protocols.py"]
    for protocol in (Dataset, Task):
        members = {n for n in [*vars(protocol), *protocol.__annotations__] if not n.startswith("_")}
        assert len(members) > 8
        for name in members - {"get_db"}:  # which users call
            assert any(re.search(rf"\b(task|dataset|opened)\.{name}\b", s) for s in sources), name
