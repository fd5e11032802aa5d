"""The question that a run answers, in the user's own words where there are any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relfrog.support.text import horizon, plural, words

__all__ = ["question", "rows_name"]


def rows_name(table: str) -> str:
    """What rows of a table are called: its name as words, in the plural.

    >>> rows_name("Customer"), rows_name("order_lines")
    ('customers', 'order lines')
    """
    if not table.isascii():
        return f"rows of {table}"
    *before, last = words(table) or (table,)
    return " ".join([*before, plural(last)])


def question(about: dict[str, Any], database: dict[str, Any] | None) -> str:
    """The description of the task; else a question made of its type, entity, label and horizon."""
    task = (database or {}).get("task") or {}
    if task.get("description"):
        return str(task["description"])
    if not task:
        return f"Task {about['task']}"
    seconds = float(task.get("horizon_seconds") or 0)
    ahead = f" in the next {horizon(seconds)}" if seconds > 0 else ""
    return f"{_QUESTIONS[about['task_type']](task)}{ahead}?"


#: By RelBench's name of the task type. Labels may be any word, so they are quoted, not conjugated.
_QUESTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "binary_classification": lambda task: (
        f"Which {rows_name(task['entity_table'])} will have the label “{task['label']}”"
    ),
    "regression": lambda task: (
        f"What will “{task['label']}” be for each of the {rows_name(task['entity_table'])}"
    ),
    "multiclass_classification": lambda task: (
        f"Which “{task['label']}” will each of the {rows_name(task['entity_table'])} have"
    ),
    "multilabel_classification": lambda task: (
        f"Which labels of “{task['label']}” will each of the {rows_name(task['entity_table'])} have"
    ),
    "recommendation": lambda task: (
        f"Which {rows_name(task['target_table'])} will each of the "
        f"{rows_name(task['entity_table'])} be linked to"
    ),
}
