"""Label SQL that is compiled from a question gives what loops over rows give."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relbench.base import Database, Table

from helpers import examples
from oracles.slow_query import slow_labels
from relfrog.datasets.label_sql import run_sql
from relfrog.errors import QueryError
from relfrog.queries.analysis import analyse
from relfrog.queries.compiler import compile_question, forecast_step
from relfrog.queries.parser import parse
from relfrog.queries.question import Question
from relfrog.queries.schema import ForeignKey, QuerySchema, QueryTable

DAY = pd.Timedelta(days=1)
START = pd.Timestamp("2020-01-29")  # so that windows of months meet the end of February
SEEDS = [START + n * DAY for n in (2, 20, 33, 62)]


def _table(
    name: str, columns: str, pkey: str | None, time: str | None, rows: int = 9, **keys: str
) -> QueryTable:
    kinds = dict(part.split(":") for part in columns.split())
    fkeys = {c: ForeignKey(name, c, parent, "id") for c, parent in keys.items()}
    return QueryTable(name, kinds, pkey, time, fkeys, rows)


SCHEMA = QuerySchema(
    {
        t.name: t
        for t in (
            _table("regions", "id:integer name:text size:number", "id", None),
            _table("users", "id:integer plan:text age:integer vip:boolean joined:time closed:time region:integer", "id", "joined", region="regions"),
            _table("items", "id:integer kind:text price:number added:time", "id", "added"),
            _table("orders", "id:integer user:integer item:integer total:number status:text at:time", "id", "at", user="users", item="items"),
            _table("views", "user:integer item:integer seconds:integer at:time", None, "at", user="users", item="items"),
            _table("lines", "id:integer order:integer amount:integer known:time", "id", "known", order="orders"),
            _table("friends", "one:integer other:integer since:time", None, "since", one="users", other="users"),
            _table("tags", "id:integer word:text", "id", None),
            _table("item tags", "item:integer tag:integer", None, None, item="items", tag="tags"),
        )
    }
)  # fmt: skip


def random_tables(seed: int) -> dict[str, list[dict[str, Any]]]:
    """Rows with ties in time, NULLs, and keys that name nothing."""
    chance = random.Random(seed)

    def value(column: str, kind: str, table: QueryTable, number: int) -> Any:
        if column == table.pkey:
            return number
        if column in table.fkeys:
            return chance.choice([None, *range(6)]) if chance.random() < 0.9 else 99
        if column != table.time and chance.random() < 0.15:
            return None
        if kind == "time":
            return START + chance.randrange(0, 70) * DAY
        if kind == "text":
            return chance.choice(["a", "ab", "b%", "it's", "Ab", "{timedelta}"])
        if kind == "boolean":
            return chance.random() < 0.5
        return (
            chance.randrange(-3, 9) if kind == "integer" else chance.choice([0.5, -1.25, 2.0, 8.75])
        )

    counts = {"regions": 3, "users": 6, "items": 6, "tags": 3}
    return {
        name: [
            {c: value(c, kind, table, n) for c, kind in table.columns.items()}
            for n in range(counts.get(name, chance.choice([0, 12, 25])))
        ]
        for name, table in SCHEMA.tables.items()
    }


def as_database(tables: dict[str, list[dict[str, Any]]]) -> Database:
    types = {
        "integer": "Int64",
        "number": "float64",
        "boolean": "boolean",
        "time": "datetime64[ns]",
        "text": object,
    }
    found = {}
    for name, rows in tables.items():
        table = SCHEMA.tables[name]
        frame = pd.DataFrame(rows, columns=list(table.columns))
        for column, kind in table.columns.items():
            frame[column] = frame[column].astype(types[kind])
        found[name] = Table(
            frame, {c: k.parent for c, k in table.fkeys.items()}, table.pkey, table.time
        )
    return Database(found)


def sql_labels(question: Question, tables: Any, classes: Any = ()) -> dict[Any, Any]:
    compiled = compile_question(question, classes)
    frame = run_sql(compiled.sql, as_database(tables), SEEDS, DAY)
    assert not frame.duplicated(["timestamp", compiled.entity]).any()
    keys = zip(pd.to_datetime(frame["timestamp"]), frame[compiled.entity].tolist())

    def plain(label: Any) -> Any:
        if isinstance(label, np.ndarray | list):
            return tuple(np.asarray(label).tolist())
        return float(label) if not isinstance(label, str) else label

    return dict(zip(keys, map(plain, frame[compiled.label]), strict=True))


# Random questions.

columns = {
    "orders": ["total", "status", "item", "*"], "views": ["seconds", "item", "*"],
    "lines": ["amount", "*"], "items": ["price", "*"], "friends": ["*"],
}  # fmt: skip


@st.composite
def aggregation(draw: Any, ahead: bool) -> str:
    table = draw(st.sampled_from(["orders", "orders", "views", "lines", "items", "friends"]))
    column = draw(st.sampled_from(columns[table]))
    number = column in ("total", "seconds", "amount", "price")
    functions = ["COUNT"] if column == "*" else ["COUNT", "COUNT_DISTINCT", "FIRST", "LAST"]
    if column not in ("*", "item"):
        functions += ["MIN", "MAX"]
    if number:
        functions += ["SUM", "AVG", "SUM", "AVG"]
    function = draw(st.sampled_from(functions))
    inner = {
        "orders": ["orders.status = 'a'", "orders.total BETWEEN 0 AND 5", "items.kind LIKE 'a%'", "orders.status IS NULL OR items.price > 1", "NOT orders.status IN ('a', 'it''s')"],
        "views": ["views.seconds > 2", "items.kind STARTS WITH 'a'"], "lines": ["orders.status CONTAINS 'b'", "lines.amount != 3"],
        "items": ["items.kind = '{timedelta}'", "items.kind ENDS WITH 'b'"], "friends": ["friends.since >= 2020-02-10"],
    }[table]  # fmt: skip
    where = f" WHERE {draw(st.sampled_from(inner))}" if draw(st.booleans()) else ""
    via = {"friends": " VIA friends.one", "items": " VIA orders.item"}.get(table, "")
    unit = draw(st.sampled_from(["days", "days", "weeks", "months", "hours"]))
    scale = {"days": 20, "weeks": 4, "months": 2, "hours": 200}[unit]
    low = draw(st.integers(0, scale))
    high = draw(st.integers(low + 1, scale + 5))
    window = f", {low}, {high}, {unit}" if ahead else f", -{high}, -{low}, {unit}"
    if not ahead and draw(st.integers(0, 4)) == 0:
        window = draw(st.sampled_from(["", ", -INF, 0"]))
    return f'{function}("{table}".{column}{via}{where}{window})'


@st.composite
def condition(draw: Any, ahead: bool) -> str:
    if draw(st.integers(0, 5)) == 0:
        return f"NOT ({draw(condition(ahead))}) OR {draw(condition(ahead))}"
    inside = draw(aggregation(ahead))
    if not inside.startswith(("COUNT", "SUM", "AVG")) and draw(st.booleans()):
        return f"{inside} IS {'NOT ' * draw(st.booleans())}NULL"
    if "status" in inside.split(" WHERE")[0] and not inside.startswith("COUNT"):
        return f"{inside} {draw(st.sampled_from(['=', '!=', 'LIKE', 'CONTAINS']))} 'a'"
    operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    return f"{inside} {operator} {draw(st.integers(0, 4))}"


STATIC = ["users.plan = 'a'", "users.age >= 2", "users.vip", "regions.name != 'b%'", "users.closed IS NULL",
          "users.id IN (1, 2, 3)", "NOT users.vip", "users.closed < '2020-03-01'"]  # fmt: skip


@st.composite
def questions(draw: Any) -> str:
    kind = draw(st.integers(0, 4))
    if kind < 2:
        target = draw(condition(True))
    elif kind == 2:
        target = draw(aggregation(True))
    else:
        parts = [draw(aggregation(True)) for _ in range(2)]
        target = f" {draw(st.sampled_from('+-*/'))} ".join(parts)
    filters = draw(st.lists(st.one_of(condition(False), st.sampled_from(STATIC)), max_size=2))
    where = f" WHERE {draw(st.sampled_from([' AND ', ' OR '])).join(filters)}" if filters else ""
    assuming = f" ASSUMING {draw(condition(True))}" if draw(st.integers(0, 4)) == 0 else ""
    return f"PREDICT {target} FOR EACH users.id{where}{assuming}"


def same(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return one.keys() == other.keys() and all(
        math.isclose(v, other[k], rel_tol=1e-9, abs_tol=1e-9)
        if isinstance(v, float)
        else v == other[k]
        for k, v in one.items()
    )


@pytest.mark.slow
@settings(examples(40), deadline=None)
@given(questions(), st.integers(0, 50))
def test_random_questions_have_the_labels_that_loops_give(text: str, seed: int) -> None:
    try:
        question = analyse(parse(text), SCHEMA)
    except QueryError:
        return
    tables = random_tables(seed)
    assert same(sql_labels(question, tables), slow_labels(question, tables, SEEDS))


@pytest.mark.parametrize(
    "text",
    [
        "PREDICT LIST_DISTINCT(orders.item, 0, 20, days) RANK TOP 5 FOR EACH users.id",
        "PREDICT LIST_DISTINCT(orders.item WHERE items.kind != 'a', 0, 1, month) FOR EACH users",
        "PREDICT LIST_DISTINCT(friends.other, 0, 30, days) FOR EACH users.id WHERE users.vip",
        "PREDICT LIST_DISTINCT(orders.item, 0, 40, days) FOR EACH regions.id",
        "PREDICT LAST(orders.status, 0, 30, days) FOR EACH users.id",
        "PREDICT LAST(orders.status, 0, 30, days) CONTAINS 'b' FOR EACH users.id",
        "PREDICT FIRST(views.seconds, 0, 30, days) CLASSIFY FOR EACH items.id",
        "PREDICT COUNT(orders.*, 0, 5) > 0 FOR EACH items.id WHERE COUNT(tags.*) > 0",
        "PREDICT SUM(lines.amount, 0, 3, weeks) FOR EACH regions.id WHERE regions.size > 0",
        "PREDICT AVG(orders.total, NEXT 2 MONTHS) / users.age FOR EACH users.id",
        "PREDICT COUNT(orders.*, NEXT 30 DAYS) = 0 FOR EACH users.id WHERE LIST_DISTINCT(orders.status, LAST 60 DAYS) CONTAINS 'a'",
        "PREDICT COUNT(orders.* WHERE users.plan = 'a', 0, 30, days) FOR EACH items.id WHERE COUNT(views.*) > 2",
        "PREDICT COUNT(users.* VIA views.user, 0, 30, days) FOR EACH items.id",
    ],
)  # fmt: skip
def test_questions_of_every_kind_have_the_labels_that_loops_give(text: str) -> None:
    question = analyse(parse(text), SCHEMA)
    labels = 0
    for seed in range(6):
        tables = random_tables(seed)
        found = sql_labels(question, tables)
        assert same(found, slow_labels(question, tables, SEEDS)), seed
        labels += len(found)
    assert labels


def test_a_list_of_categories_becomes_one_label_each() -> None:
    text = "PREDICT LIST_DISTINCT(orders.status, 0, 30, days) CLASSIFY FOR EACH users.id"
    question = analyse(parse(text), SCHEMA)
    assert question.kind == "multilabel"
    classes = ("it's", "a", "{timedelta}")
    tables = random_tables(1)
    found = sql_labels(question, tables, classes)
    assert found
    assert found == slow_labels(question, tables, SEEDS, classes)


def test_the_windows_of_a_forecast_follow_each_other() -> None:
    whole = analyse(
        parse("PREDICT COUNT(orders.*, 0, 7, days) FORECAST 3 TIMEFRAMES FOR EACH users.id"), SCHEMA
    )
    tables = random_tables(2)
    total = analyse(parse("PREDICT COUNT(orders.*, 0, 21, days) FOR EACH users.id"), SCHEMA)
    parts = [sql_labels(forecast_step(whole, step), tables) for step in range(3)]
    assert [forecast_step(whole, s).horizon for s in range(3)] == [7 * DAY, 14 * DAY, 21 * DAY]
    assert {k: sum(p[k] for p in parts) for k in parts[0]} == sql_labels(total, tables)


def test_a_table_may_have_the_name_of_a_part_of_the_sql() -> None:
    tables = {
        "asked": _table("asked", "id:integer", "id", None),
        "rows_1": _table("rows_1", "asked:integer at:time", None, "at", asked="asked"),
    }
    question = analyse(
        parse("PREDICT COUNT(rows_1.*, 0, 5) FOR EACH asked.id"), QuerySchema(tables)
    )
    frames = {
        "asked": pd.DataFrame({"id": [0, 1]}),
        "rows_1": pd.DataFrame({"asked": [1], "at": [SEEDS[0] + DAY]}),
    }
    db = Database({n: Table(f, {}, None, None) for n, f in frames.items()})
    frame = run_sql(compile_question(question).sql, db, SEEDS[:1], DAY)
    assert dict(zip(frame["id"], frame["label"])) == {0: 0, 1: 1}
