"""Queries as users of the public predictive query language write them.

What is accepted means what its documentation says; what is not is refused with a reason.
"""

from __future__ import annotations

import pytest

from relfrog.errors import QueryError
from relfrog.queries.analysis import analyse
from relfrog.queries.compiler import compile_question
from relfrog.queries.parser import parse
from relfrog.queries.question import Question
from relfrog.queries.schema import ForeignKey, QuerySchema, QueryTable


def _table(
    name: str, columns: str, pkey: str | None, time: str | None, rows: int = 9, **keys: str
) -> QueryTable:
    kinds = dict(part.split(":") for part in columns.split())
    fkeys = {
        f"{own}_id": ForeignKey(name, f"{own}_id", parent, f"{own}_id")
        for own, parent in keys.items()
    }
    return QueryTable(name, kinds, pkey, time, fkeys, rows)


SCHEMA = QuerySchema(
    {
        t.name: t
        for t in (
            _table("region", "region_id:integer num_inhabitants:integer", "region_id", None),
            _table("users", "user_id:text age:integer status:text active:boolean joined:time region_id:integer", "user_id", "joined", region="region"),
            _table("items", "item_id:integer price:number description:text", "item_id", None, 5000),
            _table("stores", "store_id:integer", "store_id", None, 5),
            _table("orders", "order_id:integer user_id:text item_id:integer store_id:integer price:number status:text date:time", "order_id", "date", user="users", item="items", store="stores"),
            _table("views", "id:integer user_id:text at:time", "id", "at", user="users"),
            _table("notifications", "user_id:text type:text sent:time", None, "sent", user="users"),
        )
    }
)  # fmt: skip
EACH = "FOR EACH users.user_id"


def ask(text: str) -> Question:
    question = analyse(parse(text), SCHEMA)
    if question.column is None:
        compile_question(question, ("a", "b"))
    return question


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"PREDICT SUM(ORDERS.PRICE, 0, 30) {EACH.upper()}", "regression"),
        ("PREDICT SUM(ORDERS.PRICE,0,30,days)\nFOR EACH USERS.USER_ID", "regression"),
        (f"PREDICT SUM(orders.price, 10, 30, months) {EACH}", "regression"),
        ("predict sum(orders.price, 0, 7) # target\nfor users.user_id in ('a', \"b\")", "regression"),
        (f"PREDICT COUNT(orders.*, 0, 30) /* churn? */ = 0 -- yes\n{EACH}", "binary"),
        ("PREDICT COUNT(orders.*, 0, 30, days)=0 FOR users.user_id='42'", "binary"),
        ("PREDICT COUNT(orders.*, 0, 30, days) > 0 FOR users.user_id='1'\n    WHERE COUNT(orders.*, -30, 0, days) > 0", "binary"),
        ("PREDICT LIST_DISTINCT(orders.item_id, 0, 30, days) RANK TOP 10 FOR users.user_id = 'x'", "recommendation"),
        (f"PREDICT LIST_DISTINCT(orders.store_id, 0, 30) CLASSIFY {EACH}", "multilabel"),
        (f"PREDICT LIST_DISTINCT(orders.status, 0, 30) CLASSIFY {EACH}", "multilabel"),
        (f'PREDICT LIST_DISTINCT(orders.status, 0, 30) CONTAINS "online" {EACH}', "binary"),
        (f"PREDICT FIRST(orders.status, 0, 7) {EACH}", "multiclass"),
        (f"PREDICT LAST(orders.price, 0, 30) = 2 {EACH}", "binary"),
        (f"PREDICT LAST(orders.status, 0, 30) NOT LIKE '%DENIED' {EACH}", "binary"),
        (f"PREDICT NOT LAST(orders.price, 0, 30) > 30 {EACH}", "binary"),
        (f"PREDICT SUM(orders.price, 0, 30) > 10 OR COUNT(views.*, 0, 30) > 20 {EACH}", "binary"),
        (f"PREDICT (COUNT(views.*, 0, 30) > 5) AND (SUM(orders.price, 0, 30) > 9) {EACH} WHERE users.status = 'trial' ASSUMING COUNT(notifications.*, 0, 7) > 3", "binary"),
        (f"PREDICT SUM(orders.price, 0, 30) {EACH} ASSUMING LIST_DISTINCT(notifications.type, 0, 3) CONTAINS '50% off'", "regression"),
        ("PREDICT users.age FOR users.user_id='8'", ""),
        (f"PREDICT COUNT(orders.*, 0, 5) {EACH} WHERE (users.status = 'US' OR region.num_inhabitants < 10000) AND users.age > 3", "regression"),
        (f"PREDICT COUNT(orders.*, 0, 5) {EACH} WHERE COUNT(views.id, -30, 0) > 0", "regression"),
        (f"PREDICT COUNT(orders.*, 0, 5) {EACH} WHERE LIST_DISTINCT(orders.status, -90, 0) CONTAINS 'Food'", "regression"),
        (f"PREDICT COUNT(orders.*, 0, 5) {EACH} WHERE LAST(orders.status, -1, 0) = 'ACTIVE'", "regression"),
        (f"PREDICT COUNT(orders.*, 0, 10) {EACH} WHERE users.joined < 2022-01-01 12:45:30", "regression"),
        (f"PREDICT COUNT(orders.*, 0, 10) {EACH} WHERE users.joined < 2022-01-01T12:45:30Z", "regression"),
        (f"PREDICT COUNT(orders.*, 0, 10) {EACH} WHERE users.joined > DATE '2020-01-01'", "regression"),
        (f"PREDICT COUNT(orders.* WHERE orders.price IN (10, 15), 0, 7, days) {EACH}", "regression"),
        (f"PREDICT COUNT(orders.* WHERE NOT orders.price IS NULL, 0, 7, days) {EACH}", "regression"),
        (f"PREDICT SUM(orders.price, 0, 1, days) FORECAST 4 TIMEFRAMES {EACH}", "regression"),
        (f"PREDICT SUM(orders.price, 0, 30, days) IS NULL {EACH}", "binary"),
        (f"PREDICT COUNT(orders.*, 0, 30) {EACH} WHERE COUNT(orders.*, -INF, 0) > 0;", "regression"),
        (f"PREDICT COUNT(orders.*, 0, 30) {EACH} WHERE users.status STARTS WITH 'A' AND users.status ENDS_WITH 'S'", "regression"),
        (f"PREDICT COUNT(orders.*, 0, 30, minutes) {EACH} WHERE users.age > -1.5e1 AND users.active = 1", "regression"),
    ],
)  # fmt: skip
def test_accepted(text: str, kind: str) -> None:
    assert ask(text).kind == kind


@pytest.mark.parametrize(
    ("text", "said", "at"),
    [
        (f"PREDICT LIST_DISTINCT(orders.item_id, 0, 30) CLASSIFY {EACH}", "more than 100 are ranked", "CLASSIFY"),
        ("PREDICT LIST_DISTINCT(orders.item_id, 0, 30) RANK TOP 10FOR users.user_id = 'x'", "leave a space after a number", "1"),
        ("PREDICT users.status = \"A\" FOR users.user_id IN ('0', '1')", "the target looks at nothing later", 'users.status = "A"'),
        (f"PREDICT users.status {EACH} WHERE users.active = true", "is filled in for all rows", "users.active = true"),
        (f"PREDICT COUNT(orders.* WHERE orders.price > 100) {EACH}", "COUNT needs a window", "COUNT(orders.* WHERE orders.price > 100)"),
        (f"PREDICT COUNT(orders.*, -30, 0) {EACH}", "the target must look ahead", "-30, 0"),
        (f"PREDICT COUNT(orders.*, 0, 30) {EACH} WHERE COUNT(orders.*, 0, 7) > 0", "WHERE must look back", "0, 7"),
        (f"PREDICT COUNT(orders.*, 0, 30) {EACH} ASSUMING COUNT(views.*, -7, 0) > 0", "what is assumed must look ahead", "-7, 0"),
        (f"PREDICT COUNT(orders.*, 0, INF) {EACH}", "a window must end", "INF"),
        (f"PREDICT COUNT(orders.*, 30, 0) {EACH}", "must end after it starts", "30, 0"),
        (f"PREDICT COUNT(orders.*, 0, 1.5, days) {EACH}", "expected a whole number", "1.5"),
        (f"PREDICT COUNT(orders.*, 0, 3, fortnights) {EACH}", "expected seconds or minutes", "fortnights"),
        (f"PREDICT COUNT(orders.* WHERE COUNT(views.*, -7, 0) > 1, 0, 30) {EACH}", "cannot stand inside the WHERE of another", "COUNT(views.*, -7, 0)"),
        (f"PREDICT SUM(orders.price, 0, 45) {EACH} WHERE orders.status = 'x'", "COUNT(orders.* WHERE ..., 0, 30, days)", "orders.status"),
        (f"PREDICT COUNT(orders.*, 0, 30) {EACH} WHERE users.status != NULL", "write IS NULL or IS NOT NULL", "NULL"),
        (f"PREDICT COUNT(orders.*, 0, 30) {EACH} WHERE users.age > 1 WHERE users.age < 9", "join conditions by AND", "WHERE"),
        (f"PREDICT COUNT(DISTINCT orders.item_id, 0, 30) {EACH}", "write COUNT_DISTINCT(", "DISTINCT"),
        (f"PREDICT COUNT(orders, 0, 30, days) {EACH}", "orders is a table", "orders"),
        ("PREDICT COUNT(orders.*, 0, 30) FOR EACH orders.user_id", "To ask about users: users.user_id", "orders.user_id"),
        (f"PREDICT MIN(orders.date, 0, 30, days) {EACH}", "this is a time", "MIN(orders.date, 0, 30, days)"),
        (f"PREDICT MODE(orders.item_id, 0, 30) {EACH}", "no such aggregation", "MODE"),
        (f"PREDICT SUM(orders.price, 0, 7) /* all {EACH}", "the comment /* is not closed", "/"),
        (f"EVALUATE PREDICT COUNT(orders.*, 0, 30) {EACH}", "expected PREDICT", "EVALUATE"),
    ],
)  # fmt: skip
def test_refused_with_a_reason(text: str, said: str, at: str) -> None:
    with pytest.raises(QueryError) as caught:
        ask(text)
    message, line, mark = str(caught.value).rsplit("\n", 2)
    assert said in message
    start = len(mark) - len(mark.lstrip())
    assert line[start : start + mark.count("^")] == at
