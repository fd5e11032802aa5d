"""Choose LightGBM's features: what is aggregated, over which foreign keys, and for which row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import replace

from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.encoded_columns import EncodedColumn
from relfrog.models.aggregates.streams import (
    CORE,
    CROWD,
    FULL,
    LIGHT,
    SHARE,
    TRIED,
    Anchor,
    FeaturePlan,
    Measure,
    Stream,
)  # fmt: skip
from relfrog.models.aggregates.tried_families import tried_families

__all__ = ["plan_features"]

#: The most levels with an indicator, for categories and for columns of few integers.
MOST_SHARES = {"category": 4, "value": 2}
#: The most measures of a stream, and features in total.
MOST_MEASURES, MOST_FEATURES = 30, 500
#: The most features of the families that are tried, in total and of each.
MOST_TRIED, MOST_OF_FAMILY = 400, 120


def plan_features(
    entity: str, history: str, keys: Iterable[ForeignKey],
    encodings: dict[str, list[EncodedColumn]],
    sizes: dict[str, int], timed: Set[str] = frozenset(), parts: str = "all",
    tried: bool = False,
) -> FeaturePlan:  # fmt: skip
    """Choose the features.

    Args:
        entity: the table of the seeds.
        history: the table of the label history.
        keys: all foreign keys.
        encodings: encoded columns per table.
        sizes: number of rows before the validation time, per table; larger tables come first.
        timed: tables with a time column, which hold events rather than lasting entities.
        parts: "all", or "own" for the entity's own columns alone.
        tried: whether to add the families of `TRIED`.
    """
    keys = tuple(keys)
    chains: list[tuple[ForeignKey, ...]] = [()]
    if parts == "all":
        up = [key for key in keys if key.table == entity]
        chains += [(key,) for key in up]
        chains += [(key, top) for key in up for top in keys if top.table == key.parent]
    own = tuple(
        (chain, encoded)
        for chain in chains
        for encoded in encodings.get(chain[-1].parent if chain else entity, [])
        if encoded.kind != "value"
    )
    if parts == "own":
        return FeaturePlan(own, ())
    children = [_stream((key,), keys, encodings, full=True) for key in keys if key.parent == entity]
    children.sort(key=lambda s: (s.table != history, -sizes.get(s.table, 0), s.name))
    candidates: list[Anchor] = [Anchor(entity, None, None, (child,)) for child in children]
    candidates.append(Anchor(history, None, None, (_all_labels(history, encodings),)))
    for key in keys:
        if key.table == entity:
            candidates += [
                Anchor(key.parent, key, None, (_stream((below,), keys, encodings, "parents"),))
                for below in keys
                if below.parent == key.parent
            ]
    met: set[ForeignKey] = set()
    nearby = [(child, key) for child in children for key in child.pointers]
    # Lasting entities (a team) say more than past events (a race).
    nearby.sort(key=lambda both: both[1].parent in timed)
    for child, key in nearby:
        for below in keys:
            # The same rows reached another way would be redundant.
            if below.parent == key.parent and below not in met:
                met.add(below)
                stream = _stream((below,), keys, encodings, "track records")
                candidates.append(Anchor(key.parent, key, child, (stream,)))
    for child in children:
        candidates += [
            Anchor(
                entity, None, None,
                (_stream((below, child.keys[0]), keys, encodings, "events of events"),),
            )
            for below in keys
            if below.parent == child.table
        ]  # fmt: skip
    more: list[Anchor] = []
    if tried:
        more = tried_families(entity, history, keys, children, candidates, encodings, timed)
    return _cut(own, candidates, more)


def _cut(
    own: tuple[tuple[tuple[ForeignKey, ...], EncodedColumn], ...],
    candidates: list[Anchor],
    tried: list[Anchor],
) -> FeaturePlan:
    """Keep candidates, in order, up to the limits on features; group streams by anchor."""
    room = Counter({CORE: MOST_FEATURES - len(own)})
    room |= dict.fromkeys(TRIED, MOST_OF_FAMILY)
    every = MOST_TRIED
    kept: dict[tuple[str, ForeignKey | None, Stream | None], Anchor] = {}
    left_out = []
    asked: set[Stream] = set()
    for anchor in [*candidates, *tried]:
        width, family = len(anchor.features), anchor.streams[0].family
        account = family if family in TRIED else CORE
        least = min(room[account], every) if account in TRIED else room[account]
        # The latest row of a stream is only known if the stream is aggregated.
        if width > least or (anchor.last is not None and anchor.last not in asked):
            left_out.append(f"{anchor.name} {anchor.streams[0].name}".strip())
            continue
        room[account] -= width
        every -= width if account in TRIED else 0
        if anchor.key is None:
            asked.add(anchor.streams[0])
        place = (anchor.table, anchor.key, anchor.last)
        before = kept.get(place)
        streams = anchor.streams if before is None else before.streams + anchor.streams
        kept[place] = replace(anchor, streams=streams)
    return FeaturePlan(own, tuple(kept.values()), tuple(left_out))


def _stream(
    path: tuple[ForeignKey, ...],
    keys: tuple[ForeignKey, ...],
    encodings: dict[str, list[EncodedColumn]],
    family: str = CORE,
    full: bool = False,
) -> Stream:
    """The stream of children, or children of children, with its measures."""
    table = path[0].table
    others = tuple(key for key in keys if key.table == table and key != path[0])
    own = encodings.get(table, [])
    numbers = [
        Measure(encoded, None, -1, FULL if full else LIGHT)
        for encoded in own
        if encoded.kind not in MOST_SHARES
    ]
    shares = [
        Measure(encoded, None, level, SHARE)
        for encoded in own
        for level in range(min(MOST_SHARES.get(encoded.kind, 0), len(encoded.levels)))
    ]
    joined = []
    if full:
        for key in others:
            for encoded in encodings.get(key.parent, []):
                if encoded.kind in ("number", "moment"):
                    joined.append(Measure(encoded, key, -1, LIGHT))
    measures = (numbers + (shares if full else []) + joined)[:MOST_MEASURES]
    codes = tuple(encoded for encoded in own if encoded.kind == "category") if full else ()
    return Stream(path, table, tuple(measures), codes[:8], others if full else (), family=family)


def _all_labels(history: str, encodings: dict[str, list[EncodedColumn]]) -> Stream:
    labels = [Measure(encoded, None, -1, CROWD) for encoded in encodings.get(history, [])]
    return Stream((), history, tuple(labels), family="labels of all")
