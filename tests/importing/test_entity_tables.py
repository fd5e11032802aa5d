"""Entity tables made from columns: --entity-from transactions.household_id=households."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import relfrog
from helpers import csv_folder, imported, inside, said, sqlite
from relfrog import add_task, import_database, open_dataset
from relfrog.datasets import source_keys
from relfrog.datasets.entities import key_frame
from relfrog.datasets.tasks import load_task
from relfrog.errors import RelFrogError
from relfrog.importing.database import plan_import

FLAGS = ["transactions.household_id=households", "demographics.household_id=households"]


def journey(tmp_path: Path, kind: str = "INTEGER") -> str:
    """Transactions of 40 households, of which 12 told who they are; one of these never buys."""
    name = "i * 7 % 40 * 3 + 5" if kind == "INTEGER" else "'H-' || (i * 7 % 40 * 3 + 5)"
    last = "-4" if kind == "INTEGER" else "'H-none'"
    return sqlite(
        tmp_path / "journey.db",
        f"CREATE TABLE transactions (basket INTEGER, household_id {kind}, amount REAL, at TIMESTAMP);"
        f"CREATE TABLE demographics (household_id {kind}, age TEXT, income INTEGER);"
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 799) "
        f"INSERT INTO transactions SELECT i, {name}, i % 13, datetime('2020-01-01', (i / 2) || ' days') FROM n;"
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 11) "
        f"INSERT INTO demographics SELECT {name}, 'a' || i % 3, i * 10 FROM n;"
        f"INSERT INTO demographics VALUES ({last}, 'a1', 3);"
        "UPDATE transactions SET household_id = NULL WHERE basket % 97 = 5",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["INTEGER", "TEXT"])
def test_a_table_of_all_values(kind: str, tmp_path: Path) -> None:
    address = journey(tmp_path, kind)
    plan = plan_import(address)
    text = "\n".join(n.text for n in plan.notices if n.kind == "suggestion")
    assert all(f"--entity-from {flag}" in text for flag in FLAGS)

    result, tables = imported(address, tmp_path / "ds", entity_from=FLAGS, val="2020-08-01", test="2020-11-01")  # fmt: skip
    keys = source_keys(tmp_path / "ds", "households")
    assert keys is not None
    values = keys["household_id"].tolist()
    assert len(values) == len(set(values)) == 41
    assert values == sorted(values)
    for name in ("transactions", "demographics"):
        mapped = result.mapping.tables[name].used_keys()
        assert [(k.columns, k.parent, k.origin) for k in mapped] == [(("household_id",), "households", "chosen")]  # fmt: skip
    assert tables["transactions"]["household_id"].isna().sum() == 9
    assert "made of the 41 distinct values of transactions.household_id, demographics.household_id" in said(result, "note")  # fmt: skip
    assert "--entity-from" not in said(result, "suggestion")

    # The mapping file has it, and brings it back; flags may refer to it, too.
    stored = yaml.safe_load((tmp_path / "ds" / "mapping.yaml").read_text())
    assert stored["tables"]["households"]["made_from"] == [["transactions", "household_id"], ["demographics", "household_id"]]  # fmt: skip
    _, again = imported(address, tmp_path / "again", mapping=tmp_path / "ds" / "mapping.yaml")
    assert set(again) == set(tables)
    for name, frame in tables.items():
        pd.testing.assert_frame_equal(again[name], frame)
    assert relfrog.check(tmp_path / "ds").ok

    # And it works like any other table: labels in the source's keys, training, prediction.
    asked = "5" if kind == "INTEGER" else "'H-5'"
    sql = f"""
    SELECT t.timestamp, h.household_id, count(x.basket) AS baskets FROM timestamps t
    CROSS JOIN households h LEFT JOIN transactions x ON x.household_id = h.household_id
        AND x.at > t.timestamp AND x.at <= t.timestamp + INTERVAL '{{timedelta}}'
    WHERE h.household_id <> {asked} GROUP BY ALL
    """
    options: dict[str, Any] = {"type": "regression", "entity": "households", "horizon": "25 days"}
    add_task(tmp_path / "ds", "baskets", sql, **options)
    frame = load_task(open_dataset(tmp_path / "ds"), "baskets").get_table("val").df
    rows = key_frame(
        tmp_path / "ds", "households", "household_id", frame["household_id"].to_numpy()
    )
    assert set(rows["household_id"]) == set(values) - {5, "H-5"}
    run = relfrog.train(tmp_path / "ds", "baskets", tmp_path / "run", model="lightgbm", baselines=False)  # fmt: skip
    assert set(run.predict(everyone=True)["household_id"]) == set(values)
    assert set(run.predict()["household_id"]) == set(values) - {5, "H-5"}  # whom the task asks


def test_columns_of_other_types_meet_as_text(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "s.db",
        "CREATE TABLE a (n INTEGER, who_id INTEGER); CREATE TABLE b (n INTEGER, who_id TEXT);"
        "INSERT INTO a VALUES (1, 7), (2, 8), (3, 7);"
        "INSERT INTO b VALUES (1, '8'), (2, 'x9'), (3, 'x9');",
    )
    _, tables = imported(address, tmp_path / "ds", entity_from=["a.who_id=who", "b.who_id=who"])
    keys = source_keys(tmp_path / "ds", "who")
    assert keys is not None
    assert keys["who_id"].tolist() == ["7", "8", "x9"]
    assert tables["a"]["who_id"].tolist() == [0, 1, 0]
    assert tables["b"]["who_id"].tolist() == [1, 2, 2]


def test_csv_values_that_mean_nothing_are_no_entities(tmp_path: Path) -> None:
    folder = csv_folder(
        tmp_path / "csv",
        visits="visit,person_id,day\n1,3,2020-01-01\n2,NA,2020-01-02\n3,,2020-01-03\n4,4.0,2020-02-01\n"
        "5,3.0,2020-03-01\n",
    )
    result, tables = imported(folder, tmp_path / "ds", entity_from=["visits.person_id=people"])
    assert result.mapping.tables["people"].rows == 2
    keys = source_keys(tmp_path / "ds", "people")
    assert keys is not None
    assert keys["person_id"].tolist() == [3, 4]
    assert tables["visits"]["person_id"].fillna(-1).tolist() == [0, -1, -1, 1, 0]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("transaction.household_id=households", "did you mean 'transactions'"),
        ("transactions.house_id=households", "no column in table transactions 'house_id'|did you mean"),
        ("transactions.household_id=Demographics", "has a table demographics already"),
        ("transactions.household_id", "write it as --entity-from"),
        ("transactions.household_id=", "write it as --entity-from"),
        ("transactions=households", "name the column"),
        ("transactions.household_id=a/b", "cannot be a table's name"),
        ("transactions.household_id=timestamps", "cannot be a table's name"),
        ("empty.x_id=things", "holds no value|holds no keys"),
    ],
)  # fmt: skip
def test_wrong_flags_are_refused(flag: str, words: str, tmp_path: Path) -> None:
    address = journey(tmp_path)
    sqlite(tmp_path / "journey.db", "CREATE TABLE empty (x_id INTEGER, n INTEGER);")
    with pytest.raises(RelFrogError, match=words):
        import_database(address, tmp_path / "ds", entity_from=[flag])
    assert not (tmp_path / "ds").exists()


def test_nothing_is_suggested_where_tables_refer_to_each_other(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "s.db",
        "CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name TEXT);"
        "CREATE TABLE orders (order_id INTEGER PRIMARY KEY, customer_id INTEGER);"
        "CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, customer_id INTEGER, zip_code TEXT);"
        "CREATE TABLE shops (shop_id INTEGER PRIMARY KEY, zip_code TEXT);"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30) "
        "INSERT INTO customers SELECT i, 'c' || i FROM n;"
        "INSERT INTO orders SELECT customer_id, customer_id % 7 + 1 FROM customers;"
        "INSERT INTO visits SELECT customer_id, customer_id % 9 + 1, 'z' || customer_id % 4 FROM customers;"
        "INSERT INTO shops SELECT customer_id, 'z' || customer_id % 4 FROM customers;",
    )  # fmt: skip
    notices = plan_import(address).notices
    assert not [n for n in notices if "--entity-from" in n.text]


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    address = journey(tmp_path)
    flags = [part for flag in FLAGS for part in ("--entity-from", flag)]
    code, out, _ = inside(capfd, "import", address, str(tmp_path / "ds"), *flags)
    assert code == 0
    assert "households" in out
    code, _, err = inside(capfd, "import", address, str(tmp_path / "no"), "--entity-from", "x.y=z")
    assert code in (1, 2)
    assert "Traceback" not in err


def test_a_column_that_names_the_same_things_again_and_again(tmp_path: Path) -> None:
    """Visits have visitors, though there is no table of them, and only one that names them."""
    source = csv_folder(
        tmp_path / "shop",
        events="visitorid,itemid,at,paid\n"
        + "".join(f"{500 + i % 40},{900 + i % 30},2020-01-{1 + i % 28:02d},{i % 11}\n" for i in range(400)),
        item_properties="itemid,colour,at\n"
        + "".join(f"{900 + i % 30},c{i % 3},2020-01-{1 + i % 28:02d}\n" for i in range(90)),
    )  # fmt: skip
    told = [n.text for n in plan_import(source).notices if n.kind == "suggestion"]
    assert any("--entity-from events.visitorid=visitors" in text for text in told)
    assert any(
        "--entity-from events.itemid=items --entity-from item_properties.itemid=items" in text
        for text in told
    )
    assert len(told) == 2
    made = ["events.visitorid=visitors", "events.itemid=items", "item_properties.itemid=items"]
    result = import_database(source, tmp_path / "made", entity_from=made)
    assert {"visitors", "items"} <= {t.name for t in result.tables}
