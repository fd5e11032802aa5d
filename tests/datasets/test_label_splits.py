"""Splits of labels that exist already: a law, files and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import relbench
from hypothesis import given
from hypothesis import strategies as st

from helpers import csv_folder
from relfrog import add_task, check, import_database, open_dataset
from relfrog.datasets.label_splits import place_labels
from relfrog.datasets.tasks import load_task
from relfrog.errors import TaskError, UsageError

SPLITS = ("train", "val", "test")
FILE: dict[str, Any] = {"type": "binary", "entity": "people", "horizon": "10 days"}


@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.integers(1, 90))
def test_every_part_has_labels_whose_windows_are_over(days: list[int], horizon: int) -> None:
    times = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D"))
    step = pd.Timedelta(days=horizon)
    placed = place_labels(times, step)
    if placed is None:
        # No split has a tenth of the labels behind it, and some before whose windows are over.
        assert not any(
            (times >= test).sum() >= len(days) / 10
            and ((times >= val) & (times + step <= test)).sum() >= len(days) / 10
            and (times + step <= val).any()
            for test in set(times)
            for val in set(times)
        )
        return
    val, test = placed
    parts = [times + step <= val, (times >= val) & (times + step <= test), times >= test]
    assert parts[0].any()
    assert min(parts[1].sum(), parts[2].sum()) >= len(days) / 10


@pytest.fixture(scope="module")
def club(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Visits over two years; dues of the first half year only."""
    folder = tmp_path_factory.mktemp("club")
    days = pd.date_range("2020-01-01", "2021-12-31", freq="D").strftime("%Y-%m-%d")
    address = csv_folder(
        folder / "csv",
        people="person_id,town\n" + "".join(f"{i},{'abc'[i % 3]}\n" for i in range(1, 41)),
        visits="visit_id,person_id,visited_at,dues\n"
        + "".join(
            f"{i},{i * 7 % 40 + 1},{day},{i % 5 if i < 180 else ''}\n" for i, day in enumerate(days)
        ),
    )
    import_database(address, folder / "ds")
    return folder / "ds"


def old_labels(times: int = 6) -> pd.DataFrame:
    dates = pd.date_range("2020-02-01", periods=times, freq="20D")
    rows = [(i, t, i * n % 3 > 0) for n, t in enumerate(dates) for i in range(1, 41)]
    return pd.DataFrame(rows, columns=["person_id", "timestamp", "pays"])


def test_labels_of_a_file_get_splits_where_they_lie(club: Path) -> None:
    added = add_task(club, "pays", labels=old_labels(), **FILE)
    assert [added.stats[s].rows for s in SPLITS] == [160, 40, 40]
    assert "It has splits of its own, where the labels lie" in added.notes[0]
    assert load_task(open_dataset(club), "pays").dataset.val_timestamp == pd.Timestamp("2020-04-21")
    assert check(club, "pays").ok
    # The labels of a split are those of the file, also when they are matched anew.
    for split in SPLITS:
        (added.folder / f"{split}.parquet").unlink()
    frame = load_task(open_dataset(club), "pays").get_table("val", mask_input_cols=False).df
    assert set(frame["timestamp"]) == {pd.Timestamp("2020-04-21")}


def test_splits_of_a_file_can_be_chosen(club: Path) -> None:
    chosen = {"val": "2020-03-12", "test": "2020-04-21"}
    added = add_task(club, "chosen", labels=old_labels(), **FILE, **chosen)
    assert [added.stats[s].seed_times for s in SPLITS] == [2, 2, 2]
    assert added.manifest.split_reason == "chosen"
    with pytest.raises(TaskError, match=r"no label is in the val split.*Choose other splits"):
        add_task(club, "never", labels=old_labels(), **FILE, val="2030-01-01", test="2031-01-01")
    with pytest.raises(TaskError, match=r"a shorter --horizon, or bring labels of more times\.$"):
        add_task(club, "once", labels=old_labels(1), **FILE)
    with pytest.raises(UsageError, match="--labels takes no --eval-times"):
        add_task(club, "times", labels=old_labels(), **FILE, eval_times=3)


def test_a_column_of_old_rows_gets_splits_where_they_lie(club: Path) -> None:
    added = add_task(club, "dues", autocomplete="visits.dues")
    assert [added.stats[s].rows for s in SPLITS] == [144, 18, 18]
    assert "where rows with a dues lie" in added.notes[0]
    assert check(club, "dues").ok
    task = load_task(open_dataset(club), "dues")
    assert task.completes
    assert ("visits", "dues") in task.hidden_columns()
    theirs = relbench.load_dataset(club).load_task("dues")
    assert len(theirs.get_table("val").df) == 18


def test_splits_of_a_column_can_be_chosen(club: Path) -> None:
    added = add_task(club, "early", autocomplete="visits.dues", val="2020-02-01", test="2020-03-01")
    assert [added.stats[s].rows for s in SPLITS] == [32, 29, 119]
    with pytest.raises(UsageError, match=r"people has no times.*leave out --val and --test"):
        add_task(club, "town", autocomplete="people.town", val="2020-02-01")
    few = add_task(club, "town", autocomplete="people.town")
    assert any("more rows with a value are needed" in w for w in few.warnings)


def test_coarse_scores_are_told_with_what_would_help(club: Path) -> None:
    sql = """SELECT t.timestamp, p.person_id, CAST(count(v.visit_id) > 0 AS INTEGER) AS visits
    FROM timestamps t CROSS JOIN people p LEFT JOIN visits v ON v.person_id = p.person_id
    AND v.visited_at > t.timestamp AND v.visited_at <= t.timestamp + INTERVAL '{timedelta}'
    GROUP BY ALL"""
    added = add_task(club, "visits", sql, **FILE)
    (note,) = [n for n in added.notes if "coarse" in n]
    assert "only 10 positive labels" in note
    assert "There is room for --eval-times 7, which gives 7 times as many" in note
    more = add_task(club, "visits", sql, **FILE, eval_times=7, overwrite=True)
    assert more.stats["val"].rows == 7 * added.stats["val"].rows
    assert not any("coarse" in n for n in more.notes)
