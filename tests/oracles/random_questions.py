"""Random questions about the tables of the compiler's tests, and what parts of the language they use."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime

from relfrog.queries.question import Question
from relfrog.queries.syntax import (
    AGGREGATIONS,
    Aggregation,
    Arithmetic,
    Column,
    Comparison,
    Expression,
    Literal,
    Logical,
    Match,
    walk,
)

#: Whose rows lead to whom, with the way where there are several.
EVENTS = {
    "users": ["orders", "views", "lines", "friends VIA friends.one", "items VIA orders.item"],
    "items": ["orders", "views", "lines", "tags", "users VIA views.user"],
    "regions": ["orders", "views", "lines", "users"],
}
COLUMNS = {
    "orders": {"total": "number", "status": "text", "item": "key"},
    "views": {"seconds": "number", "item": "key"},
    "lines": {"amount": "number"},
    "items": {"price": "number", "kind": "text"},
    "users": {"age": "number", "plan": "text", "vip": "boolean"},
    "friends": {"other": "key"},
    "tags": {"word": "text"},
}
#: Of tables without a time, questions may ask in WHERE alone, and without a window.
TIMELESS = ("tags",)
INNER = {
    "orders": [
        "orders.status = 'a'",
        "orders.total BETWEEN 0 AND 5",
        "items.kind LIKE 'a%'",
        "orders.status IS NULL OR items.price > 1.5",
        "NOT orders.status IN ('a', 'it''s')",
        "regions.name != 'ab'",
    ],
    "views": ["views.seconds > 2", "items.kind STARTS WITH 'a'", "users.vip = true"],
    "lines": ["orders.status CONTAINS 'b'", "lines.amount != 3", "items.added > 2020-02-09"],
    "items": ["items.kind = '{timedelta}'", "items.kind ENDS WITH 'b'"],
    "users": ["users.vip", "regions.size < 1"],
    "friends": ["friends.since >= 2020-02-10"],
    "tags": ["tags.word <= 'ab'"],
}
STATIC = {
    "users": [
        "users.plan = 'a'",
        "users.age >= 2",
        "users.vip",
        "regions.name != 'b%'",
        "users.closed IS NULL",
        "users.id IN (1, 2, 3)",
        "NOT users.vip",
        "users.closed < '2020-03-01'",
        "users.age BETWEEN -1 AND 5",
        "users.plan NOT LIKE '_b%'",
        "users.age * 2 - 1 > 3",
    ],
    "items": ["items.price > 1", "items.kind IN ('a', 'ab')", "items.kind STARTS WITH 'A'"],
    "regions": ["regions.size > 0", "regions.name IS NOT NULL"],
}
UNITS = {"seconds": 900_000, "minutes": 30_000, "hours": 500, "days": 25, "weeks": 4,
         "months": 2, "years": 1}  # fmt: skip


def random_question(seed: int) -> str:
    """A question that can be answered, most of the time."""
    return _Writer(random.Random(f"question {seed}")).question()


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.entity = rng.choice(["users", "users", "items", "regions"])

    def chance(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    def question(self) -> str:
        target, mode = self.target()
        where = assuming = ""
        if self.rng.random() < 0.7:
            parts = [self.filter() for _ in range(self.rng.choice([1, 1, 2, 2, 3]))]
            where = f" WHERE {self.rng.choice([' AND ', ' OR ', ' OR ']).join(parts)}"
        if self.chance(8) and "FORECAST" not in mode:
            assuming = f" ASSUMING {self.condition(True)}"
        return f"PREDICT {target}{mode} FOR EACH {self.entity}.id{where}{assuming}"

    def target(self) -> tuple[str, str]:
        kind = self.rng.randrange(10)
        if kind < 4:
            return self.condition(True), ""
        if kind < 5:
            return self.aggregation(True, ("number",)), self.rng.choice(
                ["", " FORECAST 2 TIMEFRAMES"]
            )
        if kind < 7:
            operator = self.rng.choice("+-*/")
            other = self.rng.choice(["2.5", f"-{self.aggregation(True, ('number',))}"])
            if self.entity == "users" and self.chance(3):
                other = "users.age"
            return f"{self.aggregation(True, ('number',))} {operator} {other}", ""
        if kind == 7:
            return self.aggregation(True, ("text",), ("FIRST", "LAST", "MIN", "MAX")), ""
        if kind == 8:
            return self.aggregation(True, ("key",), ("LIST_DISTINCT",)), " RANK TOP 3"
        return self.aggregation(True, ("text",), ("LIST_DISTINCT",)), " CLASSIFY"

    def filter(self) -> str:
        if self.chance(3):
            return self.rng.choice(STATIC[self.entity])
        return self.condition(False)

    def condition(self, ahead: bool, depth: int = 2) -> str:
        if depth and self.chance(5):
            parts = [self.condition(ahead, depth - 1) for _ in range(2)]
            return f"({parts[0]} {self.rng.choice(['AND', 'OR'])} {parts[1]})"
        if depth and self.chance(8):
            return f"NOT {self.condition(ahead, depth - 1)}"
        kind = self.rng.randrange(10)
        if kind == 0:
            value = self.aggregation(ahead, ("number", "text", "key"))
            return f"{value} IS {self.rng.choice(['', 'NOT '])}NULL"
        if kind == 1:
            value = self.aggregation(ahead, ("text",), ("LIST_DISTINCT",))
            return f"{value} CONTAINS 'a'"
        if kind == 2:
            value = self.aggregation(ahead, ("text",), ("FIRST", "LAST", "MIN", "MAX"))
            how = self.rng.choice(["= 'a'", "LIKE '%b'", "CONTAINS 'a'", "STARTS WITH 'A'",
                                   "ENDS WITH 'b'", "IN ('a', 'ab')", "!= 'ab'"])  # fmt: skip
            return f"{value} {how}"
        value = self.aggregation(ahead, ("number",))
        if kind == 3:
            return f"{value} BETWEEN 0 AND {self.rng.randrange(1, 6)}"
        if kind == 4:
            return f"{value} NOT IN (0, 2.0, -1.25)"
        operator = self.rng.choice(["=", "!=", "<", "<=", ">", ">="])
        return f"{value} {operator} {self.rng.choice([0, 1, 2, 3, 0.5])}"

    def aggregation(
        self, ahead: bool, kinds: tuple[str, ...], functions: tuple[str, ...] = ()
    ) -> str:
        found = [
            (table, column, kind)
            for table in EVENTS[self.entity]
            for column, kind in [*COLUMNS[table.split()[0]].items(), ("*", "number")]
            if kind in kinds and not (ahead and table in TIMELESS)
            and not (functions and column == "*")
        ]  # fmt: skip
        if not found:
            return "COUNT(orders.*, 0, 9)" if ahead else "COUNT(orders.*, -9, 0)"
        table, column, kind = self.rng.choice(found)
        name, _, via = table.partition(" ")
        if not functions:
            functions = ("COUNT",) if column == "*" else ("COUNT", "COUNT_DISTINCT")
            if kind == "number" and column != "*":
                functions += ("SUM", "AVG", "MIN", "MAX")
                functions += () if name in TIMELESS else ("FIRST", "LAST")
        if name in TIMELESS:
            functions = tuple(f for f in functions if f not in ("FIRST", "LAST")) or ("COUNT",)
        where = f" WHERE {self.rng.choice(INNER[name])}" if self.chance(3) else ""
        inside = f"{name}.{column}{' ' * bool(via)}{via}{where}"
        return f"{self.rng.choice(functions)}({inside}{self.window(ahead, name)})"

    def window(self, ahead: bool, table: str) -> str:
        if table in TIMELESS or (not ahead and self.chance(6)):
            return ""
        if not ahead and self.chance(6):
            return ", -INF, 0"
        unit = self.rng.choice([*UNITS, "days", "days", "weeks"])
        most = UNITS[unit]
        if self.chance(4):
            word = "NEXT" if ahead else "LAST"
            return f", {word} {self.rng.randrange(1, most + 1)} {unit.upper()}"
        low = 0 if self.chance(2) else self.rng.randrange(most)
        high = self.rng.randrange(low + 1, most + 2)
        return f", {low}, {high}, {unit}" if ahead else f", -{high}, -{low}, {unit}"


#: Everything that random questions must reach.
ALL = {
    *(f"{function} in {part}" for function in AGGREGATIONS for part in ("target", "where")),
    *(f"kind {k}" for k in ("binary", "regression", "multiclass", "multilabel", "recommendation")),
    *(f"unit {unit.upper().rstrip('S')}" for unit in UNITS),
    *("window ever", "no window", "window later", "window now"),
    *(f"compare {operator}" for operator in ("=", "!=", "<", "<=", ">", ">=")),
    *(f"match {operator}" for operator in ("LIKE", "STARTS", "ENDS", "CONTAINS")),
    *(f"compute {operator}" for operator in "+-*/"),
    *(f"value {kind}" for kind in ("int", "float", "str", "bool", "datetime")),
    *("AND", "OR", "Not", "InList", "Between", "IsNull", "empty count", "list contains"),
    *("own column", "column above", "inner own", "inner above", "way 1", "way 2", "way down"),
    *("assuming", "forecast", "entity with a time", "entity without"),
}  # fmt: skip


def constructs(question: Question) -> set[str]:
    """The parts of the language that a question uses."""
    query = question.query
    found = {f"kind {question.kind}"}
    found.add("entity with a time" if question.entity.time else "entity without")
    found |= {"forecast"} if query.forecast else set()
    found |= {"assuming"} if question.condition is not None else set()
    for part, whole in (("target", query.target), ("where", query.where),
                        ("assuming", question.condition)):  # fmt: skip
        for item in walk(whole) if whole is not None else ():
            found |= set(_uses(item, question, "own column", "column above"))
            if isinstance(item, Aggregation):
                found.add(f"{item.function} in {part}")
    for source in question.sources.values():
        found.add(
            "way down" if any(not step.up for step in source.path) else f"way {len(source.path)}"
        )
        window = source.window
        if window is None:
            found.add("no window")
        else:
            found.add(f"unit {window.unit}")
            found.add(
                f"window {'ever' if window.start is None else 'later' if window.start > 0 else 'now'}"
            )
        for item in walk(source.where) if source.where is not None else ():
            found |= set(_uses(item, question, "inner own", "inner above"))
    return found


def _uses(item: Expression, question: Question, own: str, above: str) -> Iterator[str]:
    if isinstance(item, Comparison):
        yield f"compare {item.operator}"
    elif isinstance(item, Match):
        yield f"match {item.operator}"
        if isinstance(item.value, Aggregation) and item.value.function == "LIST_DISTINCT":
            yield "list contains"
    elif isinstance(item, Arithmetic):
        yield f"compute {item.operator}"
    elif isinstance(item, Literal):
        time = item in question.times or isinstance(item.value, datetime)
        yield f"value {'datetime' if time else type(item.value).__name__}"
    elif isinstance(item, Logical):
        yield item.operator
    elif isinstance(item, Column):
        yield above if question.columns[item][2] else own
    else:
        yield type(item).__name__
        value = getattr(item, "value", None)
        if isinstance(value, Aggregation) and value.function.startswith("COUNT"):
            yield "empty count"
