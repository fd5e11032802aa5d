"""Random and damaged questions: a question that runs or a QueryError, never a traceback, no hang.

    python benchmarks/fuzz_questions.py --count 120000 --out benchmarks/fuzz-questions.json

A question is drawn from pieces that fit, then damaged: words exchanged, left out, repeated,
characters altered, texts of others put in. It is parsed, checked against a schema and compiled.
What compiles must be SQL that DuckDB can bind; some are tried.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import duckdb

from measuring import command_line
from relfrog.errors import QueryError
from relfrog.queries.analysis import analyse
from relfrog.queries.compiler import compile_question
from relfrog.queries.parser import parse
from relfrog.queries.schema import ForeignKey, QuerySchema, QueryTable

#: No input may take longer, in seconds of processor time.
LONGEST = 2.0
#: The share of questions that could be answered before they are damaged.
FITTING = 0.15
#: Of questions that compile, DuckDB is asked about two in so many.
BOUND = 40
_TYPES = {"integer": "BIGINT", "number": "DOUBLE", "text": "VARCHAR", "boolean": "BOOLEAN",
          "time": "TIMESTAMP"}  # fmt: skip
_NASTY = ("'", '"', "`", "--", ";", "\0", "\n", "é", "日本", "🐸", "%s", "{timedelta}", "\\",
          "(" * 50, "-" * 30, "NOT " * 60, "1e999", "9" * 40, "0x1", "2020-02-30", "\u202e",
          "\ud83d", "*.*", "NULL", "-INF", "..", "$1", "/*", "*/", "/* x */", "#", "INF",
          "2020-01-01T10:00:00Z", "STARTS_WITH", "DISTINCT", "x" * 5000, "1+" * 200)  # fmt: skip


def _table(name: str, columns: str, pkey: str | None, time_: str | None, **keys: str) -> QueryTable:
    kinds = dict(part.split(":") for part in columns.split())
    fkeys = {c: ForeignKey(name, c, parent, "id") for c, parent in keys.items()}
    return QueryTable(name, kinds, pkey, time_, fkeys, 9)


SCHEMA = QuerySchema(
    {
        t.name: t
        for t in (
            _table("regions", "id:integer name:text size:number", "id", None),
            _table("users", "id:integer plan:text age:integer vip:boolean joined:time "
                   "region:integer", "id", "joined", region="regions"),
            _table("items", "id:integer kind:text price:number added:time", "id", "added"),
            _table("orders", "id:integer user:integer item:integer total:number status:text "
                   "at:time", "id", "at", user="users", item="items"),
            _table("order lines", "order:integer amount:integer known:time", None, "known",
                   order="orders"),
            _table("friends", "one:integer other:integer since:time", None, "since",
                   one="users", other="users"),
        )
    }
)  # fmt: skip


def draw(rng: random.Random, fitting: float = 0.4) -> str:
    """A question from pieces that fit, more or less; a share of them can be answered."""
    if rng.random() < fitting:
        return _fitting(rng)
    entity = rng.choice(["users", "users", "items", "regions", "orders"])
    target = _expression(rng, 2, True)
    mode = rng.choice(["", "", "", " CLASSIFY", " RANK TOP 3", " FORECAST 2 TIMEFRAMES"])
    where = f" WHERE {_expression(rng, 2, False)}" if rng.random() < 0.5 else ""
    given = f" ASSUMING {_expression(rng, 1, True)}" if rng.random() < 0.2 else ""
    only = rng.choice(["", "", " = 3", " IN (1, 'x')"])
    return f"PREDICT {target}{mode} FOR EACH {entity}.id{only}{where}{given}"


def _fitting(rng: random.Random) -> str:
    """A question that can be answered."""
    target = _number(rng, True)
    if rng.random() < 0.5:
        target += f" {rng.choice(['>', '=', '<=', '!='])} {rng.randrange(5)}"
    elif rng.random() < 0.3:
        target = f"{target} {rng.choice('+-*/')} {_number(rng, True)}"
    elif rng.random() < 0.2:
        target = "LIST_DISTINCT(orders.item, 0, 9, days) RANK TOP 4"
    conditions = [
        "users.plan LIKE 'a%'", "users.age BETWEEN 3 AND 9", "NOT users.vip", "regions.size > 0.5",
        "users.joined >= 2020-01-01", f"{_number(rng, False)} > 1",
        f"({_number(rng, False)} < 3 OR users.plan IS NULL)", "users.id IN (1, 2, 3)",
    ]  # fmt: skip
    some = rng.sample(conditions, rng.randrange(4))
    where = f" WHERE {rng.choice([' AND ', ' OR ']).join(some)}" if some else ""
    given = rng.choice(
        ["", "", f" ASSUMING {_number(rng, True)} > 0", " ASSUMING users.plan = 'b'"]
    )
    return f"PREDICT {target} FOR EACH users.id{where}{given}"


def _number(rng: random.Random, ahead: bool) -> str:
    """An aggregation that gives a number."""
    column = rng.choice(
        ["orders.total", "orders.*", '"order lines".amount', "friends.* VIA friends.one"]
    )
    functions = ["COUNT"] if "*" in column else ["COUNT", "SUM", "AVG", "MIN", "MAX", "LAST"]
    inner = {"orders.total": " WHERE items.price > 2", "orders.*": " WHERE orders.status != 'x'"}
    where = inner.get(column, "") if rng.random() < 0.4 else ""
    low, high = sorted(rng.sample(range(40), 2))
    window = f"{low}, {high}" if ahead else f"-{high}, -{low}"
    unit = rng.choice(["days", "months", "hours", "weeks"])
    return f"{rng.choice(functions)}({column}{where}, {window}, {unit})"


def _expression(rng: random.Random, depth: int, ahead: bool) -> str:
    kind = rng.randrange(9)
    if depth and kind < 2:
        parts = [_expression(rng, depth - 1, ahead) for _ in range(rng.randrange(2, 4))]
        return "(" + rng.choice([" AND ", " OR ", " + ", " / ", " - "]).join(parts) + ")"
    if depth and kind == 2:
        return f"NOT {_expression(rng, depth - 1, ahead)}"
    left = _aggregation(rng, ahead) if kind < 8 else _column(rng)
    right = rng.choice(["3", "0.5", "'a'", "2020-01-01", "true", "-1", _column(rng)])
    tail = rng.choice(
        ["", "", f" {rng.choice(['=', '!=', '<', '>=', '<>'])} {right}", f" IN ({right}, 4)",
         " IS NOT NULL", f" BETWEEN 1 AND {right}", " LIKE 'a%'", " CONTAINS 'x'",
         " NOT STARTS WITH 'b'"]
    )  # fmt: skip
    return left + tail


def _aggregation(rng: random.Random, ahead: bool) -> str:
    function = rng.choice(["COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST", "LAST", "LIST_DISTINCT",
                           "COUNT_DISTINCT"])  # fmt: skip
    via = rng.choice(["", "", " VIA friends.one", " VIA orders.user"])
    where = (
        f" WHERE {_column(rng)} {rng.choice(['> 2', 'IS NULL', '= 1'])}"
        if rng.random() < 0.3
        else ""
    )
    low, high = sorted(rng.sample(range(40), 2))
    unit = rng.choice(["days", "months", "hours", "weeks", "years", ""])
    bounds = f"{low}, {high}" if ahead else f"-{high}, -{low}"
    window = rng.choice(
        [f", {bounds}{', ' if unit else ''}{unit}", ", NEXT 3 DAYS", "", ", -INF, 0"]
    )
    return f"{function}({_column(rng)}{via}{where}{window})"


def _column(rng: random.Random) -> str:
    table = rng.choice(list(SCHEMA.tables.values()))
    column = rng.choice(["*", *table.columns])
    shown = f'"{table.name}"' if " " in table.name or rng.random() < 0.1 else table.name
    return f"{shown}.{column}"


def damage(rng: random.Random, text: str) -> str:
    """The same, altered in some places; or not at all."""
    for _ in range(rng.choice([0, 0, 1, 1, 2, 5])):
        words = re.findall(r"\w+|\s+|.", text, re.S) or [""]
        place, other = rng.randrange(len(words)), rng.randrange(len(words))
        way = rng.randrange(7)
        if way == 0:
            words[place] = ""
        elif way == 1:
            words[place], words[other] = words[other], words[place]
        elif way == 2:
            words[place] *= rng.choice([2, 2, 3, 20])
        elif way == 3:
            words[place] = rng.choice(_NASTY)
        elif way == 4:
            words[place] = "".join(
                chr(rng.choice([rng.randrange(128), rng.randrange(0x3000)])) for _ in range(5)
            )
        elif way == 5:
            words = words[: place + 1]
        else:
            words[place] = draw(rng)
        text = "".join(words)[:30_000]
    return text


def try_question(text: str, connection: Any = None) -> str:
    """What becomes of a question: "success" or "error".

    Args:
        text: The question.
        connection: A DuckDB with the tables, to bind the SQL in.
    """
    try:
        question = analyse(parse(text), SCHEMA)
        if question.column is None:
            sql = compile_question(question, ("a", "b")).sql
            if connection is not None:
                connection.execute(f"EXPLAIN {sql}")
    except QueryError as error:
        said = str(error).split("\n")
        assert len(said) >= 3, said
        assert set(said[-1].strip()) == {"^"}, said
        return "error"
    return "success"


def tables() -> Any:
    """A DuckDB with the tables of the schema, without rows."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("CREATE TABLE timestamps (timestamp TIMESTAMP)")
    for table in SCHEMA.tables.values():
        columns = ", ".join(f'"{c}" {_TYPES[k]}' for c, k in table.columns.items())
        connection.execute(f'CREATE TABLE "{table.name}" ({columns})')
    return connection


def try_all(seed: int, numbers: range) -> tuple[Counter[str], list[str], int, float]:
    """Try questions by their numbers; outcomes, defects, how many DuckDB saw, the slowest."""
    found: Counter[str] = Counter()
    defects: list[str] = []
    slowest, connection, bound = 0.0, tables(), 0
    for number in numbers:
        rng = random.Random(f"{seed} {number}")
        text = damage(rng, draw(rng, FITTING))
        began = time.process_time()
        try:
            bind = number % BOUND < 2
            outcome = try_question(text, connection if bind else None)
            bound += bind and outcome == "success"
        except Exception as error:
            outcome = "traceback"
            traceback.print_exc(limit=-4)
            defects.append(f"{number}: {type(error).__name__}: {str(error)[:300]}")
        took = time.process_time() - began
        slowest = max(slowest, took)
        if took > LONGEST:
            defects.append(f"{number}: {took:.1f} s")
        found[outcome] += 1
    connection.close()
    return found, defects, bound, slowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    parts = [range(start, options.count, options.workers) for start in range(options.workers)]
    with ProcessPoolExecutor(options.workers) as pool:
        tried = list(pool.map(try_all, [options.seed] * len(parts), parts))
    found = sum((part[0] for part in tried), Counter())
    defects = [text for part in tried for text in part[1]]
    bound, slowest = sum(part[2] for part in tried), max(part[3] for part in tried)
    result = {
        "command": command_line(), "inputs": options.count, **found,
        "bound_by_duckdb": bound, "slowest_seconds": round(slowest, 3), "defects": defects,
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1, ensure_ascii=True) + "\n")
    sys.exit(bool(defects))


if __name__ == "__main__":
    main()
