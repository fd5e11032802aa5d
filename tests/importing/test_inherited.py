"""Tables without a time of their own inherit it; the user may decide otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import relfrog
from helpers import csv_folder, imported, inside, said, sqlite
from oracles.header_detail import known_from, make_trade, write_trade
from relfrog import import_database
from relfrog.datasets.known_from import find_known_from
from relfrog.errors import SchemaError
from relfrog.importing import plan_import
from relfrog.support.times import MISSING

ORDERS = (
    "CREATE TABLE clerks (id INTEGER PRIMARY KEY, hired_at TIMESTAMP);"
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, created_at TIMESTAMP);"
    "CREATE TABLE lines (id INTEGER PRIMARY KEY, order_id INTEGER REFERENCES orders (id), "
    "clerk INTEGER REFERENCES clerks (id), packed_by INTEGER REFERENCES clerks (id), n INTEGER);"
    "INSERT INTO clerks VALUES (1, '2020-01-01'), (2, '2020-09-01');"
    "INSERT INTO orders VALUES (1, '2020-05-01'), (2, '2020-06-01'), (3, '2020-08-01');"
    "INSERT INTO lines VALUES (1, 3, 1, 1, 5), (2, 1, 1, 2, 6), (3, 2, 2, 1, 7), (4, NULL, NULL, NULL, 8);"
)  # fmt: skip


@pytest.fixture
def orders(tmp_path: Path) -> str:
    return sqlite(tmp_path / "a.db", ORDERS)


def days(frame: pd.DataFrame, column: str = "known_from") -> dict[int, str]:
    """Per line, from when on it is known."""
    return dict(zip(frame["n"], frame[column].dt.strftime("%m-%d"), strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_known_from_the_latest_it_names(seed: int, tmp_path: Path) -> None:
    rows = make_trade(seed)
    _, tables = imported(write_trade(tmp_path / "a.db", rows), tmp_path / "out")
    slow = known_from(rows)
    times = [t for some in slow.values() for t in some if t != MISSING]
    for name, mark in (("orders", "channel"), ("lines", "quantity"), ("parts", "weight")):
        frame = tables[name]
        expected = sorted(min(times) if t == MISSING else t for t in slow[name])
        found = frame["known_from"].to_numpy().astype("datetime64[us]").view(np.int64)
        assert found.tolist() == expected  # in order of time
        keys = relfrog.datasets.source_keys(tmp_path / "out", name)["id"]
        own = {row[0]: row for row in rows[name]}
        known = dict(zip([row[0] for row in rows[name]], slow[name], strict=True))
        position = {"channel": 3, "quantity": 3, "weight": 3}[mark]
        for key, time, value in zip(keys, found, frame[mark], strict=True):
            assert time == (min(times) if known[key] == MISSING else known[key])
            assert value == own[key][position]
    assert "known_from" not in tables["products"]
    assert "known_from" not in tables["visits"]  # all of them have a time
    # Once more, from the files alone: nothing is left to inherit.
    db = relfrog.open_dataset(tmp_path / "out").get_db(upto_test_timestamp=False)
    assert not find_known_from(db).columns
    assert db.table_dict["orders"].time_col == "known_from"
    assert "placed_at" in db.table_dict["orders"].df  # an ordinary column now


def test_it_says_which_tables_inherit_and_from_where(
    orders: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    code, text, err = inside(capfd, "import", orders, str(out))
    assert code == 0, err
    assert "  lines: from orders (order_id), clerks (clerk), clerks (packed_by)\n" in text
    assert "1 of 4 rows have no time and name no row with one" in " ".join(text.split())
    code, text, _ = inside(capfd, "inspect", str(out))
    assert "known_from (of orders, clerks)" in text
    code, text, _ = inside(capfd, "inspect", str(out), "--json")
    (lines,) = [t for t in json.loads(text)["tables"] if t["name"] == "lines"]
    assert lines["time_column"] == "known_from"
    assert {"column": "order_id", "parent": "orders"} in lines["time_inherited_from"]
    assert inside(capfd, "inspect", str(out), "--svg", str(tmp_path / "a.svg"))[0] == 0
    drawn = (tmp_path / "a.svg").read_text()
    assert "inherited from clerks, orders" in drawn
    assert "inherited time" in drawn
    mapping = yaml.safe_load((out / "mapping.yaml").read_text())
    assert mapping["tables"]["lines"]["time"] == {
        "column": None, "inherited_from": ["clerk", "orders", "packed_by"], "origin": "proposed",
        "reason": "known from the latest of the rows that a row names",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("lines=orders", {5: "08-01", 6: "05-01", 7: "06-01", 8: "01-01"}),
        ("lines.orders", {5: "08-01", 6: "05-01", 7: "06-01", 8: "01-01"}),
        ("lines=clerks", {5: "01-01", 6: "09-01", 7: "09-01", 8: "01-01"}),
        ("lines=clerk", {5: "01-01", 6: "01-01", 7: "09-01", 8: "01-01"}),
        ("lines.packed_by", {5: "01-01", 6: "09-01", 7: "01-01", 8: "01-01"}),
        ("lines=orders,clerk", {5: "08-01", 6: "05-01", 7: "09-01", 8: "01-01"}),
    ],
)
def test_the_user_chooses_what_to_inherit(
    flag: str, expected: dict[int, str], orders: str, tmp_path: Path
) -> None:
    _, tables = imported(orders, tmp_path / "one", time=[flag])
    assert days(tables["lines"]) == expected
    mapping = tmp_path / "one" / "mapping.yaml"
    assert yaml.safe_load(mapping.read_text())["tables"]["lines"]["time"]["origin"] == "chosen"
    _, again = imported(orders, tmp_path / "two", mapping=mapping)
    pd.testing.assert_frame_equal(again["lines"], tables["lines"])
    assert (
        yaml.safe_load((tmp_path / "two" / "mapping.yaml").read_text())["tables"]
        == (yaml.safe_load(mapping.read_text())["tables"])
    )


@pytest.mark.parametrize("flag", ["lines=none", "lines.none"])
def test_rows_may_stay_always_visible(flag: str, orders: str, tmp_path: Path) -> None:
    result, tables = imported(orders, tmp_path / "one", time=[flag])
    assert "known_from" not in tables["lines"]
    assert "by choice, though it refers to clerks, orders" in said(result, "leak", "lines")
    report = relfrog.check(tmp_path / "one")
    assert any("always visible" in f.text and f.place == "lines" for f in report.findings)
    mapping = tmp_path / "one" / "mapping.yaml"
    _, again = imported(orders, tmp_path / "two", mapping=mapping)
    assert "known_from" not in again["lines"]


def test_a_column_wins_over_a_table_of_its_name(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE placed (id INTEGER PRIMARY KEY, created_at TIMESTAMP);"
        "CREATE TABLE lines (n INTEGER, head INTEGER REFERENCES placed (id), placed TIMESTAMP);"
        "INSERT INTO placed VALUES (1, '2020-05-01'), (2, '2020-06-01');"
        "INSERT INTO lines VALUES (1, 1, '2020-02-02'), (2, 2, NULL);",
    )
    _, tables = imported(address, tmp_path / "one", time=["lines=placed"])
    assert days(tables["lines"]) == {1: "02-02", 2: "06-01"}  # its own, or else that of its head
    _, tables = imported(address, tmp_path / "two", time=["lines=head"])
    assert days(tables["lines"]) == {1: "05-01", 2: "06-01"}
    mapping = yaml.safe_load((tmp_path / "two" / "mapping.yaml").read_text())
    assert mapping["tables"]["lines"]["time"]["inherited_from"] == ["head"]


def test_wrong_choices_are_named(orders: str, tmp_path: Path) -> None:
    for flag, words in [
        ("lines=lines", "cannot inherit times from 'lines'.*It refers to clerks, orders"),
        ("orders=clerks", "It refers to no table.*--fk orders.COLUMN=clerks"),
        ("lines=order", "did you mean 'orders'"),
        ("line=orders", "there is no table"),
    ]:
        with pytest.raises(SchemaError, match=words):
            import_database(orders, tmp_path / "out", time=[flag])
    with pytest.raises(SchemaError, match=r"no row that it names there has a time.*orders\.COLUMN"):
        import_database(orders, tmp_path / "out", time=["lines=orders", "orders=none"])


def test_a_free_name_is_found(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE o (id INTEGER PRIMARY KEY, created_at TIMESTAMP);"
        "CREATE TABLE l (n INTEGER, o INTEGER REFERENCES o (id), Known_From TEXT);"
        "INSERT INTO o VALUES (1, '2020-05-01'), (2, '2020-06-01');"
        "INSERT INTO l VALUES (1, 1, 'here'), (2, 2, 'there');",
    )
    result, tables = imported(address, tmp_path / "out")
    assert days(tables["l"], "known_from_2") == {1: "05-01", 2: "06-01"}
    (written,) = [t for t in result.tables if t.name == "l"]
    assert written.time_col == "known_from_2"


def test_what_the_rows_contradict_is_not_inherited(tmp_path: Path) -> None:
    """A customer's last order says nothing about when the customer came."""
    orders = [(i, i % 5, f"2020-{1 + i // 5:02d}-{1 + i % 5:02d}") for i in range(50)]
    text = "\n".join(f"{a},{b},{c}" for a, b, c in orders)
    customers = "\n".join(f"{i},c{i},{45 + i}" for i in range(5))
    address = csv_folder(
        tmp_path / "csv", orders="id,customer_id,created_at\n" + text,
        customers="id,name,last_order_id\n" + customers,
    )  # fmt: skip
    options = {
        "fk": ["customers.last_order_id=orders.id", "orders.customer_id=customers.id"],
        "pk": ["orders.id", "customers.id"],
    }
    result, tables = imported(address, tmp_path / "one", **options)
    assert "known_from" not in tables["customers"]
    note = said(result, "note", "customers.last_order_id")
    assert "45 of 45 rows that refer to customers are older than the orders row it names" in note
    assert "2020-01-01 00:00:00, before 2020-10-01" in note
    # Who insists gets it.
    flag = "customers=last_order_id"
    assert f"--time {flag}" in note
    _, tables = imported(address, tmp_path / "two", time=[flag], **options)
    assert tables["customers"]["known_from"].min() == pd.Timestamp("2020-10-01")


def test_mapping_files_from_before_inherit_too(orders: str, tmp_path: Path) -> None:
    """They say `column: null`, which meant that there was none."""
    mapping = yaml.safe_load(plan_import(orders).mapping.to_yaml())
    for table in mapping["tables"].values():
        del table["time"]["inherited_from"]
    mapping["tables"]["lines"]["time"]["origin"] = "none"
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(mapping))
    _, tables = imported(orders, tmp_path / "one", mapping=tmp_path / "m.yaml")
    assert days(tables["lines"])[5] == "08-01"
    mapping["tables"]["lines"]["time"] = None  # in so many words
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(mapping))
    _, tables = imported(orders, tmp_path / "two", mapping=tmp_path / "m.yaml")
    assert "known_from" not in tables["lines"]


def test_of_repeated_keys_the_first_row_counts(tmp_path: Path) -> None:
    address = csv_folder(
        tmp_path / "csv",
        orders="id,created_at\n1,2020-05-01\n2,2020-06-01\n1,2020-09-01\n",
        lines="n,order_id\n1,1\n2,2\n",
    )
    _, tables = imported(
        address, tmp_path / "out", pk=["orders.id"], fk=["lines.order_id=orders.id"],
        on_duplicate="first",
    )  # fmt: skip
    assert days(tables["lines"]) == {1: "05-01", 2: "06-01"}


def test_an_emptied_table_keeps_its_column(orders: str, tmp_path: Path) -> None:
    """A run that learned from the column can still be asked."""
    import_database(orders, tmp_path / "one")
    empty = sqlite(tmp_path / "b.db", ORDERS, "DELETE FROM lines")
    _, tables = imported(empty, tmp_path / "two", mapping=tmp_path / "one" / "mapping.yaml")
    assert "known_from" in tables["lines"]
    assert relfrog.check(tmp_path / "two").ok
