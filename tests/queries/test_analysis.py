"""Names, types, ways and leaks: what cannot be answered rightly is refused with the reason."""

from __future__ import annotations

import pandas as pd
import pytest

from queries.test_compiler import SCHEMA
from relfrog.errors import QueryError
from relfrog.queries.analysis import analyse
from relfrog.queries.parser import parse
from relfrog.queries.question import Question


def ask(text: str) -> Question:
    return analyse(parse(text), SCHEMA)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("COUNT(orders.*, 0, 30) = 0", "binary"),
        ("AVG(orders.total, 0, 30) BETWEEN 1 AND 2", "binary"),
        ("SUM(orders.total, 0, 30)", "regression"),
        ("SUM(orders.total, 0, 30) / COUNT(orders.*, 0, 30)", "regression"),
        ("LAST(orders.total, 0, 30)", "regression"),
        ("LAST(orders.status, 0, 30)", "multiclass"),
        ("FIRST(views.seconds, 0, 30) CLASSIFY", "multiclass"),
        ("LIST_DISTINCT(orders.item, 0, 30)", "recommendation"),
        ("LIST_DISTINCT(orders.item, 0, 30) CLASSIFY", "multilabel"),
        ("LIST_DISTINCT(orders.status, 0, 30)", "multilabel"),
        ("LIST_DISTINCT(orders.status, 0, 30) CONTAINS 'a'", "binary"),
    ],
)
def test_the_type_of_task_follows_from_the_target(target: str, kind: str) -> None:
    assert ask(f"PREDICT {target} FOR EACH users.id").kind == kind


@pytest.mark.parametrize(
    ("window", "days"),
    [
        ("0, 30", 30),
        ("NEXT 1 MONTH", 31),
        ("0, 2, months", 62),
        ("3, 5, weeks", 35),
        ("0, 1, years", 366),
    ],
)
def test_the_horizon_is_the_longest_that_a_window_can_be(window: str, days: int) -> None:
    assert ask(f"PREDICT COUNT(orders.*, {window}) FOR EACH users.id").horizon == pd.Timedelta(
        days=days
    )


def test_names_are_found_whatever_their_case() -> None:
    found = ask("PREDICT SUM(ORDERS.Total, 0, 30) FOR EACH Users.ID")
    assert found.entity.name == "users"


def test_a_column_is_filled_in() -> None:
    assert ask("PREDICT users.plan FOR EACH users.id").column == "plan"


def test_values_are_assumed_apart_from_what_happens() -> None:
    found = ask(
        "PREDICT COUNT(orders.*, 0, 9) FOR EACH users.id ASSUMING users.plan = 'a' AND COUNT(views.*, 0, 7) > 2"
    )
    assert [(a.column, a.value) for a in found.assumed] == [("plan", "a")]
    assert found.condition is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("PREDICT SUM(orders.tota, 0, 30) FOR EACH users.id", "orders.tota: no such column; did you mean total?"),
        ("PREDICT SUM(order.total, 0, 30) FOR EACH users.id", "order: no such table; did you mean orders?"),
        ("PREDICT SUM(total, 0, 30) FOR EACH users.id", "write total with its table: orders.total"),
        ("PREDICT SUM(orders.status, 0, 30) FOR EACH users.id", "SUM needs a number, and orders.status is text"),
        ("PREDICT SUM(orders.item, 0, 30) FOR EACH users.id", "is a key"),
        ("PREDICT COUNT(orders.*, 0, 30) > 'a' FOR EACH users.id", "expected a number to compare with, not text"),
        ("PREDICT COUNT(orders.*, 0, 30) FOR EACH users.id WHERE users.plan", "expected a condition"),
        ("PREDICT COUNT(orders.*, 0, 30) FOR EACH users.id WHERE users.joined > 'soon'", "expected a time"),
        ("PREDICT COUNT(friends.*, 0, 30) FOR EACH users.id", "in 2 ways: VIA friends.one or VIA friends.other"),
        ("PREDICT COUNT(regions.*, 0, 30) FOR EACH items.id", "no foreign keys join them"),
        ("PREDICT COUNT(\"item tags\".*, 0, 30) FOR EACH items.id", "has no time column"),
        ("PREDICT COUNT(orders.*, 0, 30) FOR EACH orders.user", "needs the primary key: orders.id"),
        ("PREDICT COUNT(orders.*, 0, 30) FOR EACH views.item", "views has no primary key"),
        # Leaks.
        ("PREDICT COUNT(orders.*, 0, 30) FOR EACH users.id WHERE COUNT(views.*, 0, 7) > 0", "WHERE must look back"),
        ("PREDICT COUNT(orders.*, -7, 30) FOR EACH users.id", "the target must look ahead"),
        ("PREDICT SUM(orders.total, 0, 30) > SUM(orders.total, -30, 0) FOR EACH users.id", "the target must look ahead"),
        ("PREDICT COUNT(orders.*) FOR EACH users.id", "needs a window"),
        ("PREDICT users.age > 3 FOR EACH users.id", "the target looks at nothing later"),
        ("PREDICT LIST_DISTINCT(orders.id, 0, 30) FOR EACH users.id", "nobody can name them in advance"),
        ("PREDICT LAST(orders.item, 0, 30) FOR EACH users.id", "RANK TOP 1"),
        ("PREDICT COUNT(orders.*, 0, 30) FOR EACH users.id WHERE orders.total > 3", "has no single row of orders"),
        ("PREDICT MAX(orders.at, 0, 30) FOR EACH users.id", "this is a time"),
        ("PREDICT LIST_DISTINCT(orders.status, 0, 30) RANK TOP 3 FOR EACH users.id", "--entity-from orders.status=NAME"),
        ("PREDICT COUNT(orders.*, 0, 30) > 0 FORECAST 3 TIMEFRAMES FOR EACH users.id", "FORECAST needs a number"),
        ("PREDICT COUNT(orders.*, 0, 30) FORECAST 300 TIMEFRAMES FOR EACH users.id", "at most 24 timeframes"),
        ("PREDICT COUNT(orders.*, 0, 30) FOR EACH users.id ASSUMING users.id = 3", "cannot be assumed"),
        ("PREDICT COUNT(orders.*, 0, 30) FOR EACH users.id ASSUMING users.* = 3", "users.* is no value"),
        ("PREDICT COUNT(orders.*, 0, 30) FOR EACH users.id ASSUMING users.age > 3", "assume a value"),
        ("PREDICT COUNT(orders.* WHERE COUNT(views.*, 0, 1) > 0, 0, 30) FOR EACH users.id", "cannot stand inside"),
        ("PREDICT COUNT(orders.*, 0, 900, years) FOR EACH users.id", "more than a hundred years"),
    ],
)  # fmt: skip
def test_what_is_refused_and_why(text: str, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        ask(text)
    assert said in str(caught.value)
    assert str(caught.value).rstrip().endswith("^")
