"""Tasks of a dataset that is imported again: kept, with labels of the rows of now."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import relbench

from helpers import inside
from relfrog import add_task, check, import_database
from relfrog.datasets.renewed_tasks import renew_tasks
from young_shop import BUYS, TASK, young_shop


@pytest.mark.slow
def test_tasks_are_kept_where_they_still_work(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = young_shop(tmp_path)
    add_task(folder, "plain", BUYS, **TASK)
    add_task(folder, "chosen", BUYS, **TASK, val="2021-03-01", test="2021-07-01")
    add_task(
        folder,
        "long",
        BUYS.replace("count(o.order_id) > 0", "coalesce(sum(o.amount), 0) > 24"),
        **{**TASK, "horizon": "120 days"},
    )
    add_task(folder, "town", BUYS.replace("GROUP", "WHERE p.town <> 'x' GROUP"), **TASK)
    orders = tmp_path / "csv" / "orders.csv"
    orders.write_text(orders.read_text() + "90000,3,2022-01-20,5\n")
    people = tmp_path / "csv" / "people.csv"
    people.write_text(people.read_text().replace("town", "city"))
    address = str(tmp_path / "csv")
    code, out, _ = inside(capfd, "import", address, str(folder), "--overwrite")
    assert code == 0
    assert "Tasks kept, with new labels: chosen, long, plain" in out
    assert "Task town no longer works: label SQL failed" in " ".join(out.split())
    dataset = relbench.load_dataset(folder)
    for name in ("chosen", "long"):  # RelBench finds the labels of splits that are not its own
        assert len(dataset.load_task(name).get_table("test").df) == 40
    times = pd.read_parquet(folder / "tasks" / "chosen" / "test.parquet")["timestamp"]
    assert (times == pd.Timestamp("2021-07-01")).all()
    assert all(check(folder, name).ok for name in ("chosen", "long", "plain"))


@pytest.mark.slow
def test_what_works_is_left_as_it_was(tmp_path: Path) -> None:
    folder = young_shop(tmp_path)
    add_task(folder, "plain", BUYS, **TASK)
    before = {p.name: p.read_bytes() for p in (folder / "tasks" / "plain").iterdir()}
    import_database(str(tmp_path / "csv"), folder, overwrite=True)
    assert renew_tasks(folder) == {"plain": ""}
    assert {p.name: p.read_bytes() for p in (folder / "tasks" / "plain").iterdir()} == before
