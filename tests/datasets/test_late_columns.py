"""Times later than their rows are not shown to a model, unless they were planned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import relfrog
from helpers import csv_folder, inside
from relfrog.datasets.checks import check
from relfrog.datasets.files import database_in_files
from relfrog.datasets.late_columns import find_late_columns
from relfrog.errors import TaskError, UsageError
from small_store import change, copied

SQL = """SELECT t.timestamp, p.code, CAST(EXISTS (SELECT 1 FROM orders o WHERE o.person = p.code
AND o.ordered_at > t.timestamp AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}') AS INTEGER)
AS y FROM timestamps t CROSS JOIN people p"""
ABOUT = {"type": "binary", "entity": "people", "horizon": "20 days"}


@pytest.fixture
def folder(store: Path, tmp_path: Path) -> Path:
    made = copied(store, tmp_path)
    three = pd.Timedelta(3, "D")
    change(made, "orders", lambda f: f.assign(shipped_at=f["ordered_at"] + three))
    change(made, "orders", lambda f: f.assign(due_at=f["ordered_at"] + three))
    return made


def places(folder: Path) -> list[str]:
    full = database_in_files(relfrog.open_dataset(folder))
    return [column.place for column in find_late_columns(full)]


def test_a_new_task_hides_what_was_written_later_and_says_so(folder: Path) -> None:
    added = relfrog.add_task(folder, "new", SQL, **ABOUT)
    assert added.manifest.remove_columns == [["orders", "shipped_at"]]
    assert "orders.shipped_at" in added.notes[-1]
    assert "--show orders.shipped_at" in added.notes[-1]
    assert "orders.shipped_at" not in said_by_check(folder, "new")


def test_what_is_to_be_shown_is_shown_and_named_by_check(folder: Path) -> None:
    added = relfrog.add_task(folder, "new", SQL, show=("orders.shipped_at",), **ABOUT)
    assert added.manifest.remove_columns == []
    assert "orders.shipped_at lies after ordered_at in" in said_by_check(folder, "new")


def test_wrong_columns_are_refused(folder: Path) -> None:
    with pytest.raises(TaskError, match="shipped_at"):
        relfrog.add_task(folder, "new", SQL, show=("orders.shiped_at",), **ABOUT)
    both = {"show": ("orders.shipped_at",), "hide": ("orders.shipped_at",)}
    with pytest.raises(UsageError, match="both"):
        relfrog.add_task(folder, "new", SQL, **both, **ABOUT)


def test_the_model_does_not_see_it(folder: Path, tmp_path: Path) -> None:
    """Other dates of shipping change no prediction."""
    from small_store import QUICK

    relfrog.add_task(folder, "new", SQL, **ABOUT)
    run = relfrog.train(folder, "new", tmp_path / "run", model="sage", settings=QUICK)
    before = run.predict()
    change(folder, "orders", lambda f: f.assign(shipped_at=f["ordered_at"]))
    after = relfrog.load_run(tmp_path / "run").predict()
    pd.testing.assert_frame_equal(before, after)


def test_a_certificate_names_what_a_task_shows(folder: Path, tmp_path: Path) -> None:
    from small_store import QUICK

    for name, show, named in (("a", (), False), ("b", ("orders.shipped_at",), True)):
        relfrog.add_task(folder, name, SQL, show=show, **ABOUT)
        run = relfrog.train(folder, name, tmp_path / name, model="recent", settings=QUICK)
        certified = run.certify()
        certified.predict()
        told = certified.certificate.sentence
        assert ("orders.shipped_at, later than the rows that hold them" in told) == named


def said_by_check(folder: Path, task: str) -> str:
    return "\n".join(f"{f.place}: {f.text}" for f in check(folder, task).findings)


def hospital(folder: Path, clock: str = "") -> Path:
    """Patients who are always visible, with a day of death; stays that end after they begin."""
    days = pd.date_range("2020-01-01", periods=300)
    stays = "".join(
        f"{i},{i % 40},{day:%Y-%m-%d}{clock},{day + pd.Timedelta(days=4):%Y-%m-%d},{ended}\n"
        for i, day in enumerate(days)
        for ended in ["9999-12-31" if i > 150 else f"{day + pd.Timedelta(days=9):%Y-%m-%d}"]
    )
    died = [f"{days[6 * i]:%Y-%m-%d}" if i % 3 == 0 else "" for i in range(40)]
    source = csv_folder(
        folder / "source",
        patients="patient_id,born,died\n"
        + "".join(f"{i},{1940 + i}-03-04,{died[i]}\n" for i in range(40)),
        stays="stay_id,patient_id,admitted_at,discharged,closed_on\n" + stays,
    )
    relfrog.import_database(source, folder / "hospital")
    return folder / "hospital"


def test_days_of_death_in_a_table_that_is_always_visible(tmp_path: Path) -> None:
    made = hospital(tmp_path)
    assert places(made) == ["patients.died", "stays.discharged", "stays.closed_on"]
    found = find_late_columns(database_in_files(relfrog.open_dataset(made)))
    assert "always visible" in found[0].evidence
    # Years 9999 are no part of the median.
    assert "by 9 days at the median" in found[2].evidence
    assert any("tasks will hide them" in text for text in check(made).passed)


def test_a_date_on_the_day_of_the_row_is_not_later(tmp_path: Path) -> None:
    """The row's own date has no time of day: what happened on that day was not after it."""
    source = csv_folder(
        tmp_path / "source",
        calls="call_id,day,answered\n"
        + "".join(f"{i},{d:%Y-%m-%d},{d:%Y-%m-%d} 10:00:00\n" for i, d in
                  enumerate(pd.date_range("2020-01-01", periods=100))),
    )  # fmt: skip
    relfrog.import_database(source, tmp_path / "calls", time=["calls.day"])
    assert places(tmp_path / "calls") == []


def test_the_command_names_what_it_hides(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sql = folder.parent / "labels.sql"
    sql.write_text(SQL)
    given = ["--type", "binary", "--entity", "people", "--horizon", "20 days"]
    code, shown, _ = inside(capfd, "task", str(folder), "new", "--sql", str(sql), *given)
    assert code == 0
    assert "orders.shipped_at" in shown


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_of_all_units_and_at_the_ends_of_them_are_compared(folder: Path, unit: str) -> None:
    """A day at the end of what 64 bits can say is late, or not, and nothing overflows."""
    ends = [np.iinfo(np.int64).max, np.iinfo(np.int64).min + 1]
    for end, is_late in zip(ends, (True, False), strict=True):
        far = pd.Series(np.array([end], f"datetime64[{unit}]"))
        change(folder, "orders", lambda f, far=far: f.assign(odd_at=far.repeat(len(f)).to_numpy()))
        assert ("orders.odd_at" in places(folder)) == is_late
        assert "orders.shipped_at" in places(folder)
        assert check(folder).ok
