"""Every way a folder can be wrong is found, named, and given a remedy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from bare_shop import BUYS, LIST, make_bare_shop
from relfrog import add_task
from relfrog.datasets.checks import check


@pytest.fixture
def folder(once: Any, tmp_path: Path) -> Path:
    """A good dataset with a task of its own, to be broken."""

    def make(folder: Path) -> None:
        shop = make_bare_shop(folder)
        add_task(shop, "buys", BUYS, type="binary", entity="people", horizon="20 days")

    return Path(shutil.copytree(once("shop-that-buys", make) / "ds", tmp_path / "bare-shop"))


def column(table: str, name: str, change: Callable[[pa.Array], pa.Array]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "db" / f"{table}.parquet"
        data = pq.read_table(path)
        index = data.schema.get_field_index(name)
        pq.write_table(data.set_column(index, name, change(data.column(index))), path)

    return apply


def manifest(change: Callable[[dict], object], task: str = "") -> Callable[[Path], None]:  # type: ignore[type-arg]
    def apply(folder: Path) -> None:
        path = folder / "tasks" / task / "manifest.yaml" if task else folder / "manifest.yaml"
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        change(content)
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        for labels in (folder / "tasks" / task).glob("*.parquet") if task else []:
            labels.unlink()

    return apply


def sql(change: Callable[[str], str]) -> Callable[[Path], None]:
    return manifest(lambda c: c.update(sql=change(c["sql"])), "buys")


def reversed_(values: pa.Array) -> pa.Array:
    return values.combine_chunks().take(pa.array(range(len(values) - 1, -1, -1)))


BROKEN: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "no YAML": (lambda f: (f / "manifest.yaml").write_text("a: ["), "manifest.yaml", "is not YAML"),
    "a list": (lambda f: (f / "manifest.yaml").write_text("[1]"), "manifest.yaml", "holds list"),
    "no split": (manifest(lambda c: c.pop("val_timestamp")), "manifest.yaml", "val_timestamp is"),
    "no time": (manifest(lambda c: c.update(val_timestamp="soon")), "manifest.yaml", "is not a time"),
    "split order": (
        manifest(lambda c: c.update(val_timestamp="2020-12-01")), "manifest.yaml", "must lie before",
    ),
    "split outside": (
        manifest(lambda c: c.update(test_timestamp="2030-12-01")), "manifest.yaml", "lies outside",
    ),
    "bad table": (manifest(lambda c: c["tables"].update(people=3)), "people", "must be a mapping"),
    "bad name": (
        manifest(lambda c: c["tables"].update({"../x": c["tables"].pop("people")})), "../x", "file name",
    ),
    "missing file": (lambda f: (f / "db" / "people.parquet").unlink(), "people", "is missing"),
    "no parquet": (
        lambda f: (f / "db" / "people.parquet").write_text("x"), "people", "is not a Parquet file",
    ),
    "no column": (
        manifest(lambda c: c["tables"]["orders"].update(time_col="ordered")), "orders",
        "did you mean 'ordered_at'",
    ),
    "no parent": (
        manifest(lambda c: c["tables"]["orders"]["fkeys"].update(person="poeple")), "orders.person",
        "does not exist",
    ),
    "parent without key": (
        manifest(lambda c: c["tables"]["people"].update(pkey=None)), "orders.person", "no primary key",
    ),
    "shuffled key": (column("people", "id", reversed_), "people.id", "30 are not, such as 29 in row 0"),
    "text key": (column("people", "id", lambda v: v.cast("string")), "people.id", "must be integer"),
    "key out of range": (
        column("orders", "person", lambda v: pc.add(v, 5)), "orders.person", "not rows of people (0 to 29)",
    ),
    "negative key": (
        column("orders", "person", lambda v: pc.subtract(v, 1)), "orders.person", "such as -1",
    ),
    "text foreign key": (
        column("orders", "person", lambda v: v.cast("string")), "orders.person", "must be integer",
    ),
    "times reversed": (column("orders", "ordered_at", reversed_), "orders.ordered_at", "steps back"),
    "times as text": (
        column("orders", "ordered_at", lambda v: v.cast("string")), "orders.ordered_at", "a timestamp",
    ),
    "times with a zone": (
        column("orders", "ordered_at", lambda v: v.cast(pa.timestamp("us", "UTC"))),
        "orders.ordered_at", "without a zone",
    ),
    "source keys gone": (
        lambda f: (f / "keys" / "people.parquet").unlink(), "keys/people", "cannot be read",
    ),
    "source keys short": (
        lambda f: keys(f, lambda t: t.slice(3)), "keys/people", "holds 27 keys",
    ),
    "source keys repeat": (
        lambda f: keys(f, lambda t: t.set_column(0, "id", pa.array([1] * 30))), "keys/people",
        "29 of 30 source keys are duplicates",
    ),
    "damaged pages": (lambda f: scramble(f / "db" / "orders.parquet"), "orders", "damaged"),
    "task YAML": (
        lambda f: (f / "tasks" / "buys" / "manifest.yaml").write_text("{"), "task buys", "is not YAML",
    ),
    "task type": (manifest(lambda c: c.update(task_type="guess"), "buys"), "task buys", "task_type"),
    "task table": (
        manifest(lambda c: c.update(entity_table="poeple"), "buys"), "task buys", "did you mean 'people'",
    ),
    "task horizon": (
        manifest(lambda c: c.update(timedelta="300 days"), "buys"), "task buys", "timedelta",
    ),
    "wrong SQL": (sql(lambda s: s.replace("people", "poeple")), "task buys", "poeple"),
    "no labels": (sql(lambda s: s.replace("GROUP", "WHERE false GROUP")), "task buys", "no label"),
    "constant": (sql(lambda s: s.replace("> 2", "> 999")), "task buys", "labels are equal"),
    "labels of the past": (
        sql(lambda s: s.replace("> t.timestamp\n", "<= t.timestamp\n")
            .replace("o.ordered_at <= t.timestamp +", "o.ordered_at > t.timestamp -")),
        "task buys", "the same without anything after",
    ),
    "no end of the window": (
        sql(lambda s: s.replace("AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'", "")
            .replace("> 2", "> 8")),
        "task buys", "depend on rows after their window",
    ),
    "not a seed time": (
        sql(lambda s: s.replace("t.timestamp, p.id", "t.timestamp + INTERVAL 1 DAY AS timestamp, p.id")),
        "task buys", "no seed time",
    ),
    "stored labels differ": (
        lambda f: flip_labels(f / "tasks" / "buys" / "val.parquet"), "task buys",
        "30 of 30 stored labels differ",
    ),
}  # fmt: skip


def keys(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    path = folder / "keys" / "people.parquet"
    pq.write_table(change(pq.read_table(path)), path)


def scramble(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[200:2000] = bytes(len(raw[200:2000]))
    path.write_bytes(bytes(raw))


def flip_labels(path: Path) -> None:
    data = pq.read_table(path)
    index = data.schema.get_field_index("buys")
    flipped = pc.subtract(1, data.column(index))
    pq.write_table(data.set_column(index, "buys", flipped), path)


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name: str, folder: Path) -> None:
    breakage, place, words = BROKEN[name]
    breakage(folder)
    report = check(folder)
    assert not report.ok
    errors = [f for f in report.findings if f.level == "error"]
    found = [f for f in errors if place in f.place and words in f.text]
    assert found, errors
    assert all(f.remedy for f in report.findings)


def test_a_good_folder_passes(folder: Path) -> None:
    report = check(folder)
    assert report.findings == []
    assert report.passed[0] == "keys, foreign keys and times of 3 tables, 1,241 rows"
    assert any(text.startswith("task buys: train ") for text in report.passed)


def test_all_findings_come_in_one_go(folder: Path) -> None:
    for name in ("shuffled key", "key out of range", "times with a zone"):
        BROKEN[name][0](folder)
    places = {f.place for f in check(folder).findings if f.level == "error"}
    assert {"people.id", "orders.person", "orders.ordered_at"} <= places


@pytest.mark.slow
def test_a_recommendation_is_checked_too(folder: Path) -> None:
    add_task(
        folder, "list", LIST, type="recommendation", source="people", target="things.thing",
        horizon="20 days",
    )  # fmt: skip
    assert check(folder, "list").ok
    manifest(lambda c: c.update(sql=c["sql"].replace("'{timedelta}'", "'90 days'")), "list")(folder)
    assert "after their window" in check(folder, "list").findings[-1].text


@pytest.mark.slow
# The flights are those of the demo, which checks them.
@pytest.mark.parametrize("name", ["rel-f1", "olist-sample", "travel-exchange"])
def test_real_datasets_pass(name: str, shared_data: Path) -> None:
    report = check(shared_data / name)
    assert report.ok, [f for f in report.findings if f.level == "error"]
