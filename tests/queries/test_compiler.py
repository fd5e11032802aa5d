"""Label SQL that is compiled from a question gives what loops over rows give."""

from __future__ import annotations

import math
import random
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from relbench.base import Database, Table

from oracles.random_questions import ALL, constructs, random_question
from oracles.slow_query import slow_labels
from relfrog.datasets.label_sql import run_sql
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


def random_tables(
    seed: int, sizes: tuple[int, ...] = (0, 12, 25)
) -> dict[str, list[dict[str, Any]]]:
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
            for n in range(counts.get(name, chance.choice(sizes)))
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


def sql_labels(
    question: Question, tables: Any, classes: Any = (), run: Any = run_sql
) -> dict[Any, Any]:
    compiled = compile_question(question, classes)
    frame = run(compiled.sql, as_database(tables), SEEDS, DAY)
    assert not frame.duplicated(["timestamp", compiled.entity]).any()
    keys = zip(pd.to_datetime(frame["timestamp"]), frame[compiled.entity].tolist())

    def plain(label: Any) -> Any:
        if isinstance(label, np.ndarray | list):
            return tuple(np.asarray(label).tolist())
        return float(label) if not isinstance(label, str) else label

    return dict(zip(keys, map(plain, frame[compiled.label]), strict=True))


def same(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return one.keys() == other.keys() and all(
        math.isclose(v, other[k], rel_tol=1e-9, abs_tol=1e-9)
        if isinstance(v, float)
        else v == other[k]
        for k, v in one.items()
    )


def run_here(sql: str, db: Database, times: list[pd.Timestamp], _: Any) -> pd.DataFrame:
    """What `run_sql` gives, without its child process: many questions take less time."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("timestamps", pd.DataFrame({"timestamp": times}))
        for name, table in db.table_dict.items():
            connection.register(name, table.df)
        return connection.execute(sql).df()


@pytest.mark.slow
def test_random_questions_reach_the_whole_language_and_have_the_labels_that_loops_give() -> None:
    reached: set[str] = set()
    for seed in range(180):
        question = analyse(parse(random_question(seed)), SCHEMA)
        tables = random_tables(seed, (0, 30, 40, 50))
        classes = ("it's", "a", "{timedelta}") if question.kind == "multilabel" else ()
        found = sql_labels(question, tables, classes, run_here)
        assert same(found, slow_labels(question, tables, SEEDS, classes)), random_question(seed)
        reached |= constructs(question) if found else set()
    assert reached >= ALL, ALL - reached


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
        "PREDICT SUM(orders.total, 0, 30) IS NULL FOR EACH users.id",
        "PREDICT COUNT(orders.status, 0, 30) IS NOT NULL FOR EACH users.id WHERE COUNT(views.*, -30, 0) IS NULL",
        "PREDICT COUNT(lines.*, 0, 30) > 0 FOR EACH orders.id WHERE items.kind IS NOT NULL",
        "PREDICT COUNT(orders.*, 0, 30) > 0 FOR EACH users.id WHERE COUNT(orders.* WHERE items.price > 1, -30, 0) > 0",
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
