"""Keys and times that nobody declared: what is proposed, on what evidence, and what is not."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from helpers import csv_folder, imported, said, sqlite
from relfrog import import_database
from relfrog.cli.data_summaries import notice_lines
from relfrog.datasets import source_keys
from relfrog.errors import SchemaError, UsageError
from relfrog.importing import plan_import
from relfrog.importing.key_checks import Evidence
from relfrog.importing.mapping import Notice
from relfrog.importing.time_proposals import _rank


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """Tables as people dump them, without any key."""
    days = [f"2021-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(60)]
    return csv_folder(
        tmp_path / "shop",
        customers="customer_id,name,signup_date\n"
        + "".join(f"{100 + i},n{i},{days[i]}\n" for i in range(20)),
        categories="code,title\nTOY,Toys\nBOO,Books\nGAR,Garden\n",
        products="id,category,price\n"
        + "".join(f"{i},{('TOY', 'BOO', 'GAR')[i % 3]},{i}.5\n" for i in range(1, 11)),
        orders="order_id,customer_id,order_date,due_date,updated_at\n"
        + "".join(f"{i},{100 + i % 20},{days[i]},{days[i]},2022-01-01\n" for i in range(60)),
        order_items="order_id,product_id,quantity\n"
        + "".join(f"{i % 60},{1 + i % 10},{i % 7}\n" for i in range(200)),
        employees="id,manager_id,name\n1,,a\n2,1,b\n3,1,c\n4,2,d\n",
        reviews="id,product_id,stars\n"
        + "".join(f"{i},{i % 14},{i % 5 + 1}\n" for i in range(1, 60)),
    )


def test_keys_are_proposed_with_their_evidence(shop: str) -> None:
    mapping = plan_import(shop).mapping
    keys = {name: t.primary_key for name, t in mapping.tables.items()}
    assert keys == {
        "categories": ("code",),
        "customers": ("customer_id",),
        "employees": ("id",),
        "order_items": (),
        "orders": ("order_id",),
        "products": ("id",),
        "reviews": ("id",),
    }
    foreign = {
        (name, *key.columns, key.parent)
        for name, t in mapping.tables.items()
        for key in t.used_keys()
    }
    assert foreign == {
        ("employees", "manager_id", "employees"),
        ("order_items", "order_id", "orders"),
        ("order_items", "product_id", "products"),
        ("orders", "customer_id", "customers"),
        ("products", "category", "categories"),
    }
    orders = mapping.tables["orders"]
    assert orders.primary_key_origin == "proposed"
    assert orders.primary_key_evidence.startswith("60 distinct values")
    evidence = orders.used_keys()[0].evidence
    assert evidence == "all of 60 values found; 20 distinct among 20 rows"


def test_a_key_that_does_not_hold_is_suggested_but_not_used(shop: str, tmp_path: Path) -> None:
    result, _ = imported(shop, tmp_path / "out")
    reviews = result.mapping.tables["reviews"]
    assert [(k.parent, k.used) for k in reviews.foreign_keys] == [("products", False)]
    text = said(result, "suggestion", "reviews.product_id")
    assert "--fk reviews.product_id=products.id" in text
    taken, tables = imported(shop, tmp_path / "two", fk=["reviews.product_id=products.id"])
    key = taken.mapping.tables["reviews"].foreign_keys[0]
    assert (key.used, key.origin) == (True, "chosen")
    assert tables["reviews"]["product_id"].isna().sum() == sum(
        i % 14 in (0, 11, 12, 13) for i in range(1, 60)
    )


def test_nearly_all_is_not_rounded_to_all() -> None:
    assert str(Evidence(10_000, 9_999, 7, 6, 6)).startswith("all but 1 of 10,000 values found;")
    assert str(Evidence(1_000, 999, 7, 6, 6)).startswith("99.9 % of 1,000 values found;")


def test_creation_comes_before_update_and_never_the_future(shop: str) -> None:
    mapping = plan_import(shop).mapping
    assert mapping.tables["orders"].time == "order_date"
    assert mapping.tables["customers"].time == "signup_date"
    assert mapping.tables["products"].time is None


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        ("updated_at,created_at", "created_at"),
        ("due_date,order_date", "order_date"),
        ("expires_on,valid_until", None),
        ("date_of_birth", None),
        ("last_login", None),
        ("updated_at", "updated_at"),
        ("estimated_delivery,delivered_at", "delivered_at"),
        ("shipped,ordered", "ordered"),
        ("scheduled_at,timestamp", "timestamp"),
    ],
)
def test_time_columns_by_name(columns: str, chosen: str | None, tmp_path: Path) -> None:
    names = columns.split(",")
    rows = "".join(
        f"{i}," + ",".join(f"2020-{i % 9 + 1:02d}-{10 + j}" for j, _ in enumerate(names)) + "\n"
        for i in range(30)
    )
    address = csv_folder(tmp_path / "csv", t=f"id,{columns}\n{rows}")
    assert plan_import(address).mapping.tables["t"].time == chosen


def test_of_equal_names_the_earlier_time_is_taken(tmp_path: Path) -> None:
    rows = "".join(f"{i},2020-02-{i:02d},2020-01-{i:02d}\n" for i in range(1, 20))
    address = csv_folder(tmp_path / "csv", t=f"id,when_b,when_a\n{rows}")
    assert plan_import(address).mapping.tables["t"].time == "when_a"


def test_times_later_than_now_are_in_the_future(tmp_path: Path) -> None:
    rows = "".join(f"{i},2020-01-{i:02d},29{i:02d}-01-01\n" for i in range(1, 20))
    address = csv_folder(tmp_path / "csv", t=f"id,a_time,created\n{rows}")
    assert plan_import(address).mapping.tables["t"].time == "a_time"


def test_ranks_are_in_order() -> None:
    order = ["created_at", "date", "stamp", "updated_at", "due_date"]
    ranks = [_rank(name)[0] for name in order]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[-1] == 0


def test_small_integers_are_not_taken_for_keys(tmp_path: Path) -> None:
    address = csv_folder(
        tmp_path / "csv",
        people="id,age,flight_number\n"
        + "".join(f"{i},{20 + i % 5},{i % 9 + 1}\n" for i in range(1, 60)),
        stars="id,rating\n" + "".join(f"{i},{i % 5 + 1}\n" for i in range(1, 60)),
    )
    mapping = plan_import(address).mapping
    assert [k for t in mapping.tables.values() for k in t.foreign_keys] == []


@pytest.mark.slow
def test_flags_name_what_does_not_exist(shop: str, tmp_path: Path) -> None:
    for options, words in [
        ({"pk": ["order.id"]}, "no table 'order'; did you mean 'orders'"),
        (
            {"pk": ["orders.ordr_id"]},
            "no column in table orders 'ordr_id'; did you mean 'order_id'",
        ),
        ({"time": ["orders.name"]}, "no column in orders, nor a table, 'name'"),
        ({"time": ["customers.name"]}, "cannot be read as a time"),
        ({"fk": ["orders.customer_id=clients.id"]}, "no table 'clients'"),
        ({"fk": ["orders.customer_id=customers.name,signup_date"]}, "cannot refer to 2"),
        ({"fk": ["orders.order_id=order_items.order_id"]}, "is not unique"),
        ({"tables": ["ordrs"]}, "did you mean 'orders'"),
    ]:
        with pytest.raises(SchemaError, match=words):
            import_database(shop, tmp_path / "out", **options)  # type: ignore[arg-type]
    for options, words in [
        ({"fk": ["orders.customer_id"]}, "write it as --fk"),
        ({"val": "soon"}, "--val soon: write a date"),
        ({"val": "2021-06-01", "test": "2021-05-01"}, "must lie before"),
        ({"val": "1999-01-01", "test": "2021-05-01"}, "lies outside the data"),
        ({"pk": ["orders"]}, "names no column"),
        ({"exclude": ["*"]}, "no table is left"),
    ]:
        with pytest.raises(UsageError, match=words):
            import_database(shop, tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_flags_take_keys_and_times_away(shop: str, tmp_path: Path) -> None:
    result = import_database(
        shop,
        tmp_path / "out",
        time=["orders.none"],
        fk=["orders.customer_id=none"],
        pk=["categories.none"],
    )
    orders = result.mapping.tables["orders"]
    assert orders.time is None
    assert orders.used_keys() == []
    # ... but what was refused stays to be seen.
    assert [(k.origin, k.evidence) for k in orders.foreign_keys] == [
        ("proposed", "refused by the user")
    ]
    assert orders.time_reason == "none, by choice of the user, instead of order_date (proposed)"
    assert result.mapping.tables["categories"].primary_key_evidence == "instead of code (proposed)"
    assert result.mapping.tables["categories"].primary_key == ()
    assert result.mapping.tables["products"].used_keys() == []


def test_tables_by_pattern(shop: str, tmp_path: Path) -> None:
    result = import_database(shop, tmp_path / "out", tables=["order*"], exclude=["*items"])
    assert [t.name for t in result.tables] == ["orders"]


def test_split_times_are_proposed_with_a_reason(shop: str) -> None:
    mapping = plan_import(shop).mapping
    assert mapping.val < mapping.test
    assert "last tenth" in mapping.split_reason


@pytest.fixture
def league(tmp_path: Path) -> str:
    """Years instead of times, as in statistics of sport, trade or schools."""
    years = range(1990, 2010)
    return csv_folder(
        tmp_path / "league",
        players="player_id,year\n" + "".join(f"{i},{1960 + i}\n" for i in range(20)),
        teams="yearID,code,wins\n"
        + "".join(f"{y},{c},{y % 7}\n" for y in years for c in ("AA", "BB")),
        stints="player_id,yearID,code,goals\n"
        + "".join(f"{i},{y},{('AA', 'BB')[i % 2]},{i * y % 9}\n" for y in years for i in range(20)),
        films="film_id,player_id,year\n" + "".join(f"{i},{i},{1990 + i}\n" for i in range(20)),
        ratings="id,film_id,day,stars\n"
        + "".join(f"{i},{i % 20},{1991 + i % 20}-03-04,{i % 5}\n" for i in range(60)),
        debuts="player_id,birth_year\n" + "".join(f"{i},{1970 + i}\n" for i in range(20)),
        plans="player_id,season\n" + "".join(f"{i},{2020 + i * 40}\n" for i in range(20)),
        ranks="player_id,season\n" + "".join(f"{i},{1 + i % 5}\n" for i in range(20)),
    )


def test_a_year_is_the_time_of_rows_that_tell_of_others(league: str, tmp_path: Path) -> None:
    result, tables = imported(league, tmp_path / "out")
    times = {name: t.time for name, t in result.mapping.tables.items()}
    # players.year may be anything; films are rated before their year is over; a birth is no time
    # of a row; the others are no years by now.
    dated = {"stints": "yearID", "teams": "yearID", "ratings": "day"}
    assert times == dict.fromkeys(times) | dated
    assert str(tables["stints"]["yearID"].min()) == "1990-12-31 00:00:00"
    assert "counts as known from the last day" in said(result, "note", "stints.yearID")
    assert (result.mapping.val, result.mapping.test) == ("2006-07-01", "2008-07-01")
    assert "at midyear" in result.mapping.split_reason
    mapping = plan_import(league, time=["stints.none"]).mapping.tables["stints"]
    assert (mapping.time, str(mapping.columns["yearID"])) == (None, "integer")


@pytest.mark.slow
def test_a_year_in_a_key_stays_the_sources_own(league: str, tmp_path: Path) -> None:
    keys = {"pk": ["teams.yearID,code"], "fk": ["stints.yearID,code=teams.yearID,code"]}
    for times in (["teams.yearID"], ["teams.yearID", "stints.none"]):
        _, tables = imported(league, tmp_path / str(len(times)), time=times, **keys)
        own = source_keys(tmp_path / str(len(times)), "teams")
        assert own["yearID"].tolist() == sorted([*range(1990, 2010)] * 2)
        assert tables["stints"]["teams_id"].notna().all()
        assert str(tables["teams"]["yearID"].max()) == "2009-12-31 00:00:00"
    plan = tmp_path / "m.yaml"
    plan.write_text(plan_import(league, time=["teams.yearID"], **keys).mapping.to_yaml())
    again, _ = imported(league, tmp_path / "again", mapping=plan)
    teams = again.mapping.tables["teams"]
    assert (teams.primary_key, teams.time) == (("yearID", "code"), "yearID")
    assert str(teams.columns["yearID"]) == "time %Y"
    assert source_keys(tmp_path / "again", "teams").equals(own)


@pytest.mark.slow
def test_keys_of_several_columns(league: str, tmp_path: Path) -> None:
    result, tables = imported(league, tmp_path / "out")
    teams, stints = (result.mapping.tables[name] for name in ("teams", "stints"))
    assert (teams.primary_key, teams.primary_key_origin) == (("yearID", "code"), "proposed")
    assert teams.primary_key_evidence == "40 distinct values; stints refers to them"
    assert [str(k) for k in stints.used_keys()] == [
        "player_id -> players.player_id",
        "yearID, code -> teams.yearID, code",
    ]
    assert stints.used_keys()[1].evidence == "all of 400 values found; 40 distinct among 40 rows"
    joined = tables["stints"].merge(tables["teams"], on="teams_id")
    assert len(joined) == 400
    assert (joined["code_x"] == joined["code_y"]).all()
    (tmp_path / "m.yaml").write_text(plan_import(league).mapping.to_yaml())
    again = plan_import(league, mapping=tmp_path / "m.yaml").mapping
    assert again.to_yaml() == plan_import(league).mapping.to_yaml()
    refused = plan_import(league, fk=["stints.yearID,code=none"]).mapping.tables["stints"]
    assert [k.columns for k in refused.used_keys()] == [("player_id",)]


def test_parts_of_a_key_may_be_single_words(tmp_path: Path) -> None:
    """As in TPC-H: each column begins with its table's letters, and no underscore parts its key."""
    offers = [(part, (part + step) % 7) for part in range(20) for step in (1, 3)]
    source = csv_folder(
        tmp_path / "trade",
        part="p_partkey,p_size,p_brand\n" + "".join(f"{i},{i % 6},B{i % 3}\n" for i in range(20)),
        supplier="s_suppkey,s_name,s_city\n" + "".join(f"{i},N{i},C{i % 2}\n" for i in range(7)),
        partsupp="ps_partkey,ps_suppkey,ps_cost\n"
        + "".join(f"{part},{supplier},{part % 5}\n" for part, supplier in offers),
        lineitem="l_linenumber,l_partkey,l_suppkey,l_quantity\n"
        + "".join(
            f"{i % 4},{offers[i * 7 % 40][0]},{offers[i * 7 % 40][1]},{i % 9}\n" for i in range(200)
        ),
    )
    tables = plan_import(source).mapping.tables
    assert tables["partsupp"].primary_key == ("ps_partkey", "ps_suppkey")
    assert [str(key) for key in tables["lineitem"].used_keys()] == [
        "l_partkey -> part.p_partkey",
        "l_suppkey -> supplier.s_suppkey",
        "l_partkey, l_suppkey -> partsupp.ps_partkey, ps_suppkey",
    ]


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        (lambda y, c: f"{y},{c},1", lambda y, c: f"{y},{c}\n{y},Z{c}"),  # not all found
        (lambda y, c: f"{y},{c},1", lambda y, c: f"{y},{c}"),  # none repeated: no parent
        (lambda y, c: f"{y},{c},1\n{y},{c},2", lambda y, c: f"{y},{c}\n{y},{c}"),  # not unique
        (lambda y, c: f"{y},,1", lambda y, c: f"{y},{c}\n{y},{c}"),  # not complete
    ],
)
def test_columns_that_are_no_key_together(parent: Any, child: Any, tmp_path: Path) -> None:
    pairs = [(y, c) for y in range(2000, 2010) for c in ("AA", "BB", "CC")]
    address = csv_folder(
        tmp_path / "csv",
        a="year,code,v\n" + "".join(parent(*p) + "\n" for p in pairs),
        b="year,code\n" + "".join(child(*p) + "\n" for p in pairs),
    )
    mapping = plan_import(address).mapping
    assert [t.primary_key for t in mapping.tables.values()] == [(), ()]
    assert not any(t.used_keys() for t in mapping.tables.values())


def test_months_are_over_when_they_are_known(tmp_path: Path) -> None:
    rows = "".join(f"{i},{1 + i:02d}/2020\n" for i in range(12))
    mapping = tmp_path / "m.yaml"
    address = csv_folder(tmp_path / "csv", t="id,month\n" + rows)
    mapping.write_text("tables:\n  t:\n    time: {column: month}\n    columns: {month: time %m/%Y}")
    result, tables = imported(address, tmp_path / "out", mapping=mapping)
    assert str(tables["t"]["month"].iloc[1].date()) == "2020-02-29"
    assert "holds months" in said(result, "note", "t.month")


def test_the_same_said_of_many_tables_is_said_once() -> None:
    notices = [Notice("leak", name, "", "no time column") for name in ("a", "b", "c")]
    lines = [line.strip() for line in notice_lines([*notices, Notice("leak", "d", "", "else")])]
    assert lines[1:] == ["a, b, c: no time column", "d: else"]


@pytest.fixture
def office(tmp_path: Path) -> str:
    """Keys that are named by what people do, and numbers that are none."""
    return csv_folder(
        tmp_path / "office",
        staff="staff_id,reports_to,name\n"
        + "".join(f"{i},{max(1, i // 2)},n{i}\n" for i in range(1, 9)),
        shippers="shipper_id,name\n1,a\n2,b\n3,c\n4,d\n",
        genres="genre_id,title\n" + "".join(f"{i},g{i}\n" for i in range(1, 30)),
        sites="site_id,town\n" + "".join(f"{7000 + 13 * i},t{i}\n" for i in range(60)),
        orders="order_id,ship_via,support_rep_id,created_by,lead_time,paid_up_to,staff_count,"
        "genre_rank,place_id,place_size,done_by\n"
        + "".join(
            f"{i},{1 + i % 3},{1 + i % 4},{1 + i % 5},{1 + i % 6},{1 + i % 3},{1 + i % 8},{1 + i % 9},"
            f"{7000 + 13 * (i % 50)},{7000 + 13 * (i % 50)},{1 + i % 8}\n"
            for i in range(1, 100)
        ),
    )


def test_keys_that_a_person_sees_at_once(office: str) -> None:
    tables = plan_import(office).mapping.tables
    found = {k.columns[0]: k.parent for k in tables["orders"].used_keys()}
    assert found == {
        "ship_via": "shippers", "support_rep_id": "staff", "created_by": "staff",
        "place_id": "sites",
    }  # fmt: skip
    assert [str(k) for k in tables["staff"].used_keys()] == ["reports_to -> staff.staff_id"]


def test_people_name_each_other(tmp_path: Path) -> None:
    """Who referred a member is a member."""
    address = csv_folder(
        tmp_path / "club",
        members="member_no,referred_by,visits,name\n"
        + "".join(
            f"{5000 + 3 * i},{5000 + 3 * (i // 3) if i % 4 else ''},{5000 + i % 7},n{i}\n"
            for i in range(1, 80)
        ).replace(",5000,", ",5003,"),
    )
    used = plan_import(address).mapping.tables["members"].used_keys()
    assert [str(key) for key in used] == ["referred_by -> members.member_no"]


def test_one_large_key_makes_no_key_of_other_numbers(tmp_path: Path) -> None:
    address = csv_folder(
        tmp_path / "csv",
        people="person_id,badge_no\n" + "".join(f"{i},{i % 30}\n" for i in range(40)),
        orders="order_id,person_id\n" + "".join(f"{i},{i % 40}\n" for i in [*range(900), 90_000]),
    )
    tables = plan_import(address).mapping.tables
    assert tables["people"].used_keys() == []
    assert [k.parent for k in tables["orders"].used_keys()] == ["people"]


def test_keys_with_gaps_are_known_by_their_values(tmp_path: Path) -> None:
    address = csv_folder(
        tmp_path / "garage",
        mechanics="mechanic_no,name\n" + "".join(f"{1000 + 7 * i},m{i}\n" for i in range(9)),
        jobs="job_no,done_by,assisted,hours,price\n"
        + "".join(
            f"{50_000 + 3 * i},{1000 + 7 * (i % 9)},{1000 + 7 * (5 * i % 9) if i % 2 else ''},{i % 9},"
            f"{1000 + i % 60}\n"
            for i in range(200)
        ),
        job_notes="job_no,text\n" + "".join(f"{50_000 + 3 * i},t{i}\n" for i in range(0, 200, 2)),
    )
    tables = plan_import(address).mapping.tables
    # "done by" names somebody, and nine numbers that are all keys are no chance.
    assert [str(k) for k in tables["jobs"].used_keys()] == ["done_by -> mechanics.mechanic_no"]
    # A name that says nothing is suggested if chance cannot do it; numbers in between are not.
    assert {k.columns[0] for k in tables["jobs"].foreign_keys} == {"done_by", "assisted"}
    # A table that has another's key as its own is about that other.
    assert [str(k) for k in tables["job_notes"].used_keys()] == ["job_no -> jobs.job_no"]


def test_two_tables_of_people_leave_a_doubt(office: str) -> None:
    Path(office, "users.csv").write_text(
        "user_id,name\n" + "".join(f"{i},u{i}\n" for i in range(1, 9))
    )
    tables = plan_import(office).mapping.tables
    assert {k.columns[0] for k in tables["orders"].used_keys()} == {"ship_via", "place_id"}


def test_declared_keys_are_found_without_their_declaration(
    shared_data: Path, tmp_path: Path
) -> None:
    """Every proposal on real databases is right, and nearly all keys are found."""
    folder = shared_data.parent / "sources"
    if not (folder / "chinook.db").exists():
        pytest.skip("needs Chinook beside the checkout")
    with sqlite3.connect(folder / "chinook.db") as database:
        names = [
            r[0] for r in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        declared = {
            (table, row[3], row[2])
            for table in names
            for row in database.execute(f'PRAGMA foreign_key_list("{table}")')
        }
        for table in names:
            frame = pd.read_sql(f'SELECT * FROM "{table}"', database)
            (tmp_path / "csv").mkdir(exist_ok=True)
            frame.convert_dtypes().to_csv(tmp_path / "csv" / f"{table}.csv", index=False)
    tables = plan_import(str(tmp_path / "csv")).mapping.tables
    found = {(t, k.columns[0], k.parent) for t, m in tables.items() for k in m.used_keys()}
    assert found == declared


def test_a_key_that_is_declared_twice_is_one_key(tmp_path: Path) -> None:
    """By the column and by the table, as some databases allow."""
    script = """
    CREATE TABLE countries (id INTEGER PRIMARY KEY, name TEXT);
    CREATE TABLE cities (id INTEGER PRIMARY KEY, country_id INTEGER REFERENCES countries (id),
        FOREIGN KEY (country_id) REFERENCES countries (id));
    INSERT INTO countries VALUES (1, 'a'), (2, 'b');
    INSERT INTO cities VALUES (1, 2), (2, 2), (3, 1);
    """
    result = import_database(sqlite(tmp_path / "s.db", script), tmp_path / "ds")
    assert [k.columns for k in result.mapping.tables["cities"].foreign_keys] == [("country_id",)]
    assert list(pd.read_parquet(tmp_path / "ds" / "db" / "cities.parquet")) == ["id", "country_id"]


def dates(tmp_path: Path, column: str, values: list[str]) -> str:
    """How a column of a CSV file is read."""
    lines = "".join(f"{i},{value}\n" for i, value in enumerate(values))
    source = csv_folder(tmp_path / "source", things=f"thing_id,{column}\n{lines}")
    return str(plan_import(source).mapping.tables["things"].columns[column])


DAYS = pd.date_range("1993-02-11", periods=60, freq="37D")


@pytest.mark.parametrize(
    ("column", "form", "read"),
    [
        ("date", "%y%m%d", "time %y%m%d"),
        ("date", "%Y%m%d", "time %Y%m%d"),
        ("created", "%Y%m%d%H%M%S", "time %Y%m%d%H%M%S"),
        ("issued", "%y%m%d 00:00:00", "time %y%m%d %H:%M:%S"),
        ("note", "%Y%m%dT101500", "time %Y%m%dT%H%M%S"),
        ("sold", "%m/%d/%y", "time %m/%d/%y"),
        ("sold", "%d-%b-%y", "time %d-%b-%y"),
        ("sold", "%d %B %Y", "time %d %B %Y"),
        ("sold", '"%b %d, %Y"', "time %b %d, %Y"),
        ("serial", "%y%m%d", "integer"),
        ("sold", "%d-%b-%Y", "time %d-%b-%Y"),
    ],
)
def test_dates_as_people_write_them(column: str, form: str, read: str, tmp_path: Path) -> None:
    assert dates(tmp_path, column, [f"{day:{form}}" for day in DAYS]) == read


@pytest.mark.parametrize(
    "values",
    [
        [str(517 + 100 * i) for i in range(12)],  # times of day: 5:17, 6:17
        [str(101 + i) for i in range(28)],  # days of a month, or codes
        [str(930132 + i) for i in range(60)],  # no day is the 32nd
    ],
)
def test_numbers_that_are_no_dates_stay_numbers(values: list[str], tmp_path: Path) -> None:
    assert dates(tmp_path, "time", values) == "integer"


def test_text_with_packed_dates_where_zeros_mean_none(tmp_path: Path) -> None:
    path = tmp_path / "erp.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE docs (doc_id INTEGER PRIMARY KEY, budat TEXT, erdat_date TEXT, "
            "bldat TEXT, belnr TEXT, packed TEXT)"
        )
        rows = [
            (
                i, f"{day:%Y%m%d}", f"{day:%Y%m%d}" if i % 4 else "00000000",
                f"{DAYS[i % 9]:%Y%m%d}", str(20200101 + 7 * i), f"{day:%y%m%d}",
            )
            for i, day in enumerate(DAYS)
        ]  # fmt: skip
        connection.executemany("INSERT INTO docs VALUES (?, ?, ?, ?, ?, ?)", rows)
    columns = plan_import(f"sqlite:///{path}").mapping.tables["docs"].columns
    assert str(columns["erdat_date"]) == "time %Y%m%d"
    # Sixty different numbers of eight digits that are all dates are dates, whatever their name.
    assert str(columns["budat"]) == "time %Y%m%d"
    # Nine may be chance; most running numbers are no dates; six digits may be anything.
    assert [str(columns[name]) for name in ("bldat", "belnr", "packed")] == ["text"] * 3


def test_numbers_that_all_are_dates_need_no_name(tmp_path: Path) -> None:
    values = [f"{day:%Y%m%d}" for day in DAYS]
    assert dates(tmp_path / "a", "paid_on", values) == "time %Y%m%d"
    assert dates(tmp_path / "b", "amount", [str(20200101 + i) for i in range(60)]) == "integer"
    assert dates(tmp_path / "c", "amount", [f"{day:11%m%d99}" for day in DAYS]) == "integer"


def test_a_primary_key_is_known_by_who_refers_to_it(tmp_path: Path) -> None:
    """District.A1 says nothing, but account.district_id refers to districts by its values."""
    source = csv_folder(
        tmp_path / "bank",
        district="A1,A2,A4\n" + "".join(f"{i},town {i},{1000 * i}\n" for i in range(1, 31)),
        account="account_id,district_id\n" + "".join(f"{7 * i},{1 + i % 30}\n" for i in range(90)),
        region="R1,R2\n" + "".join(f"{i + 50},r{i}\n" for i in range(5)),
        branch="branch_id,region_id\n" + "".join(f"{3 * i},{1 + i % 5}\n" for i in range(20)),
    )
    tables = plan_import(source).mapping.tables
    assert tables["district"].primary_key == ("A1",)
    assert "account.district_id has no others" in tables["district"].primary_key_evidence
    assert [(k.columns, k.parent) for k in tables["account"].used_keys()] == [
        (("district_id",), "district")
    ]
    assert tables["region"].primary_key == ()  # its values are others


def test_tables_that_share_a_parent_and_a_day_do_not_refer_to_each_other(tmp_path: Path) -> None:
    path = tmp_path / "firm.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """CREATE TABLE people (no INTEGER PRIMARY KEY, hired DATE);
            CREATE TABLE titles (no INTEGER REFERENCES people(no), title TEXT, from_date DATE,
                PRIMARY KEY (no, from_date));
            CREATE TABLE salaries (no INTEGER REFERENCES people(no), salary INTEGER,
                from_date DATE, PRIMARY KEY (no, from_date));
            CREATE TABLE bonuses (no INTEGER REFERENCES people(no), from_date DATE, part INTEGER);"""
        )
        for i, day in enumerate(DAYS):
            begin = f"{day:%Y-%m-%d}"
            connection.execute("INSERT INTO people VALUES (?, ?)", (i, begin))
            connection.execute("INSERT INTO titles VALUES (?, 'a', ?)", (i, begin))
            for year in range(3):
                later = f"{day + pd.Timedelta(days=365 * year):%Y-%m-%d}"
                connection.execute("INSERT INTO salaries VALUES (?, ?, ?)", (i, 9, later))
            connection.execute("INSERT INTO bonuses VALUES (?, ?, 1)", (i, begin))
    tables = plan_import(f"sqlite:///{path}").mapping.tables
    for name in ("titles", "bonuses"):
        assert {key.parent for key in tables[name].used_keys()} == {"people"}


def films(tmp_path: Path, rated: int, **more: str) -> dict[str, Any]:
    """Films known by a year, with their actors and, of some, their ratings under the same key."""
    names = [f"tt{i:05d}" for i in range(90)]
    source = csv_folder(
        tmp_path / "films",
        titles="tconst,startYear,minutes\n"
        + "".join(f"{name},{1950 + i % 60},{i % 97}\n" for i, name in enumerate(names)),
        ratings="tconst,stars\n" + "".join(f"{n},{len(n) % 5}\n" for n in names[:rated]),
        actors="tconst,actor\n" + "".join(f"{n},a{i % 7} b\n" for i, n in enumerate(names * 2)),
        **more,
    )
    return plan_import(source).mapping.tables


def test_some_rows_that_have_the_key_of_others_refer_to_them(tmp_path: Path) -> None:
    tables = films(tmp_path, 50)
    keys = {(name, k.parent) for name, t in tables.items() for k in t.used_keys()}
    assert keys == {("ratings", "titles"), ("actors", "titles")}


def test_a_year_is_the_time_where_there_is_no_other(tmp_path: Path) -> None:
    tables = films(tmp_path / "one", 50)
    assert {name: t.time for name, t in tables.items()} == {
        "titles": "startYear", "ratings": None, "actors": None
    }  # fmt: skip
    sold = "sale_id,tconst,sold_at\n" + "".join(
        f"{i},tt{i % 90:05d},2021-03-{1 + i % 28:02d}\n" for i in range(200)
    )
    tables = films(tmp_path / "two", 50, sales=sold)
    assert (tables["titles"].time, tables["sales"].time) == (None, "sold_at")
