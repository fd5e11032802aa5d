"""Time columns that the rows speak against are not proposed."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import csv_folder
from relfrog.importing import plan_import

START = dt.datetime(2020, 1, 1, 9, 30)


def rental_shop(folder: Path, created: list[dt.datetime], changed: dict[str, str]) -> str:
    """Customers with the time of their creation, and what they paid, day after day.

    Args:
        folder: Where to write it.
        created: Of each customer.
        changed: ``stored`` of each table, the same in all rows.
    """
    pays = [START + dt.timedelta(days=i, seconds=7 * i) for i in range(300)]
    return csv_folder(
        folder,
        stores="store_id,town,stored\n"
        + "".join(f"{i},t{i},{changed['stores']}\n" for i in range(2)),
        customers="customer_id,store_id,name,create_date,stored\n"
        + "".join(
            f"{i},{i % 2},n{i},{time},{changed['customers']}\n" for i, time in enumerate(created)
        ),
        payments="payment_id,customer_id,amount,paid_at,stored\n"
        + "".join(
            f"{i},{i % len(created)},{i % 9},{time},{changed['payments']}\n"
            for i, time in enumerate(pays)
        ),
    )


CHANGED = dict.fromkeys(("stores", "customers", "payments"), "2021-05-06 04:34:33")


def times_of(address: str, **options: object) -> dict[str, str | None]:
    tables = plan_import(address, **options).mapping.tables
    return {name: table.time for name, table in tables.items()}


def test_a_time_later_than_the_rows_that_refer_to_it_is_withdrawn(tmp_path: Path) -> None:
    late = [START + dt.timedelta(days=700, minutes=i) for i in range(30)]
    address = rental_shop(tmp_path / "csv", late, CHANGED)
    plan = plan_import(address)
    customers = plan.mapping.tables["customers"]
    assert customers.time is None
    evidence = "create_date is later than 300 of 300 rows of payments that refer to it"
    assert evidence in customers.time_reason
    assert any(evidence in n.text and n.table == "customers" for n in plan.notices)
    # Who knows better says so, and is believed.
    assert times_of(address, time=["customers.create_date"])["customers"] == "create_date"


def test_load_times_are_never_proposed(tmp_path: Path) -> None:
    early = [START - dt.timedelta(days=i) for i in range(30)]
    address = rental_shop(tmp_path / "csv", early, CHANGED)
    assert times_of(address) == {
        "stores": None, "customers": "create_date", "payments": "paid_at"
    }  # fmt: skip
    reason = plan_import(address).mapping.tables["stores"].time_reason
    assert "stored is 2021-05-06 04:34:33 in 2 of 2 rows" in reason


def test_a_few_loads_are_no_time_either_but_days_of_events_are(tmp_path: Path) -> None:
    """Three nights of loading, to the second; three days of voting are events."""
    nights = ["2021-05-06 04:34:33", "2021-06-06 03:12:09", "2021-07-06 05:01:55"]
    voting = ["2021-05-06", "2021-06-06", "2021-07-06"]
    address = csv_folder(
        tmp_path / "csv",
        items="item_id,imported_at\n" + "".join(f"{i},{nights[i % 3]}\n" for i in range(300)),
        votes="vote_id,item_id,voted_on\n"
        + "".join(f"{i},{i},{voting[i % 3]}\n" for i in range(300)),
        reads="read_id,item_id,at\n"
        + "".join(f"{i},{i},{START + dt.timedelta(days=600, hours=i)}\n" for i in range(300)),
    )
    assert times_of(address) == {"items": None, "votes": "voted_on", "reads": "at"}


@pytest.mark.slow
@given(st.lists(st.integers(-400, 400), min_size=20, max_size=40))
@settings(max_examples=25)
def test_the_verdict_is_that_of_most_pairs(days: list[int]) -> None:
    """A slow count over all pairs of rows decides alike."""
    created = [START + dt.timedelta(days=150 + d, seconds=3 * i) for i, d in enumerate(days)]
    pays = [START + dt.timedelta(days=i, seconds=7 * i) for i in range(300)]
    older = sum(
        time < created[i % len(created)] - dt.timedelta(days=1) for i, time in enumerate(pays)
    )
    with TemporaryDirectory() as folder:
        address = rental_shop(Path(folder) / "csv", created, CHANGED)
        found = times_of(address)["customers"]
    assert found == (None if 3 * older > 2 * len(pays) else "create_date")


@pytest.mark.parametrize("share", [0.4, 0.99])
def test_a_migration_of_some_rows_is_no_load_time(share: float, tmp_path: Path) -> None:
    moved = int(share * 300)
    address = csv_folder(
        tmp_path / "csv",
        orders="order_id,created_at\n"
        + "".join(
            f"{i},{START if i < moved else START + dt.timedelta(hours=5 * i)}\n" for i in range(300)
        ),
    )
    assert times_of(address)["orders"] == ("created_at" if share < 0.5 else None)
