"""Add the task that a question asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from sqlglot import exp

from relfrog.datasets import new_task
from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.files import database_in_files
from relfrog.datasets.key_views import find_source_keys
from relfrog.datasets.label_sql import run_sql
from relfrog.datasets.protocols import Dataset
from relfrog.datasets.task_folder import AddedTask
from relfrog.errors import TaskError, UsageError
from relfrog.queries.analysis import analyse
from relfrog.queries.compiler import Compiled, compile_question, forecast_step
from relfrog.queries.parser import parse
from relfrog.queries.question import Question
from relfrog.queries.schema import QuerySchema, read_schema
from relfrog.queries.sql import column, table
from relfrog.queries.syntax import Aggregation, Column, Expression, InList, Logical, Value

__all__ = ["Plan", "add_query_tasks", "add_task", "add_tasks", "plan_query"]

#: The most values that a multilabel task decides about.
MOST_CLASSES = 100
#: Labels in a split that are enough to tell good from bad.
ENOUGH_LABELS = 2_000


@dataclass(frozen=True)
class Plan:
    """What a question becomes: one task, or one per window of a forecast.

    Attributes:
        question: The checked question.
        compiled: The label SQL of each; none where a column is filled in.
        horizons: How far ahead the labels of each look.
        classes: Of a multilabel task, the values that it decides about.
    """

    question: Question
    compiled: tuple[Compiled, ...]
    horizons: tuple[pd.Timedelta, ...]
    classes: tuple[Value, ...] = ()

    def names(self, name: str) -> list[str]:
        """The names of the tasks: of a forecast with the number of the window."""
        if self.question.query.forecast is None:
            return [name]
        return [f"{name}-{step}" for step in range(1, self.question.steps + 1)]

    @property
    def keys(self) -> list[Value] | None:
        """The keys that the question asks about; None for all."""
        only = self.question.query.only
        return None if only is None else [item.value for item in only]


def plan_query(
    dataset: str | Path | Dataset, query: str, schema: QuerySchema | None = None
) -> Plan:
    """Parse, check and compile a question, without adding anything.

    Args:
        dataset: A dataset folder, or an opened one.
        query: The question.
        schema: Its schema, if it has been read already.

    Raises:
        QueryError: The question cannot be read, or cannot be answered.
    """
    opened = open_dataset(dataset) if isinstance(dataset, str | Path) else dataset
    question = analyse(parse(query), schema or read_schema(opened))
    if question.column is not None:
        return Plan(question, (), ())
    classes: tuple[Value, ...] = ()
    if question.kind == "multilabel":
        classes = tuple(_classes(opened, question))
    steps = [question]
    if question.query.forecast is not None:
        steps = [forecast_step(question, step) for step in range(question.steps)]
    compiled = tuple(compile_question(step, classes) for step in steps)
    horizons = tuple(step.horizon for step in steps if step.horizon is not None)
    return Plan(question, compiled, horizons, classes)


def add_query_tasks(
    dataset: str | Path, name: str, query: str, *, plan: Plan | None = None, **options: Any
) -> list[AddedTask]:
    """Add the task that a question asks for; of a forecast, one per window.

    Args:
        dataset: A dataset folder.
        name: The task's name; those of a forecast are numbered from 1.
        query: The question.
        plan: What `plan_query` made of it, if that is known already.
        options: Other arguments of `relfrog.add_task`: description, eval_times, val, test, hide,
            show, overwrite.

    Raises:
        QueryError: The question cannot be read, or cannot be answered.
        TaskError: Its labels are unusable.
    """
    plan = plan or plan_query(dataset, query)
    question, shown = plan.question, " ".join(query.split())
    options["description"] = options.get("description") or shown
    if question.column is not None:
        target = f"{question.entity.name}.{question.column}"
        return [new_task.add_task(dataset, name, autocomplete=target, **options)]
    if options.get("eval_times") is None:
        options["eval_times"] = _eval_times(open_dataset(dataset), plan)
    added = []
    for own, compiled, horizon in zip(plan.names(name), plan.compiled, plan.horizons, strict=True):
        about = {"type": question.kind, "horizon": _horizon(horizon), "query": shown, **options}
        entity = f"{question.entity.name}.{compiled.entity}"
        if question.kind == "recommendation":
            assert question.target_table is not None
            about["source"] = entity
            about["target"] = f"{question.target_table.name}.{compiled.label}"
            about["k"] = question.query.rank
        else:
            about |= {"entity": entity, "label": compiled.label}
            about["classes"] = [str(value) for value in plan.classes] or None
        added.append(new_task.add_task(dataset, own, compiled.sql, **about))
    return added


def add_task(
    dataset: str | Path,
    name: str,
    sql: str | None = None,
    *,
    query: str | None = None,
    **options: Any,
) -> AddedTask:
    """Add a prediction task to a dataset folder, after trying it on all splits.

    Its labels come from a question in words, from SQL, from a column that is to be filled in, or
    from a table of labels. `relfrog.datasets.new_task.add_task` has all arguments.

    Args:
        dataset: A dataset folder.
        name: The task's name.
        sql: DuckDB SQL that makes the labels.
        query: A question, such as ``PREDICT COUNT(orders.*, 0, 30, days) = 0 FOR EACH
            customers.id``.
        options: Without a question: `type`, `entity` or `source` and `target`, `horizon`;
            `autocomplete`; or `labels`, a file or a frame. With or without: `eval_times`, `val`,
            `test`, `hide`, `show`, `description`, `overwrite`.

    Raises:
        QueryError: The question cannot be read, or cannot be answered.
        TaskError: The SQL is wrong, or its labels are unusable.
    """
    if query is None:
        return new_task.add_task(dataset, name, sql, **options)
    return add_tasks(dataset, name, query, sql, **options)[0]


def add_tasks(
    dataset: str | Path, name: str, query: str, sql: str | None = None, **options: Any
) -> list[AddedTask]:
    """What `add_task` adds for a question: of a forecast all tasks, one per window."""
    given = [key for key in ("type", "entity", "source", "target", "horizon", "label", "k",
                             "autocomplete", "labels") if options.get(key) is not None]  # fmt: skip
    if sql is not None or given:
        what = "--sql" if sql is not None else f"--{given[0]}"
        raise UsageError(f"a question says everything that {what} would say. Leave it out")
    kept = {k: v for k, v in options.items() if v is not None and k != "time"}
    return add_query_tasks(dataset, name, query, **kept)


def _horizon(delta: pd.Timedelta) -> str:
    """A duration as a manifest has it."""
    day = pd.Timedelta(days=1)
    if delta % day == pd.Timedelta(0):
        count = delta // day
        return f"{count} day{'' if count == 1 else 's'}"
    return str(delta)


def _eval_times(dataset: Dataset, plan: Plan) -> int:
    """Seed times in validation and in test: as many as give scores that mean something, or fit.

    They are so many windows as have labels enough, going by those of the first.
    """
    horizon, compiled = plan.horizons[-1], plan.compiled[-1]
    most = int((dataset.test_timestamp - dataset.val_timestamp) // horizon)
    if most < 2 or plan.question.kind == "recommendation":  # RelBench has one time for lists
        return 1
    frame = _run(dataset, compiled.sql, dataset.val_timestamp)
    return min(most, max(1, math.ceil(ENOUGH_LABELS / max(len(frame), 1))))


def _run(dataset: Dataset, sql: str, time: pd.Timestamp) -> pd.DataFrame:
    """What some SQL gives at a time, in the keys that questions are written in."""
    db = database_in_files(dataset)
    keys = find_source_keys(dataset)
    return run_sql(sql, db if keys is None else keys.view(db, sql), [time], pd.Timedelta(days=1))


# Classes of a multilabel task.


def _classes(dataset: Dataset, question: Question) -> Sequence[Value]:
    """The values to decide about: those that the question lists, or those before validation."""
    target = question.query.target
    assert isinstance(target, Aggregation)
    rows, name, _ = question.columns[target.column]
    listed = _listed(question, target.where, (rows.name, name))
    if listed:
        return listed
    value = column("a", name)
    select = exp.select(exp.alias_(value, "v"), exp.alias_(exp.Count(this=exp.Star()), "n"))
    select = select.from_(table(rows.name, "a")).where(value.copy().is_(exp.null()).not_())
    if rows.time is not None:
        before = exp.cast(exp.Literal.string(str(dataset.val_timestamp)), "TIMESTAMP")
        select = select.where(column("a", rows.time) <= before)
    select = select.group_by(value.copy()).order_by("n DESC", "v").limit(MOST_CLASSES + 1)
    frame = _run(dataset, select.sql(dialect="duckdb"), dataset.val_timestamp)
    found: list[Value] = frame["v"].tolist()
    if len(found) > MOST_CLASSES:
        raise TaskError(
            f"{rows.name}.{name} has more than {MOST_CLASSES} values; a list of categories may "
            f"have so many. Say which: LIST_DISTINCT({target.column} WHERE {target.column} IN "
            "(...), ...)"
        )
    if len(found) < 2:
        raise TaskError(
            f"{rows.name}.{name} has {len(found)} values before {dataset.val_timestamp}"
        )
    return found


def _listed(question: Question, where: Expression | None, wanted: tuple[str, str]) -> list[Value]:
    """The values that the WHERE of the target allows, if it lists them."""
    parts = where.items if isinstance(where, Logical) and where.operator == "AND" else (where,)
    for part in parts:
        if isinstance(part, InList) and isinstance(part.value, Column):
            owner, name, path = question.columns[part.value]
            if (owner.name, name) == wanted and not path:
                return list(dict.fromkeys(item.value for item in part.items))
    return []
