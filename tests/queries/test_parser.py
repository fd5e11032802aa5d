"""Questions are read as their authors mean them, and refused where they went wrong."""

from __future__ import annotations

import pytest

from relfrog.errors import QueryError
from relfrog.queries.parser import parse
from relfrog.queries.syntax import Aggregation, Arithmetic, Comparison, Logical, Not, Window


def error(text: str) -> tuple[str, str]:
    """What is said of a wrong question, and what of it is pointed at."""
    with pytest.raises(QueryError) as caught:
        parse(text)
    said, line, mark = str(caught.value).rsplit("\n", 2)
    start = len(mark) - len(mark.lstrip())
    return said, line[start : start + mark.count("^")]


def test_a_question_has_its_clauses() -> None:
    query = parse(
        "predict count(orders.*, 0, 30, days) = 0 for each customers.customer_id "
        "where count(orders.*, -90, 0, days) > 0 assuming customers.plan = 'it''s' -- so\n;"
    )
    assert isinstance(query.target, Comparison)
    assert isinstance(query.target.left, Aggregation)
    assert query.target.left.window is not None
    assert (query.target.left.window.start, query.target.left.window.end) == (0, 30)
    assert str(query.entity) == "customers.customer_id"
    assert isinstance(query.where, Comparison)
    assert isinstance(query.assuming, Comparison)
    assert query.assuming.right.value == "it's"  # type: ignore[union-attr]
    assert query.only is None


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("0, 30", (0, 30, "DAY")),
        ("-INF, 0", (None, 0, "DAY")),
        ("-7, 0, days", (-7, 0, "DAY")),
        ("0, 2, months", (0, 2, "MONTH")),
        ("NEXT 30 DAYS", (0, 30, "DAY")),
        ("last 90 days", (-90, 0, "DAY")),
        ("NEXT MONTH", (0, 1, "MONTH")),
        ("3, 4, hours", (3, 4, "HOUR")),
    ],
)
def test_windows(text: str, window: tuple[int | None, int, str]) -> None:
    target = parse(f"PREDICT COUNT(t.*, {text}) FOR EACH u.id").target
    assert isinstance(target, Aggregation)
    found = target.window
    assert isinstance(found, Window)
    assert (found.start, found.end, found.unit) == window


def test_modes_and_lists_of_keys() -> None:
    assert parse("PREDICT LIST_DISTINCT(o.i, 0, 7) RANK TOP 12 FOR EACH u.id").rank == 12
    assert parse("PREDICT LIST_DISTINCT(o.i, 0, 7) CLASSIFY FOR EACH u.id").classify
    assert parse("PREDICT SUM(o.x, 0, 7) FORECAST 4 TIMEFRAMES FOR EACH u.id").forecast == 4
    only = parse("PREDICT SUM(o.x, 0, 7) FOR u.id IN (1, -2, 'x')").only
    assert only is not None
    assert [item.value for item in only] == [1, -2, "x"]
    one = parse('PREDICT SUM(o.x, 0, 7) FOR u.id = "text"').only
    assert one is not None
    assert one[0].value == "text"


def test_what_binds_tighter() -> None:
    where = parse(
        "PREDICT COUNT(o.*, 0, 1) FOR EACH u WHERE u.a = 1 OR NOT u.b > 2 AND u.c < 3"
    ).where
    assert isinstance(where, Logical)
    assert where.operator == "OR"
    assert isinstance(where.items[1], Logical)
    assert isinstance(where.items[1].items[0], Not)
    target = parse("PREDICT SUM(o.x, 0, 1) + 2 * SUM(o.y, 0, 1) > 5 FOR EACH u").target
    assert isinstance(target, Comparison)
    assert isinstance(target.left, Arithmetic)
    assert target.left.operator == "+"


def test_names_may_be_quoted() -> None:
    target = parse('PREDICT SUM("order lines"."the ""total""", 0, 1) FOR EACH `select`.id').target
    assert isinstance(target, Aggregation)
    assert target.column.parts == ("order lines", 'the "total"')


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("PREDIC COUNT(o.*, 0, 1) FOR EACH u.id", "did you mean PREDICT?", "PREDIC"),
        ("PREDICT CONT(o.*, 0, 1) FOR EACH u.id", "did you mean COUNT?", "CONT"),
        ("PREDICT COUNT(o.*, 0 1) FOR EACH u.id", "expected ,", "1"),
        ("PREDICT COUNT(o.*, 0, 30, dayz) FOR EACH u.id", "did you mean days?", "dayz"),
        ("PREDICT COUNT(o.*, 5, 1) FOR EACH u.id", "must end after it starts (from 5 to 1)", "5, 1"),
        ("PREDICT COUNT(o.*, 0, 1) FOR EACH u.id WERE u.a = 1", "did you mean WHERE?", "WERE"),
        ("PREDICT COUNT(o.*, 0, 1) FOR EACH u.id WHERE u.a = 'x", "is not closed", "'"),
        ("PREDICT COUNT(o.*, 0, 1) FOR EACH u.id WHERE u.a = NULL", "IS NULL", "NULL"),
        ("PREDICT COUNT(o.*, 0, 1) FOR EACH u.id WHERE u.a > 2020-13-01", "no such date", "2020-13-01"),
        ("PREDICT COUNT(o.*, 0, 1)", "expected FOR after the target, not the end", "^"[:0]),
        ("PREDICT LIST_DISTINCT(o.i, 0, 1) RANK 5 FOR EACH u", "expected TOP", "5"),
        ("PREDICT COUNT(o.*, 0, 1) FOR EACH u.id WHERE " + "(" * 60 + "1", "nested", "("),
        ("PREDICT " + "1+" * 80 + "1 FOR EACH u", "signs", "+"),
        ("", "expected PREDICT, not the end", ""),
    ],
)  # fmt: skip
def test_errors_point_at_the_place(text: str, said: str, place: str) -> None:
    found, pointed = error(text)
    assert said in found
    assert pointed.strip() == place
