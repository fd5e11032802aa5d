"""Choose LightGBM's features: what is aggregated, over which foreign keys, and for which row.

A *stream* is a table whose rows belong to rows of another table: its children, or their children.
The row that a stream is aggregated for is its *anchor*: the entity, one of its parents, or a parent
of the entity's latest row in one of its streams (such as the team of a driver's last race).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace

from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.encoded_columns import EncodedColumn

__all__ = ["Anchor", "FeaturePlan", "Measure", "Stream", "plan_features"]

#: Lengths of recent windows, in horizons of the task.
WINDOWS = (1, 3, 12)
#: Statistics of numbers in the entity's own streams.
FULL = (
    "last", "mean", "std", "min", "max", "sum", "mean of last 3", "mean of last 10", "mean in 3",
    "mean in 12", "sum in 3", "trend",
)  # fmt: skip
#: Statistics of numbers further away.
LIGHT = ("last", "mean", "mean of last 3", "mean in 12")
#: Statistics of the indicator of a level of a category.
SHARE = ("mean", "mean of last 10", "mean in 12")
#: Statistics of numbers over all entities.
CROWD = ("mean", "mean in 1", "mean in 3", "mean in 12")
#: The most levels with an indicator, for categories and for columns of few integers.
MOST_SHARES = {"category": 4, "value": 2}
#: The most measures of a stream, and features in total.
MOST_MEASURES, MOST_FEATURES = 30, 500


@dataclass(frozen=True)
class Measure:
    """A number per row of a stream.

    Attributes:
        encoded: the encoded column.
        via: the foreign key to the parent that has the column; None for the row itself.
        level: for the indicator of a level, its code; -1 for the number itself.
        stats: the statistics that become features.
    """

    encoded: EncodedColumn
    via: ForeignKey | None
    level: int
    stats: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name in the names of features."""
        name = self.encoded.name if self.via is None else f"{self.via.column}.{self.encoded.name}"
        return name if self.level < 0 else f"{name} = {self.encoded.levels[self.level]}"

    @property
    def squared(self) -> bool:
        """Whether squares are added up as well."""
        return "std" in self.stats


@dataclass(frozen=True)
class Stream:
    """Rows that belong to rows of another table, in order of time.

    Attributes:
        keys: one or two foreign keys from the rows up to those they belong to; none if all rows
            belong together.
        table: the table of the rows.
        measures: numbers to aggregate.
        codes: categories whose latest level is a feature.
        pointers: other foreign keys, whose distinct values are counted.
    """

    keys: tuple[ForeignKey, ...]
    table: str
    measures: tuple[Measure, ...]
    codes: tuple[EncodedColumn, ...] = ()
    pointers: tuple[ForeignKey, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the names of features."""
        return " of ".join(f"{key.table} by {key.column}" for key in self.keys) or (
            f"all {self.table}"
        )

    @property
    def features(self) -> list[str]:
        """The names of its features, in order."""
        names = ["rows", *(f"rows in {width}" for width in WINDOWS), "since last", "since first"]
        names += ["mean gap"]
        names += [f"{m.name} {stat}" for m in self.measures for stat in m.stats]
        names += [f"{code.name} last level" for code in self.codes]
        names += [f"{key.column} different" for key in self.pointers]
        return [f"{self.name}: {name}" for name in names]


@dataclass(frozen=True)
class Anchor:
    """A row that streams are aggregated for.

    Attributes:
        table: its table.
        key: the foreign key that leads to it; None for the entity itself.
        last: the stream whose latest row has the key; None if the entity has it.
        streams: the streams.
    """

    table: str
    key: ForeignKey | None
    last: Stream | None
    streams: tuple[Stream, ...]

    @property
    def name(self) -> str:
        """Its name in the names of features; empty for the entity itself."""
        if self.key is None:
            return ""
        return self.key.column if self.last is None else f"last {self.last.name}, {self.key.column}"

    @property
    def features(self) -> list[str]:
        """The names of its features, in order."""
        prefix = f"{self.name}: " if self.name else ""
        return [prefix + name for stream in self.streams for name in stream.features]


@dataclass(frozen=True)
class FeaturePlan:
    """All features.

    Attributes:
        own: columns of the entity (no key), its parents (one key) and their parents (two).
        anchors: the aggregates.
        left_out: names of streams beyond the limit on features.
    """

    own: tuple[tuple[tuple[ForeignKey, ...], EncodedColumn], ...]
    anchors: tuple[Anchor, ...]
    left_out: tuple[str, ...] = ()


def plan_features(
    entity: str, history: str, keys: Iterable[ForeignKey],
    encodings: dict[str, list[EncodedColumn]],
    sizes: dict[str, int], timed: Set[str] = frozenset(), parts: str = "all",
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
    labels = [Measure(encoded, None, -1, CROWD) for encoded in encodings.get(history, [])]
    candidates: list[Anchor] = [Anchor(entity, None, None, (child,)) for child in children]
    candidates.append(Anchor(history, None, None, (Stream((), history, tuple(labels)),)))
    for key in keys:
        if key.table == entity:
            candidates += [
                Anchor(key.parent, key, None, (_stream((below,), keys, encodings),))
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
                stream = _stream((below,), keys, encodings)
                candidates.append(Anchor(key.parent, key, child, (stream,)))
    for child in children:
        candidates += [
            Anchor(entity, None, None, (_stream((below, child.keys[0]), keys, encodings),))
            for below in keys
            if below.parent == child.table
        ]
    return _cut(own, candidates)


def _cut(
    own: tuple[tuple[tuple[ForeignKey, ...], EncodedColumn], ...], candidates: list[Anchor]
) -> FeaturePlan:
    """Keep candidates, in order, up to the limit on features; group streams by anchor."""
    room = MOST_FEATURES - len(own)
    kept: dict[tuple[str, ForeignKey | None, Stream | None], Anchor] = {}
    left_out = []
    asked: set[Stream] = set()
    for anchor in candidates:
        width = len(anchor.features)
        # The latest row of a stream is only known if the stream is aggregated.
        if width > room or (anchor.last is not None and anchor.last not in asked):
            left_out.append(f"{anchor.name} {anchor.streams[0].name}".strip())
            continue
        room -= width
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
    return Stream(path, table, tuple(measures), codes[:8], others if full else ())
