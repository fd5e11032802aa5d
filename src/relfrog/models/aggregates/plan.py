"""Which features LightGBM gets: what is added up, over which foreign keys, for which row.

A *stream* is a table whose rows belong to rows of another: its children, or their children. Where
a stream is asked from is its *anchor*: the entity itself, one of its parents, or a parent of the
entity's latest row in a stream of its own (the team of a driver's last race).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace

from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.columns import Cell

__all__ = ["Anchor", "Measure", "Plan", "Stream", "make_plan"]

#: Recent windows, in horizons of the task.
WINDOWS = (1, 3, 12)
#: What is known of a number in a stream of the entity's own.
FULL = (
    "last", "mean", "std", "min", "max", "sum", "mean of last 3", "mean of last 10", "mean in 3",
    "mean in 12", "sum in 3", "trend",
)  # fmt: skip
#: Of a number further away.
LIGHT = ("last", "mean", "mean of last 3", "mean in 12")
#: Of whether a category has some level.
SHARE = ("mean", "mean of last 10", "mean in 12")
#: Of numbers of many entities together.
CROWD = ("mean", "mean in 1", "mean in 3", "mean in 12")
#: Levels of which the share is known, of a category and of a column of few whole numbers.
MOST_SHARES = {"category": 4, "value": 2}
#: Measures of one stream, and features in all.
MOST_MEASURES, MOST_FEATURES = 30, 500


@dataclass(frozen=True)
class Measure:
    """A number per row of a stream.

    Attributes:
        cell: what it is made of.
        via: the foreign key to the parent that has the column; None for the row itself.
        level: of a category, the code of the level that it is 1 for; -1 for the number itself.
        stats: what of it becomes a feature.
    """

    cell: Cell
    via: ForeignKey | None
    level: int
    stats: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it is called."""
        name = self.cell.name if self.via is None else f"{self.via.column}.{self.cell.name}"
        return name if self.level < 0 else f"{name} = {self.cell.levels[self.level]}"

    @property
    def squared(self) -> bool:
        """Whether squares are added up as well."""
        return "std" in self.stats


@dataclass(frozen=True)
class Stream:
    """Rows that belong to rows of another table, in order of time.

    Attributes:
        keys: from the rows up to those they belong to: one foreign key, or two; none if all rows
            belong together.
        table: that of the rows.
        measures: numbers to add up.
        codes: categories of which the last one is a feature.
        pointers: other foreign keys, of which the different values are counted.
    """

    keys: tuple[ForeignKey, ...]
    table: str
    measures: tuple[Measure, ...]
    codes: tuple[Cell, ...] = ()
    pointers: tuple[ForeignKey, ...] = ()

    @property
    def name(self) -> str:
        """What it is called."""
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
    """A row that streams are asked from.

    Attributes:
        table: its table.
        key: None for the entity itself; otherwise the foreign key that leads to it.
        last: None if that key is the entity's own; otherwise the stream whose latest row has it.
        streams: what is asked there.
    """

    table: str
    key: ForeignKey | None
    last: Stream | None
    streams: tuple[Stream, ...]

    @property
    def name(self) -> str:
        """What it is called; empty for the entity itself."""
        if self.key is None:
            return ""
        return self.key.column if self.last is None else f"last {self.last.name}, {self.key.column}"

    @property
    def features(self) -> list[str]:
        """The names of its features, in order."""
        prefix = f"{self.name}: " if self.name else ""
        return [prefix + name for stream in self.streams for name in stream.features]


@dataclass(frozen=True)
class Plan:
    """All features.

    Attributes:
        own: columns of the entity (no key), its parents (one key) and their parents (two).
        anchors: what is added up, and from where.
        left_out: streams for which there was no room, in words.
    """

    own: tuple[tuple[tuple[ForeignKey, ...], Cell], ...]
    anchors: tuple[Anchor, ...]
    left_out: tuple[str, ...] = ()


def make_plan(
    entity: str, history: str, keys: Iterable[ForeignKey], cells: dict[str, list[Cell]],
    sizes: dict[str, int], timed: Set[str] = frozenset(), parts: str = "all",
) -> Plan:  # fmt: skip
    """Choose the features.

    Args:
        entity: the table of the seeds.
        history: the table of earlier labels.
        keys: all foreign keys.
        cells: per table its columns as numbers.
        sizes: per table its rows before the validation time: larger ones come first.
        timed: tables with a time column, which hold events rather than lasting things.
        parts: "all", or "own" for the entity's own columns alone.
    """
    keys = tuple(keys)
    chains: list[tuple[ForeignKey, ...]] = [()]
    if parts == "all":
        up = [key for key in keys if key.table == entity]
        chains += [(key,) for key in up]
        chains += [(key, top) for key in up for top in keys if top.table == key.parent]
    own = tuple(
        (chain, cell)
        for chain in chains
        for cell in cells.get(chain[-1].parent if chain else entity, [])
        if cell.kind != "value"
    )
    if parts == "own":
        return Plan(own, ())
    children = [_stream((key,), keys, cells, full=True) for key in keys if key.parent == entity]
    children.sort(key=lambda s: (s.table != history, -sizes.get(s.table, 0), s.name))
    labels = [Measure(cell, None, -1, CROWD) for cell in cells.get(history, [])]
    candidates: list[Anchor] = [Anchor(entity, None, None, (child,)) for child in children]
    candidates.append(Anchor(history, None, None, (Stream((), history, tuple(labels)),)))
    for key in keys:
        if key.table == entity:
            candidates += [
                Anchor(key.parent, key, None, (_stream((below,), keys, cells),))
                for below in keys
                if below.parent == key.parent
            ]
    met: set[ForeignKey] = set()
    nearby = [(child, key) for child in children for key in child.pointers]
    # A team that lasts says more than a race that is over.
    nearby.sort(key=lambda both: both[1].parent in timed)
    for child, key in nearby:
        for below in keys:
            # The same rows by another way would say much the same again.
            if below.parent == key.parent and below not in met:
                met.add(below)
                stream = _stream((below,), keys, cells)
                candidates.append(Anchor(key.parent, key, child, (stream,)))
    for child in children:
        candidates += [
            Anchor(entity, None, None, (_stream((below, child.keys[0]), keys, cells),))
            for below in keys
            if below.parent == child.table
        ]
    return _cut(own, candidates)


def _cut(own: tuple[tuple[tuple[ForeignKey, ...], Cell], ...], candidates: list[Anchor]) -> Plan:
    """As many as there is room for, in this order; streams of one anchor together."""
    room = MOST_FEATURES - len(own)
    kept: dict[tuple[str, ForeignKey | None, Stream | None], Anchor] = {}
    left_out = []
    asked: set[Stream] = set()
    for anchor in candidates:
        width = len(anchor.features)
        # Where a stream is not asked, nobody knows its latest row.
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
    return Plan(own, tuple(kept.values()), tuple(left_out))


def _stream(
    path: tuple[ForeignKey, ...],
    keys: tuple[ForeignKey, ...],
    cells: dict[str, list[Cell]],
    full: bool = False,
) -> Stream:
    """Children, or children of children, with what there is to add up."""
    table = path[0].table
    others = tuple(key for key in keys if key.table == table and key != path[0])
    own = cells.get(table, [])
    numbers = [
        Measure(cell, None, -1, FULL if full else LIGHT)
        for cell in own
        if cell.kind not in MOST_SHARES
    ]
    shares = [
        Measure(cell, None, level, SHARE)
        for cell in own
        for level in range(min(MOST_SHARES.get(cell.kind, 0), len(cell.levels)))
    ]
    joined = []
    if full:
        for key in others:
            for cell in cells.get(key.parent, []):
                if cell.kind in ("number", "moment"):
                    joined.append(Measure(cell, key, -1, LIGHT))
    measures = (numbers + (shares if full else []) + joined)[:MOST_MEASURES]
    codes = tuple(cell for cell in own if cell.kind == "category") if full else ()
    return Stream(path, table, tuple(measures), codes[:8], others if full else ())
