"""The embedded database: flights out of New York in 2013."""

from __future__ import annotations

from pathlib import Path

import pytest
import relbench

from relfrog import DatasetError, build_demo, check, inspect

pytest.importorskip("relfrog.demo")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from relfrog.demo import _package_data

    try:
        _package_data()
    except DatasetError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("demo")
    build_demo(folder)
    return folder


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
    report = check(demo / "flights")
    assert report.findings == []


def test_labels_equal_those_of_the_reference_dataset(demo: Path, shared_data: Path) -> None:
    ours, theirs = (
        relbench.load_dataset(demo / "flights"),
        relbench.load_dataset(shared_data / "flights"),
    )
    for name in ("plane-delay", "airport-delay", "plane-dest"):
        for split in ("train", "val", "test"):
            one = ours.load_task(name).get_table(split, mask_input_cols=False).df
            two = theirs.load_task(name).get_table(split, mask_input_cols=False).df
            assert len(one) == len(two), (name, split)
    late = (
        relbench.load_dataset(demo / "flights")
        .load_task("plane-delay")
        .get_table("train")
        .df["late"]
    )
    assert late.mean() == pytest.approx(0.2521, abs=1e-4)


def test_it_is_not_overwritten(demo: Path) -> None:
    with pytest.raises(DatasetError, match="--overwrite"):
        build_demo(demo)
