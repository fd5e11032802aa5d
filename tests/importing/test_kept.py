"""What a user chose survives the next import of the same dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import csv_folder, said, sqlite
from relfrog import import_database
from relfrog.errors import RelFrogError
from relfrog.importing import plan_import
from relfrog.importing.kept import read_kept
from relfrog.importing.selection import Selection


def shop(folder: Path, **changed: str) -> str:
    """A shop where several things can be seen otherwise."""
    days = [f"2021-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(120)]
    tables = {
        "people": "person_id,code,joined,seen\n"
        + "".join(f"{i},c{i},2020-01-{1 + i % 28:02d},2020-02-01\n" for i in range(20)),
        "things": "thing_id,twin,weight\n"
        + "".join(f"{i},{(i + 1) % 10},{i % 3}\n" for i in range(10)),
        "orders": "order_id,person_id,thing_id,ordered_at,paid_at,flag\n"
        + "".join(
            f"{i},{i % 20},{i % 10},{day},{day[:8]}28,{i % 2}\n" for i, day in enumerate(days)
        ),
        "logs": "log_id,at\n" + "".join(f"{i},{day}\n" for i, day in enumerate(days)),
    }
    return csv_folder(folder, **(tables | changed))


CHOSEN: dict[str, Any] = {
    "time": ["orders.paid_at", "people.none"],
    "pk": ["people.code"],
    "fk": [
        "things.twin=things.thing_id",
        "orders.thing_id=none",
        "orders.person_id=people.person_id",
    ],
    "val": "2021-08-01",
    "test": "2021-10-01",
    "exclude": ["log*"],
}


def decided(folder: Path) -> dict[str, Any]:
    """All that a mapping says, but for who says it."""
    mapping = yaml.safe_load((folder / "mapping.yaml").read_text())
    return {
        "splits": (mapping["val"], mapping["test"]),
        "tables": {
            name: (
                table["primary_key"]["columns"], table["time"]["column"], table["columns"],
                sorted((k["columns"], k["parent"]) for k in table["foreign_keys"] if k["use"]),
            )
            for name, table in mapping["tables"].items()
        },
    }  # fmt: skip


@pytest.mark.slow
def test_corrections_are_kept_night_after_night(tmp_path: Path) -> None:
    address = shop(tmp_path / "csv")
    plan = plan_import(address, **CHOSEN).mapping
    text = plan.to_yaml().replace("flag: integer", "flag: boolean")
    (tmp_path / "m.yaml").write_text(text)
    import_database(address, tmp_path / "out", mapping=tmp_path / "m.yaml")
    first = decided(tmp_path / "out")
    assert first["tables"]["orders"][1] == "paid_at"
    for _ in range(2):
        result = import_database(address, tmp_path / "out", overwrite=True)
        assert decided(tmp_path / "out") == first
        told = said(result, "note")
        for words in (
            "time orders.paid_at", "time people.none", "primary key people.code",
            "twin -> things.thing_id", "no foreign key orders.thing_id", "2021-08-01 and 2021-10-01",
            "type boolean of orders.flag", "--exclude logs", "--forget",
        ):  # fmt: skip
            assert words in told
    dry = plan_import(address, keep=tmp_path / "out").mapping
    assert (dry.val, dry.tables["orders"].time) == ("2021-08-01", "paid_at")
    result = import_database(address, tmp_path / "out", overwrite=True, forget=True)
    fresh = import_database(address, tmp_path / "fresh")
    assert decided(tmp_path / "out") == decided(tmp_path / "fresh")
    assert "logs" in result.mapping.tables
    assert "kept from" not in said(fresh, "note") + said(result, "note")


def test_flags_and_mapping_files_have_the_last_word(tmp_path: Path) -> None:
    address = shop(tmp_path / "csv")
    import_database(address, tmp_path / "out", **CHOSEN)
    given = {"time": ["orders.ordered_at"], "fk": ["things.twin=none"], "val": "2021-07-01"}
    import_database(address, tmp_path / "out", overwrite=True, test="2021-09-01", **given)
    found = decided(tmp_path / "out")
    assert found["splits"] == ("2021-07-01", "2021-09-01")
    assert found["tables"]["orders"][1] == "ordered_at"
    assert found["tables"]["things"][3] == []
    assert found["tables"]["people"][0] == ["code"]
    # The last choice is what counts from now on, though it is what would be proposed.
    import_database(address, tmp_path / "out", overwrite=True)
    assert decided(tmp_path / "out") == found
    (tmp_path / "m.yaml").write_text(plan_import(address).mapping.to_yaml())
    result = import_database(address, tmp_path / "out", overwrite=True, mapping=tmp_path / "m.yaml")
    assert "kept from" not in said(result, "note")
    assert "logs" in result.mapping.tables


def test_what_no_longer_fits_is_told_and_dropped(tmp_path: Path) -> None:
    address = shop(tmp_path / "csv")
    import_database(address, tmp_path / "out", **CHOSEN)
    shop(
        tmp_path / "csv", people="person_id,joined\n" + "".join(f"{i},2020-01-05\n" for i in range(20)),
        things="thing_id,weight\n" + "".join(f"{i},1\n" for i in range(10)),
    )  # fmt: skip
    result = import_database(address, tmp_path / "out", overwrite=True)
    told = said(result, "changed")
    assert "primary key: there is no people.code" in told
    assert "foreign key: there is no things.twin" in told
    assert result.mapping.tables["orders"].time == "paid_at"


def test_an_error_of_what_was_kept_says_how_to_forget_it(tmp_path: Path) -> None:
    address = shop(tmp_path / "csv")
    import_database(address, tmp_path / "out", **CHOSEN)
    shop(
        tmp_path / "csv",
        people="person_id,code,joined\n" + "".join(f"{i},same,2020-01-05\n" for i in range(20)),
    )
    with pytest.raises(RelFrogError, match=r"duplicate keys.*--forget starts from nothing"):
        import_database(address, tmp_path / "out", overwrite=True)


def test_proposals_and_declarations_are_nobodys_corrections(tmp_path: Path) -> None:
    import_database(shop(tmp_path / "csv"), tmp_path / "out")
    kept = read_kept(tmp_path / "out")
    assert kept.corrections.tables == {}
    assert kept.corrections.val is None
    assert (kept.selection, kept.name, kept.on_duplicate) == (Selection(), None, None)
    record = json.loads((tmp_path / "out" / "import.json").read_text())
    assert not any(record["selection"].values())
    assert record["options"] == {}
    assert read_kept(tmp_path / "nothing").corrections.tables == {}


def test_a_damaged_mapping_is_told(tmp_path: Path) -> None:
    address = shop(tmp_path / "csv")
    import_database(address, tmp_path / "out")
    (tmp_path / "out" / "mapping.yaml").write_text("tables: [")
    result = import_database(address, tmp_path / "out", overwrite=True)
    assert "mapping.yaml, which cannot be read" in said(result, "changed")


def viewed(path: Path, *more: str) -> str:
    """Baskets of households that have no table, and views of them."""
    rows = ", ".join(f"({i}, {i % 7}, {i % 3}, '2021-{1 + i % 12:02d}-05')" for i in range(60))
    return sqlite(
        path,
        "CREATE TABLE baskets (id INTEGER PRIMARY KEY, household_id INTEGER, clerk INTEGER, "
        f"at DATE); INSERT INTO baskets VALUES {rows}; CREATE TABLE logs (id INTEGER);"
        "INSERT INTO logs VALUES (1); CREATE VIEW big AS SELECT id AS basket, at FROM baskets;"
        "CREATE VIEW small AS SELECT id AS basket FROM baskets;",
        *more,
    )


MADE: dict[str, Any] = {
    "entity_from": ["baskets.household_id=households", "baskets.clerk=clerks"],
    "view": ["big"],
    "exclude": ["logs"],
    "on_duplicate": "first",
    "name": "Baskets",
}


def test_entity_tables_views_and_options_are_kept_night_after_night(tmp_path: Path) -> None:
    address, out = viewed(tmp_path / "a.db"), tmp_path / "out"
    import_database(address, out, **MADE)
    first = decided(out)
    assert set(first["tables"]) == {"baskets", "big", "households", "clerks"}
    for _ in range(2):
        result = import_database(address, out, overwrite=True)
        assert decided(out) == first
        told = said(result, "note")
        for words in (
            "--entity-from baskets.household_id=households", "--entity-from baskets.clerk=clerks",
            "--view big", "--exclude logs", "--on-duplicate first", "--name Baskets",
        ):  # fmt: skip
            assert told.count(words) == 1, words
        assert not said(result, "changed")
    assert yaml.safe_load((out / "manifest.yaml").read_text())["name"] == "Baskets"
    assert set(plan_import(address, keep=out).mapping.tables) == set(first["tables"])
    # The mapping file of one night, corrected by hand, counts in the next without it.
    mapping = tmp_path / "m.yaml"
    mapping.write_text((out / "mapping.yaml").read_text())
    import_database(address, out, overwrite=True, mapping=mapping)
    import_database(address, out, overwrite=True)
    assert decided(out)["tables"] == first["tables"]
    result = import_database(address, out, overwrite=True, forget=True)
    assert set(result.mapping.tables) == {"baskets", "logs"}


def test_kept_entity_tables_and_views_can_be_chosen_otherwise(tmp_path: Path) -> None:
    address, out = viewed(tmp_path / "a.db"), tmp_path / "out"

    def tables(**given: Any) -> set[str]:
        import_database(address, out, overwrite=True, forget=True, **MADE)
        result = import_database(address, out, overwrite=True, **given)
        assert not said(result, "changed")
        return set(result.mapping.tables)

    assert tables(exclude=["clerks", "big"]) == {"baskets", "households"}
    assert tables(fk=["baskets.clerk=none"]) == {"baskets", "big", "households"}
    assert tables(entity_from=["baskets.clerk=staff"]) == {"baskets", "big", "households", "staff"}
    more = {"baskets", "big", "small", "households", "clerks"}
    assert tables(view=["small"]) == more
    assert tables(tables=["*s"]) == more - {"small"} | {"logs"}


def test_kept_entity_tables_and_views_that_no_longer_fit_are_told(tmp_path: Path) -> None:
    address, out = viewed(tmp_path / "a.db"), tmp_path / "out"
    import_database(address, out, **MADE)
    sqlite(
        tmp_path / "a.db",
        "DROP VIEW big; CREATE TABLE clerks (clerk INTEGER PRIMARY KEY);"
        "INSERT INTO clerks VALUES (0), (1), (2); ALTER TABLE baskets DROP COLUMN household_id;",
    )
    result = import_database(address, out, overwrite=True)
    told = said(result, "changed")
    assert "--entity-from baskets.clerk=clerks: the source has a table clerks now" in told
    assert "households: there is no baskets.household_id" in told
    assert "--view big: there is no such view" in told
    assert set(result.mapping.tables) == {"baskets", "clerks"}


def test_the_schemas_of_before_are_read_again(tmp_path: Path) -> None:
    import duckdb

    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE other (id INTEGER); INSERT INTO other VALUES (1);"
            "CREATE SCHEMA sales; CREATE TABLE sales.orders (id INTEGER PRIMARY KEY, day DATE);"
            "INSERT INTO sales.orders SELECT i, DATE '2021-01-01' + CAST(i AS INTEGER) "
            "FROM range(50) t(i)"
        )
    address, out = f"duckdb:///{tmp_path / 'a.duckdb'}", tmp_path / "out"
    import_database(address, out, schema=["sales"])
    result = import_database(address, out, overwrite=True)
    assert set(result.mapping.tables) == {"orders"}
    assert "--schema sales" in said(result, "note")
