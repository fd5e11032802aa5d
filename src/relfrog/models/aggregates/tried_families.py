"""Families of features that backtests have to speak for: they help on some databases only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace

from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.encoded_columns import EncodedColumn
from relfrog.models.aggregates.streams import (
    ALONGSIDE,
    BESIDE,
    FADING,
    LAGS,
    PEERS,
    STREAKS,
    WINDOWED,
    Anchor,
    Measure,
    Stream,
)  # fmt: skip

__all__ = ["tried_families"]

#: The most numbers of a table that are compared with those of siblings, and of companions.
MOST_BESIDE, MOST_ALONGSIDE = 10, 5


def tried_families(
    entity: str, history: str, keys: tuple[ForeignKey, ...], children: list[Stream],
    candidates: list[Anchor], encodings: dict[str, list[EncodedColumn]], timed: Set[str],
) -> list[Anchor]:  # fmt: skip
    """The features of all these families, the most promising of each first.

    Args:
        entity: the table of the seeds.
        history: the table of the label history.
        keys: all foreign keys.
        children: streams of the entity's own rows.
        candidates: what is aggregated without these families.
        encodings: encoded columns per table.
        timed: tables with a time column.
    """
    return [
        *_streaks(entity, history, children),
        *_siblings(entity, children, encodings, timed),
        *_peers(entity, history, keys, children, encodings, timed),
        *_windows(candidates),
        *_companions(entity, children, encodings, timed),
        *_fading(candidates),
    ]


def _tried(family: str, stream: Stream, measures: Iterable[Measure], ages: bool = False) -> Stream:
    """More features of the rows of a stream."""
    return Stream(
        stream.keys, stream.table, tuple(measures), link=stream.link, family=family,
        counted=False, ages=ages,
    )  # fmt: skip


def _streaks(entity: str, history: str, children: list[Stream]) -> Iterator[Anchor]:
    """Earlier labels one by one, with their ages; what comes several times in a row."""
    for child in children:
        labels = child.table == history
        measures = [
            replace(m, stats=LAGS + STREAKS if labels else STREAKS)
            for m in child.measures
            if m.via is None and (labels or m.level >= 0)
        ]
        if measures:
            yield Anchor(entity, None, None, (_tried("streaks", child, measures, labels),))


def _siblings(
    entity: str, children: list[Stream], encodings: dict[str, list[EncodedColumn]],
    timed: Set[str],
) -> Iterator[Anchor]:  # fmt: skip
    """Numbers beside those of the other rows of the same event: the results of a race."""
    for child in children:
        numbers = [e for e in encodings.get(child.table, []) if e.kind == "number"]
        for key in child.pointers:
            if key.parent in timed and numbers:
                measures = [
                    Measure(encoded, None, -1, BESIDE, key, form)
                    for encoded in numbers[:MOST_BESIDE]
                    for form in ("difference", "rank")
                ]
                yield Anchor(entity, None, None, (_tried("siblings", child, measures),))


def _companions(
    entity: str, children: list[Stream], encodings: dict[str, list[EncodedColumn]],
    timed: Set[str],
) -> Iterator[Anchor]:  # fmt: skip
    """Numbers beside those of rows of the same time that share a lasting parent: team-mates."""
    for child in children:
        numbers = [e for e in encodings.get(child.table, []) if e.kind == "number"]
        for key in child.pointers:
            if key.parent not in timed and child.table in timed and numbers:
                measures = [
                    Measure(encoded, None, -1, ALONGSIDE, key, "difference")
                    for encoded in numbers[:MOST_ALONGSIDE]
                ]
                yield Anchor(entity, None, None, (_tried("companions", child, measures),))


def _peers(
    entity: str, history: str, keys: tuple[ForeignKey, ...], children: list[Stream],
    encodings: dict[str, list[EncodedColumn]], timed: Set[str],
) -> Iterator[Anchor]:  # fmt: skip
    """Earlier labels of all who have, or had, the same parent: the drivers of a team."""
    mine = next((s.keys[0] for s in children if s.table == history), None)
    if mine is None:
        return
    labels = tuple(Measure(encoded, None, -1, PEERS) for encoded in encodings.get(history, []))
    for key in keys:
        if key.table == entity:
            stream = Stream((mine, key), history, labels, family="peers")
            yield Anchor(key.parent, key, None, (stream,))
    for child in children:
        for key in child.pointers:
            if key.parent not in timed and child.table != history:
                link = (child.keys[0], key)
                stream = Stream((mine,), history, labels, link=link, family="peers")
                yield Anchor(key.parent, key, child, (stream,))


def _fading(candidates: list[Anchor]) -> Iterator[Anchor]:
    """Numbers and shares in a mean in which older rows count less and less."""
    for anchor in candidates:
        stream = anchor.streams[0]
        measures = [replace(m, stats=FADING) for m in stream.measures if m.via is None]
        if measures and stream.keys:
            yield replace(anchor, streams=(_tried("fading", stream, measures),))


def _windows(candidates: list[Anchor]) -> Iterator[Anchor]:
    """Numbers over more windows, and how they change from the last 12 horizons to the last 3."""
    for anchor in candidates:
        stream = anchor.streams[0]
        if not stream.keys:
            continue
        measures = [
            replace(m, stats=tuple(stat for stat in WINDOWED if stat not in m.stats))
            for m in stream.measures
            if m.level < 0 and m.via is None
        ]
        if measures:
            yield replace(anchor, streams=(_tried("windows", stream, measures),))
