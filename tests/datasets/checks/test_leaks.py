"""Usual causes of leaks are found, with evidence; a sound dataset gives no alarm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from relfrog.datasets.checks import check
from small_store import change, copied


@pytest.fixture
def folder(store: Path, tmp_path: Path) -> Path:
    return copied(store, tmp_path)


def warnings_of(folder: Path, task: str) -> str:
    report = check(folder, task)
    return "\n".join(f"{f.place}: {f.text}. {f.remedy}" for f in report.findings)


@pytest.mark.parametrize("task", ["buys", "spends", "wants"])
def test_a_sound_task_gives_no_alarm(store: Path, task: str) -> None:
    said = warnings_of(store, task).splitlines()
    # Training times of the store go back to when the first person joined.
    assert [line for line in said if "Most of them lie before 2020-01-01" not in line] == []


def labels(folder: Path, task: str) -> pd.DataFrame:
    import relfrog
    from relfrog.datasets.tasks import load_task

    return load_task(relfrog.open_dataset(folder), task).get_table("train").df


@pytest.mark.parametrize(
    ("task", "measure"), [("buys", "ROC-AUC"), ("spends", "correlation"), ("counts", "accuracy")]
)
def test_a_column_that_is_nearly_the_label(task: str, measure: str, folder: Path) -> None:
    frame = labels(folder, task)
    target = frame.columns[-1]
    # One label per entity, as where a column is filled in afterwards.
    mean = frame.groupby("code")[target].transform("last")
    for split in ("train",):
        path = folder / "tasks" / task / f"{split}.parquet"
        pd.read_parquet(path).assign(**{target: mean.to_numpy()}).to_parquet(path)
    by_person = frame.assign(y=mean).groupby("code")["y"].first().reindex(range(20), fill_value=0)
    noise = np.linspace(0, 1e-3, 20) if measure != "accuracy" else 0
    given = by_person.to_numpy() * 2 + noise
    values = given if measure != "accuracy" else [f"grade {int(v)}" for v in given]
    change(folder, "people", lambda f: f.assign(outcome=values))
    said = warnings_of(folder, task)
    assert f"people.outcome is nearly the label: {measure}" in said
    assert "--hide people.outcome" in said


def test_entities_that_exist_only_because_of_the_label(folder: Path) -> None:
    path = folder / "tasks" / "buys" / "manifest.yaml"
    manifest = yaml.safe_load(path.read_text())
    manifest["sql"] = manifest["sql"].replace("WHERE p.joined <= t.timestamp", "")
    path.write_text(yaml.safe_dump(manifest))
    for labels_file in path.parent.glob("*.parquet"):
        labels_file.unlink()
    said = warnings_of(folder, "buys")
    assert "seeds are of rows of people that have a joined after the seed's time" in said


@pytest.mark.slow
def test_entities_without_a_time_that_leave_no_trace(folder: Path) -> None:
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text())
    manifest["tables"]["people"]["time_col"] = None
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    path = folder / "tasks" / "buys" / "manifest.yaml"
    task = yaml.safe_load(path.read_text())
    everyone = task["sql"].replace("WHERE p.joined <= t.timestamp", "")
    start = pd.Timestamp("2020-01-01")

    def begins_late(frame: pd.DataFrame) -> pd.DataFrame:
        begin = start + pd.to_timedelta(20 + 10 * frame["person"].fillna(0).astype(int), "D")
        return frame.assign(person=frame["person"].where(frame["ordered_at"] >= begin))

    change(folder, "orders", begins_late)
    for sql, warned in ((everyone, False), (everyone.replace("LEFT JOIN", "JOIN"), True)):
        path.write_text(yaml.safe_dump({**task, "sql": sql}))
        for labels_file in path.parent.glob("*.parquet"):
            labels_file.unlink()
        assert ("have no row in any table with times" in warnings_of(folder, "buys")) == warned


def test_an_update_time_that_is_used_as_creation_time(folder: Path) -> None:
    rng = np.random.default_rng(0)

    def updated(frame: pd.DataFrame) -> pd.DataFrame:
        gap = pd.to_timedelta(rng.integers(0, 90, len(frame)), "D")
        moved = frame.assign(created_at=frame["ordered_at"], last_update=frame["ordered_at"] + gap)
        moved = moved.sort_values("last_update", kind="stable").drop(columns="ordered_at")
        return moved.assign(id=range(len(frame)))

    change(folder, "orders", updated)
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text())
    manifest["tables"]["orders"]["time_col"] = "last_update"
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    import shutil

    shutil.rmtree(folder / "tasks")
    said = "\n".join(f"{f.place}: {f.text} {f.remedy}" for f in check(folder).findings)
    assert (
        "orders.last_update: seems to be the time of the last change: created_at is earlier" in said
    )
    assert "--time orders.created_at" in said


def test_an_event_table_without_a_time(folder: Path) -> None:
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text())
    manifest["tables"]["reviews"]["time_col"] = None
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    said = warnings_of(folder, "buys")
    assert "reviews: has no time, neither of its own nor inherited, but refers to orders" in said


def test_labels_that_look_back_too(folder: Path) -> None:
    path = folder / "tasks" / "spends" / "manifest.yaml"
    task = yaml.safe_load(path.read_text())
    task["sql"] = task["sql"].replace(
        "o.ordered_at > t.timestamp", "o.ordered_at > t.timestamp - INTERVAL '9 days'"
    )
    path.write_text(yaml.safe_dump(task))
    for labels_file in path.parent.glob("*.parquet"):
        labels_file.unlink()
    assert "they seem to look back, too" in warnings_of(folder, "spends")


def older(folder: Path, how: str) -> None:
    """Make reviews older than their orders: all of them, one, or by the hours that days lack."""
    ordered = pd.read_parquet(folder / "db" / "orders.parquet")["ordered_at"]

    def moved(frame: pd.DataFrame) -> pd.DataFrame:
        of = pd.to_datetime(ordered.to_numpy()[frame["order_id"].to_numpy(int)])
        if how == "days":
            frame["written"] = of.floor("D")
        else:
            rows = slice(None) if how == "all" else slice(5, 6)
            frame.loc[frame.index[rows], "written"] = (of - pd.Timedelta("30h"))[rows]
        ranked = frame.sort_values("written", kind="stable")
        return ranked.assign(id=range(len(frame)))

    change(folder, "reviews", moved)


@pytest.mark.slow
def test_rows_that_are_older_than_what_they_refer_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> list[tuple[str, str]]:
        found = [f for f in check(folder, "buys").findings if f.place == "reviews.order_id"]
        return [(f.text, f.remedy) for f in found]

    assert not said()
    monkeypatch.setattr("relfrog.datasets.checks.tables._CLOCKS", 0.02)
    older(folder, "one")
    assert not said()
    monkeypatch.setattr("relfrog.datasets.checks.tables._CLOCKS", 0.0)
    assert "1 of" in said()[0][0]
    older(folder, "all")
    text, remedy = said()[0]
    assert "rows are older than their orders row" in text
    assert "dates without a time of day" not in text
    assert "which time column" in remedy
    older(folder, "days")
    text, remedy = said()[0]
    assert "at the midnight before it: written holds dates without a time of day" in text
    assert "the end of the day" in remedy


@pytest.mark.parametrize(
    ("late", "form"),
    [(True, "the time from the seed to people.left"), (False, "whether there is a value in")],
)
def test_a_time_or_a_gap_that_is_nearly_the_label(late: bool, form: str, folder: Path) -> None:
    """When someone left says who stays, at each seed's time; or only those who left have it."""
    path = folder / "tasks" / "buys" / "train.parquet"
    frame = pd.read_parquet(path)
    first, last = frame["timestamp"].min(), frame["timestamp"].max()
    left = pd.Series(pd.date_range(first, last, 20)).sample(frac=1, random_state=0).to_numpy()
    stays = left[frame["code"]] > frame["timestamp"] if late else frame["code"] % 2 == 0
    frame.assign(**{frame.columns[-1]: np.asarray(stays).astype(int)}).to_parquet(path)
    kept = left if late else pd.Series(left).where(np.arange(20) % 2 == 1).to_numpy()
    change(folder, "people", lambda f: f.assign(left=kept))
    said = warnings_of(folder, "buys")
    assert form in said
    assert "is nearly the label: ROC-AUC 1.000" in said
    assert "--hide people.left" in said


@pytest.mark.parametrize(
    ("column", "days", "warned"),
    [("delivered_at", 3, True), ("due_at", 3, False), ("delivered_at", -3, False)],
)
def test_a_time_that_is_later_than_its_row(
    column: str, days: int, warned: bool, folder: Path
) -> None:
    gap = pd.Timedelta(days, "D")
    change(folder, "orders", lambda f: f.assign(**{column: f["ordered_at"] + gap}))
    said = warnings_of(folder, "buys")
    assert (f"orders.{column} lies after ordered_at in" in said) == warned
    assert ("by 3 days at the median" in said) == warned
