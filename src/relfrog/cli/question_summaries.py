"""Questions in words as the terminal shows them: what they become, and the SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relfrog.support.text import horizon

if TYPE_CHECKING:
    from relfrog.queries.new_task import Plan

__all__ = ["plan_lines", "plan_record"]


def plan_record(plan: Plan) -> dict[str, Any]:
    """What a question becomes, for JSON."""
    question = plan.question
    return {
        "query": " ".join(question.query.text.split()),
        "type": question.kind or "autocomplete",
        "entity": question.entity.name,
        "target": question.column,
        "horizons": [str(delta) for delta in plan.horizons],
        "sql": [compiled.sql for compiled in plan.compiled],
        "classes": list(plan.classes),
        "keys": plan.keys,
        "assumed": {f"{a.table}.{a.column}": a.value for a in question.assumed},
    }


def plan_lines(plan: Plan) -> str:
    """What a question becomes, in words, and the SQL."""
    question = plan.question
    if question.column is not None:
        return (
            f"Fills in {question.entity.name}.{question.column}: its values are the labels, and "
            "no SQL is needed."
        )
    lines = [
        f"-- {question.kind}, for each row of {question.entity.name}, "
        f"{', '.join(horizon(delta.total_seconds()) for delta in plan.horizons)} ahead"
    ]
    if question.steps > 1:
        lines.append(f"-- {question.steps} windows, each a task of its own; this is the first")
    if question.condition is not None:
        lines.append("-- learned from the cases in which what is assumed came true")
    if plan.classes:
        lines.append(f"-- one label each for: {', '.join(map(str, plan.classes))}")
    return "\n".join([*lines, plan.compiled[0].sql])
