"""The question that a run answers, in the user's own words where there are any."""

from __future__ import annotations

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


def question(about: dict[str, Any], database: dict[str, Any] | None, template: str) -> str:
    """The description of the task; else a question made of its entity, label and horizon.

    Args:
        about: the content of `run.json`.
        database: the content of `database.json`.
        template: the question of the task type, with `{entities}`, `{targets}` and `{label}`.
    """
    task = (database or {}).get("task") or {}
    if task.get("description"):
        return str(task["description"])
    if not task:
        return f"Task {about['task']}"
    if task.get("completes"):
        return f"What is {task['label']} of {rows_name(task['entity_table'])} where it is missing?"
    seconds = float(task.get("horizon_seconds") or 0)
    ahead = f" in the next {horizon(seconds)}" if seconds > 0 else ""
    asked = template.format(
        entities=rows_name(task["entity_table"]), label=task["label"],
        targets=rows_name(task.get("target_table") or ""),
    )  # fmt: skip
    return f"{asked}{ahead}?"
