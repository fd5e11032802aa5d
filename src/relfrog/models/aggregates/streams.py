"""What features are made of: streams of rows, the rows they belong to, and measures of them.

A *stream* is a table whose rows belong to rows of another table: its children, or their children.
The row that a stream is aggregated for is its *anchor*: the entity, one of its parents, or a parent
of the entity's latest row in one of its streams (such as the team of a driver's last race).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.encoded_columns import EncodedColumn

__all__ = ["Anchor", "FeaturePlan", "Measure", "Stream"]

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
#: Statistics of labels one by one, and of what comes several times in a row.
LAGS, STREAKS = ("second last", "third last"), ("streak",)
#: Statistics of numbers over more windows.
WINDOWED = ("mean of last 10", "mean in 1", "mean in 3", "recent trend")
#: Statistics in which older rows count less and less.
FADING = ("fading mean", "slowly fading mean")
#: Statistics of numbers relative to those of siblings.
BESIDE = ("last", "mean of last 3", "mean of last 10", "mean in 12")
#: Statistics of numbers relative to those of companions.
ALONGSIDE = ("last", "mean of last 10", "fading mean")
#: Statistics of labels of peers.
PEERS = ("mean", "mean of last 3", "mean of last 10", "mean in 1", "mean in 3", "mean in 12")
#: Families of features that every model has, and those that backtests have to speak for.
CORE, TRIED = "core", ("streaks", "siblings", "peers", "windows", "companions", "fading")
#: Those that backtests may drop.
DROPPABLE = ("labels of all", "parents", "track records", "events of events", *TRIED)


@dataclass(frozen=True)
class Measure:
    """A number per row of a stream.

    Attributes:
        encoded: the encoded column.
        via: the foreign key to the parent that has the column; None for the row itself.
        level: for the indicator of a level, its code; -1 for the number itself.
        stats: the statistics that become features.
        beside: for a number relative to those of rows with the same parent and time, the foreign
            key to that parent; None for the number itself.
        form: of such a number: its "difference" from their mean, or its "rank" among them.
    """

    encoded: EncodedColumn
    via: ForeignKey | None
    level: int
    stats: tuple[str, ...]
    beside: ForeignKey | None = None
    form: str = ""

    @property
    def name(self) -> str:
        """Its name in the names of features."""
        name = self.encoded.name if self.via is None else f"{self.via.column}.{self.encoded.name}"
        if self.beside is not None:
            name += f" {self.form} within {self.beside.column}"
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
        link: for labels of peers, two foreign keys of another table: a label belongs to the parent
            by the second that its entity, the parent by the first, had in its latest row when the
            label's window began.
        family: the family of features that it belongs to.
        counted: whether its rows are counted.
        ages: whether there are features of how old the second and third last rows are.
    """

    keys: tuple[ForeignKey, ...]
    table: str
    measures: tuple[Measure, ...]
    codes: tuple[EncodedColumn, ...] = ()
    pointers: tuple[ForeignKey, ...] = ()
    link: tuple[ForeignKey, ForeignKey] | None = None
    family: str = ""
    counted: bool = True
    ages: bool = False

    @property
    def name(self) -> str:
        """Its name in the names of features."""
        name = " of ".join(f"{key.table} by {key.column}" for key in self.keys)
        if self.link is not None:
            name += f" of {self.link[0].table} by {self.link[1].column}"
        return name or f"all {self.table}"

    @property
    def features(self) -> list[str]:
        """The names of its features, in order."""
        names = []
        if self.counted:
            names += ["rows", *(f"rows in {width}" for width in WINDOWS), "since last"]
            names += ["since first", "mean gap"]
        if self.ages:
            names += [f"since {lag}" for lag in LAGS]
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

    @property
    def families(self) -> list[str]:
        """The families that can be dropped, in order."""
        there = {stream.family for anchor in self.anchors for stream in anchor.streams}
        return [family for family in DROPPABLE if family in there]

    def without(self, families: Collection[str]) -> FeaturePlan:
        """The plan without some families."""
        kept = [
            replace(a, streams=tuple(s for s in a.streams if s.family not in families))
            for a in self.anchors
        ]
        return replace(self, anchors=tuple(anchor for anchor in kept if anchor.streams))
