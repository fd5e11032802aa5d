"""`suggest`: questions worth asking of a dataset, tried on its labels, the best first."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.files import database_in_files
from relfrog.datasets.key_views import SourceKeys, find_source_keys
from relfrog.datasets.label_sql import run_sql
from relfrog.datasets.protocols import Dataset
from relfrog.datasets.task_splits import need_times
from relfrog.errors import RelFrogError
from relfrog.queries.new_task import plan_query
from relfrog.queries.proposals import ColumnFacts, Proposal, choose_window, propose
from relfrog.queries.quick_scores import QuickScore, quick_score
from relfrog.queries.schema import QuerySchema, QueryTable, read_schema
from relfrog.store.file_table import column_names, read_column
from relfrog.support.relbench import Database

__all__ = ["Suggestion", "suggest"]

#: Seed times that labels are looked at: before validation, and in validation and test each.
_TRAIN_TIMES, _EVAL_TIMES = 6, 4
#: Labels that a split must have.
_FEWEST_LABELS = 20
#: An entity's earlier labels say this much of the next: it is a property of the entity.
_KNOWN_ALREADY = 0.999
#: A further question about the same events and entities, or of the same type, counts this much.
_SAME_TABLES, _SAME_TYPE = 0.6, 0.8


@dataclass(frozen=True)
class Suggestion:
    """A question, what its labels are like, and how well they can be predicted at once.

    Attributes:
        query: The question.
        words: The same for people.
        type: The type of task.
        labels: Number of labels per split, at the seed times that were tried.
        positive: Of a binary task, the share of positive labels.
        metric: The metric of the score.
        score: The validation score of the best quick baseline.
        chance: That of an answer that is the same for all.
        baseline: The name of the best.
        worth: From 0 to 1; suggestions come in this order.
    """

    query: str
    words: str
    type: str
    labels: dict[str, int]
    positive: float | None
    metric: str
    score: float
    chance: float
    baseline: str
    worth: float


def suggest(
    dataset: str | Path,
    *,
    limit: int = 10,
    seconds: float = 60.0,
    progress: Callable[[str], None] | None = None,
) -> list[Suggestion]:
    """Find questions worth asking of a dataset.

    Each is a question that runs. Its labels are made at a few times; the quick baselines, such as
    the mean of an entity's earlier labels, say how much can be known at once.

    Args:
        dataset: A dataset folder.
        limit: The most suggestions.
        seconds: The time after which no further question is tried.
        progress: Told what is being tried.

    Returns:
        The best first.
    """
    opened = open_dataset(dataset)
    need_times(opened)
    schema = read_schema(opened)
    tables = _Tables(opened)
    windows: dict[str, tuple[int, str]] = {}
    facts: dict[tuple[str, str], ColumnFacts] = {}
    for events in schema.tables.values():
        if events.time is None or not events.fkeys or not events.rows:
            continue
        first, found = tables.facts(schema, events)
        chosen = choose_window(first, opened.val_timestamp, opened.test_timestamp)
        if chosen is not None:
            windows[events.name] = chosen
            facts |= found
    started, tried = time.monotonic(), []
    proposals = propose(schema, facts, windows)
    for proposal in _in_turn(proposals):
        if time.monotonic() - started > seconds:
            break
        if progress is not None:
            progress(proposal.query)
        found_one = _try(opened, schema, tables, proposal)
        if found_one is not None:
            tried.append((proposal, found_one))
    return _ranked(tried)[:limit]


def _in_turn(proposals: list[Proposal]) -> Iterator[Proposal]:
    """One question about each pair of tables, then the next of each: time may run out."""
    groups: dict[tuple[str, str], list[Proposal]] = {}
    for proposal in proposals:
        groups.setdefault((proposal.entity, proposal.events), []).append(proposal)
    for number in range(max(map(len, groups.values()), default=0)):
        for group in groups.values():
            if number < len(group):
                yield group[number]


def _ranked(tried: list[tuple[Proposal, Suggestion]]) -> list[Suggestion]:
    """By worth; a further question of the same kind has to be better."""
    left, ranked = list(tried), []
    pairs: Counter[tuple[str, str]] = Counter()
    types: Counter[str] = Counter()

    def value(one: tuple[Proposal, Suggestion]) -> float:
        proposal, found = one
        again = _SAME_TABLES ** pairs[proposal.entity, proposal.events]
        return float(found.worth * again * _SAME_TYPE ** types[found.type])

    while left:
        best = max(left, key=value)
        left.remove(best)
        pairs[best[0].entity, best[0].events] += 1
        types[best[1].type] += 1
        ranked.append(best[1])
    return ranked


class _Tables:
    """The tables of a dataset, read once."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.db: Database = database_in_files(dataset)
        self.keys: SourceKeys | None = find_source_keys(dataset)

    def run(self, sql: str, times: list[pd.Timestamp]) -> pd.DataFrame:
        """What some SQL gives, in the keys that questions are written in."""
        seen = self.db if self.keys is None else self.keys.view(self.db, sql)
        return run_sql(sql, seen, times, pd.Timedelta(days=1))

    def facts(
        self, schema: QuerySchema, events: QueryTable
    ) -> tuple[pd.Timestamp, dict[tuple[str, str], ColumnFacts]]:
        """The first time of a table's main part, and what its columns hold."""
        table = self.db.table_dict[events.name]
        times = pd.to_datetime(read_column(table, str(events.time))).dropna()
        # A few old rows do not make a history.
        first = times.quantile(0.02) if len(times) else self.dataset.test_timestamp
        found = {}
        for name in events.columns:
            if name in (events.pkey, events.time) or name in events.fkeys:
                continue
            if name not in column_names(table):
                continue
            if schema.kind(events, name) in ("number", "integer", "text"):
                values = read_column(table, name).dropna()
                found[events.name, name] = ColumnFacts(len(values), int(values.nunique()))
        return first, found


def _try(
    dataset: Dataset, schema: QuerySchema, tables: _Tables, proposal: Proposal
) -> Suggestion | None:
    """Make the labels of a question and score the quick baselines; None if that makes no sense."""
    try:
        plan = plan_query(dataset, proposal.query, schema)
        (horizon,), (compiled,) = plan.horizons, plan.compiled
        splits = _seed_times(dataset, tables, horizon)
        frame = tables.run(compiled.sql, [t for some in splits.values() for t in some])
    except RelFrogError:
        return None
    frame = frame.rename(columns={compiled.entity: "entity", compiled.label: "label"})
    frame["timestamp"] = pd.to_datetime(frame["timestamp"])
    counts = {split: int(frame["timestamp"].isin(some).sum()) for split, some in splits.items()}
    if min(counts.values()) < _FEWEST_LABELS:
        return None
    kind = plan.question.kind
    score = quick_score(kind, frame, splits["val"], horizon)
    if score is None or math.isnan(score.score) or score.gain > _KNOWN_ALREADY:
        return None
    positive = float(frame["label"].mean()) if kind == "binary" else None
    return Suggestion(
        proposal.query, proposal.words, kind, counts, positive, score.metric, score.score,
        score.chance, score.baseline, _worth(score, counts["val"], positive),
    )  # fmt: skip


def _worth(score: QuickScore, labels: int, positive: float | None) -> float:
    """Most where half is known at once: what is known already needs no model, chance gets none.

    Few labels, and few of one kind, make it less.
    """
    gain = min(max(0.0, score.gain), 1.0)
    balance = 1.0 if positive is None else min(1.0, 10 * min(positive, 1 - positive))
    return float(4 * gain * (1 - gain) * balance * min(1.0, labels / 200))


def _seed_times(
    dataset: Dataset, tables: _Tables, horizon: pd.Timedelta
) -> dict[str, list[pd.Timestamp]]:
    """A few seed times before validation, in validation and in test; windows do not overlap."""
    val, test = dataset.val_timestamp, dataset.test_timestamp
    train = [val - number * horizon for number in range(1, _TRAIN_TIMES + 1)]

    def windows(start: pd.Timestamp, end: pd.Timestamp) -> list[pd.Timestamp]:
        count = max(1, min(_EVAL_TIMES, int((end - start) // horizon)))
        return [start + number * horizon for number in range(count)]

    newest = max(
        (
            pd.to_datetime(t.max_timestamp)
            for t in tables.db.table_dict.values()
            if t.time_col is not None and len(t)
        ),
        default=test,
    )
    return {"train": train, "val": windows(val, test), "test": windows(test, newest)}
