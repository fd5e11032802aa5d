"""The embedded database: flights out of New York in 2013."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import relbench

from relfrog import inspect, load_run
from relfrog.cli import cli
from relfrog.datasets import build_demo
from relfrog.errors import DatasetError


def test_its_shape(demo: Path) -> None:
    found = inspect(demo / "flights")
    rows = {t["name"]: t["rows"] for t in found["tables"]}
    assert rows == {
        "airlines": 16,
        "airports": 1458,
        "flights": 336776,
        "planes": 3322,
        "weather": 26115,
    }
    keys = {(k["table"], k["column"]): k for k in found["foreign_keys"]}
    assert keys["flights", "origin"]["parent"] == keys["flights", "dest"]["parent"] == "airports"
    nowhere = keys["flights", "tailnum"]["nulls"] + keys["flights", "dest"]["nulls"]
    assert nowhere == 2512 + 50_094 + 7602
    weather = next(t for t in found["tables"] if t["name"] == "weather")
    assert weather["primary_key"] is None


def test_it_passes_its_own_check(demo: Path) -> None:
    said = (demo / "said.txt").read_text()
    assert "full resolution: rebuilt 5 tables, 368 k rows, identical" in said
    assert "\n0 errors, 0 warnings\n" in said


def names(dataset: Path, table: str, key: str, column: str) -> dict[int, str]:
    """Per row number the name the source knows a row by."""
    frame = relbench.load_dataset(dataset).get_db(upto_test_timestamp=False).table_dict[table].df
    return dict(zip(frame[key], frame[column], strict=True))


def test_labels_equal_those_of_the_reference_dataset(demo: Path, shared_data: Path) -> None:
    ours, theirs = demo / "flights", shared_data / "flights"
    planes = (
        names(ours, "planes", "tailnum", "tailnum_key"),
        names(theirs, "planes", "plane_id", "tailnum"),
    )
    airports = (
        names(ours, "airports", "faa", "faa_key"),
        names(theirs, "airports", "airport_id", "code"),
    )
    for task, columns in {
        "plane-delay": (("tailnum", "late"), ("plane_id", "late")),
        "airport-delay": (("faa", "mean_delay"), ("airport_id", "avg_arr_delay")),
        "plane-dest": (("tailnum", "dest"), ("plane_id", "dest_id")),
    }.items():
        entities = airports if task == "airport-delay" else planes
        for split in ("train", "val", "test"):
            found = []
            for side, folder in enumerate((ours, theirs)):
                frame = (
                    relbench.load_dataset(folder)
                    .load_task(task)
                    .get_table(split, mask_input_cols=False)
                    .df
                )
                entity, label = columns[side]
                values = frame[label]
                if task == "plane-dest":
                    values = values.map(lambda v, s=side: tuple(sorted(airports[s][i] for i in v)))
                elif task == "airport-delay":
                    values = values.round(6)
                who = frame[entity].map(entities[side])
                found.append(dict(zip(zip(frame["timestamp"], who), values)))
            assert found[0] == found[1], (task, split)


def test_it_is_not_overwritten(demo: Path) -> None:
    with pytest.raises(DatasetError, match="--overwrite"):
        build_demo(demo)
    with pytest.raises(DatasetError, match="--overwrite"):
        cli.main(["demo", "--out", str(demo)], standalone_mode=False)


def test_the_journey(demo: Path) -> None:
    said = (demo / "said.txt").read_text()
    commands = re.findall(r"^\$ (.*)$", said, re.M)
    assert [command.split()[:2] for command in commands] == [
        ["relfrog", name]
        for name in (
            "import",
            "suggest",
            "ask",
            "check",
            "inspect",
            "roles",
            "predict",
            "report",
        )
    ]
    run = load_run(demo / "run")
    assert f"--out {run.folder} --size small --set epochs=1" in commands[2]
    for split in ("val", "test"):
        for regime in ("frozen", "rolling"):
            score = run.metrics[split][regime]["roc_auc"]
            assert re.search(rf"^{split} +{regime} +{score:.4f} ", said, re.M)
    assert "What to notice: " in said
    for route, gate in zip(run.roles()["route"], run.roles()["gate"]):
        assert re.search(rf"^{re.escape(route)} +\S+ +{gate:.3f} ", said, re.M)
    lines = (demo / "predictions.csv").read_text().splitlines()
    assert lines[0] == "faa,time,prediction,decision,run,horizon,made_at"
    assert 50 < len(lines) - 1 < 110  # the airports that flights go to, not all 1,458
    assert "\n".join(lines[:4]) in said
    # What is named at the end is there.
    for name in ("flights.db", "flights", "schema.svg", "run", "report.html"):
        assert (demo / name).exists()
    for command in re.findall(r"^  (relfrog .*)$", said, re.M):
        words = shlex.split(command)
        assert words[1] in cli.commands
