"""Where each of LightGBM's features comes from: in words, and the rows behind its value.

The words are those of tables and columns: "mean of order_details.quantity over the last 12
horizons". The rows are found in the graph, not by the queries that compute the features; tests
compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.encoded_columns import EncodedColumn
from relfrog.models.aggregates.features import FeatureMaker
from relfrog.models.aggregates.streams import LAGS, WINDOWS, Anchor, Measure, Stream

__all__ = ["CALENDAR", "FeatureSource", "feature_sources"]

Ints = NDArray[np.int64]

#: Stands for a table, for features that come from the time of the prediction alone.
CALENDAR = "the calendar"
#: Labels one by one.
LAG_WORDS = dict(zip(LAGS, ("second latest", "third latest"), strict=True))
NO_ROWS: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class FeatureSource:
    """Where a feature of one seed comes from.

    Attributes:
        words: what it is.
        table: the table whose rows it is computed from; `CALENDAR` for none.
        rows: these rows, the earliest first.
        hops: foreign keys between them and the entity.
        leads_to: per row the row that it belongs to, nearer to the entity; None where that is the
            entity, or is not known.
        middle: the table of these.
    """

    words: str
    table: str
    rows: Ints
    hops: int = 0
    leads_to: Ints | None = None
    middle: str | None = None


@dataclass(frozen=True, eq=False)
class _Found:
    """The rows of a stream that a seed sees, in order of time, with the times."""

    rows: Ints
    ticks: Ints
    middle: Ints | None


def feature_sources(
    maker: FeatureMaker, row: int, limit: int, classes: Sequence[Any] | None = None
) -> list[FeatureSource]:
    """The sources of all features of a seed, in the order of `maker.names`.

    Args:
        maker: of the features.
        row: of the entity table.
        limit: the seed's cut-off, in ticks of the graph.
        classes: what the outputs of a multiclass label are called.
    """
    found = list(_static(maker, row, limit))
    if maker.prepared.config.features == "all":
        names = ["month", "day of the year", "weekday"]
        names += ["how long before the prediction the data end"] * bool(
            maker.prepared.config.staleness
        )
        found += [FeatureSource(f"{name} of the prediction", CALENDAR, NO_ROWS) for name in names]
    latest: dict[Stream, int] = {}
    for anchor in maker.plan.anchors:
        owner = _owner(maker, anchor, row, limit, latest)
        for stream in anchor.streams:
            seen = _visible_rows(maker, stream, owner, limit)
            if anchor.key is None and len(seen.rows):
                latest[stream] = int(seen.rows[-1])
            found += _stream_sources(maker, anchor, stream, seen, limit, classes)
    return found


def _static(maker: FeatureMaker, row: int, limit: int) -> Any:
    for chain, encoded in maker.plan.own:
        at = int(maker._follow(np.array([row]), np.array([limit]), chain)[0])
        table = chain[-1].parent if chain else maker.entity
        rows = np.array([at]) if at >= 0 else NO_ROWS
        words = _column(encoded, table)
        if encoded.kind == "moment":
            words = f"days since {words}"
        if chain:
            words += f" of its {'.'.join(key.column for key in chain)}"
        yield FeatureSource(words, table, rows, len(chain))
    if maker.graph.time(maker.entity) is not None:
        at = int(maker._visible(maker.entity, np.array([row]), np.array([limit]))[0])
        words = f"age of the row of {maker.entity} in days"
        yield FeatureSource(words, maker.entity, np.array([at]) if at >= 0 else NO_ROWS)


def _owner(
    maker: FeatureMaker, anchor: Anchor, row: int, limit: int, latest: dict[Stream, int]
) -> int:
    """The row that the streams of an anchor belong to; -1 for none."""
    if anchor.key is None:
        return row if anchor.table == maker.entity else 0
    limits = np.array([limit])
    if anchor.last is None:
        return int(maker._follow(np.array([row]), limits, (anchor.key,))[0])
    if anchor.last not in latest:
        return -1
    parent = np.array([int(maker.graph.parent(anchor.key)[latest[anchor.last]])])
    return int(maker._visible(anchor.table, parent, limits)[0])


def _visible_rows(maker: FeatureMaker, stream: Stream, owner: int, limit: int) -> _Found:
    """The rows of a stream, those of an owner that are visible by a time."""
    graph, ticks = maker.graph, maker.effective(stream.table)
    middle = None
    if not stream.keys:
        rows = np.arange(graph.num_rows[stream.table])
        when = ticks
    elif owner < 0:
        return _Found(NO_ROWS, NO_ROWS, None)
    elif stream.link is not None:
        rows = _linked_rows(maker, stream, owner)
        when = ticks[rows]
    else:
        parent = graph.parent(stream.keys[0])
        if len(stream.keys) == 1:
            rows = np.flatnonzero(parent == owner)
            when = ticks[rows]
        else:
            near = stream.keys[1]
            mine = np.flatnonzero(graph.parent(near) == owner)
            rows = np.flatnonzero(np.isin(parent, mine))
            middle = parent[rows].astype(np.int64)
            when = np.maximum(ticks[rows], maker.effective(near.table)[middle])
    order = np.lexsort((rows, when))
    order = order[when[order] <= limit]
    return _Found(rows[order], when[order], None if middle is None else middle[order])


def _linked_rows(maker: FeatureMaker, stream: Stream, owner: int) -> Ints:
    """Labels of entities whose latest row led to the owner when the label's window began."""
    assert stream.link is not None
    graph, (mine, other) = maker.graph, stream.link
    entities = graph.parent(stream.keys[0]).astype(np.int64)
    belongs, leads = graph.parent(mine).astype(np.int64), graph.parent(other)
    ticks, when = maker.effective(stream.table), maker.effective(mine.table)
    labels = np.flatnonzero(np.isin(entities, belongs[leads == owner]))
    begins = np.maximum(ticks[labels], np.iinfo(np.int64).min + maker.horizon) - maker.horizon
    rows = np.flatnonzero(np.isin(belongs, entities[labels]))
    # One number says whose row it is and when it came, so that the latest can be looked up.
    moments = np.unique(when[rows])
    places = belongs[rows] * (len(moments) + 1) + np.searchsorted(moments, when[rows])
    order = np.lexsort((rows, places))
    wanted = entities[labels] * (len(moments) + 1) + np.searchsorted(moments, begins, "right")
    latest = np.searchsorted(places[order], wanted) - 1
    found = rows[order][np.maximum(latest, 0)]
    mine_too = (latest >= 0) & (belongs[found] == entities[labels]) & (leads[found] == owner)
    return np.asarray(labels[mine_too])


def _stream_sources(
    maker: FeatureMaker, anchor: Anchor, stream: Stream, seen: _Found, limit: int,
    classes: Sequence[Any] | None,
) -> list[FeatureSource]:  # fmt: skip
    """The sources of a stream's features, in the order of `Stream.features`."""
    hops = len(stream.keys) + (anchor.key is not None) * (1 if anchor.last is None else 2)
    hops += stream.link is not None
    what, whose = _rows_in_words(maker, stream), _owner_in_words(anchor)
    if stream.family == "peers":
        whose = f"of the {maker.entity} {whose}"

    def source(words: str, chosen: slice | NDArray[np.bool_] = slice(None)) -> FeatureSource:
        middle = None if seen.middle is None else seen.middle[chosen]
        words = f"{words} {whose}".strip()
        table = stream.keys[1].table if middle is not None else None
        return FeatureSource(words, stream.table, seen.rows[chosen], hops, middle, table)

    def recent(width: int) -> NDArray[np.bool_]:
        # In Python's integers, which do not overflow.
        return np.asarray(
            seen.ticks > max(int(limit) - width * maker.horizon, np.iinfo(np.int64).min)
        )

    dated = np.flatnonzero(seen.ticks != np.iinfo(np.int64).min)
    first = slice(dated[0], dated[0] + 1) if len(dated) else slice(0, 0)
    last = slice(max(len(seen.rows) - 1, 0), None)

    def lag(number: int) -> slice:
        """The row that many places before the end."""
        at = len(seen.rows) - number
        return slice(max(at, 0), max(at + 1, 0))

    found = []
    if stream.counted:
        found = [source(f"number of {what}")]
        found += [source(f"number of {what} {_window(width)}", recent(width)) for width in WINDOWS]
        found += [
            source(f"horizons since the latest {_one(what)}", last),
            source(f"horizons since the first {_one(what)}", first),
            source(f"mean horizons between {what}"),
        ]
    if stream.ages:
        found += [
            source(f"horizons since the {word} {_one(what)}", lag(number))
            for number, word in enumerate(LAG_WORDS.values(), 2)
        ]
    for measure in stream.measures:
        name, share = _measure(measure, stream), measure.level >= 0
        if measure.encoded.kind == "label" and classes is not None:
            name, share = f"earlier label = {classes[measure.encoded.part]}", True
        for stat in measure.stats:
            chosen: slice | NDArray[np.bool_] = slice(None)
            if stat == "last":
                chosen = last
            elif stat in LAG_WORDS:
                chosen = lag(2 + list(LAG_WORDS).index(stat))
            elif stat == "recent trend":
                chosen = recent(12)
            elif stat.endswith((" of last 3", " of last 10")):
                chosen = slice(max(len(seen.rows) - int(stat.split()[-1]), 0), None)
            elif stat == "trend":
                chosen = slice(max(len(seen.rows) - 10, 0), None)
            elif stat.startswith(("mean in ", "sum in ")):
                chosen = recent(int(stat.split()[-1]))
            found.append(source(_stat(stat, name, share, _rows_of(maker, stream)), chosen))
    for code in stream.codes:
        found.append(source(f"latest {_column(code, stream.table)}", last))
    for key in stream.pointers:
        found.append(source(f"number of different {key.parent} of {what} ({key.column})"))
    return found


# Words.


def _window(width: int) -> str:
    return "over the last horizon" if width == 1 else f"over the last {width} horizons"


def _column(encoded: EncodedColumn, table: str) -> str:
    if encoded.kind == "label":
        return f"earlier label {encoded.part or ''}".strip()
    name = f"{table}.{encoded.column}"
    return f"length of {name}" if encoded.kind == "length" else name


def _measure(measure: Measure, stream: Stream) -> str:
    table = stream.table if measure.via is None else measure.via.parent
    name = _column(measure.encoded, table)
    if measure.beside is not None:
        same = f"the same {measure.beside.parent}"
        difference = measure.form == "difference"
        return f"{name} minus its mean in {same}" if difference else f"rank of {name} in {same}"
    if measure.encoded.kind == "moment":
        name = f"days since {name}"
    if measure.level >= 0:
        name += f" = {measure.encoded.levels[measure.level]}"
    return name if measure.via is None else f"{name} of {stream.table}.{measure.via.column}"


def _stat(stat: str, name: str, share: bool, rows: str) -> str:
    """A statistic of a column, in words."""
    single, name = name, "earlier labels" if name == "earlier label" else name
    plain = {
        "last": f"latest {single}", "std": f"spread of {name}", "min": f"smallest {single}",
        "max": f"largest {single}", "sum": f"sum of {name}", "mean": f"mean of {name}",
        "trend": f"trend of {name} (the last 3 against the last 10)",
        "recent trend": f"trend of {name} (the last 3 horizons against the last 12)",
        "fading mean": f"mean of {name}, the last 3 {rows} weighing as much as all before",
        "slowly fading mean": f"mean of {name}, the last 12 {rows} weighing as much as all before",
        "streak": f"how often in a row {single} (if negative, how often not)",
        **{lag: f"{word} {single}" for lag, word in LAG_WORDS.items()},
    }  # fmt: skip
    if stat in plain:
        words = plain[stat]
    elif " of last " in stat:
        words = f"mean of {name} over the last {stat.split()[-1]} {rows}"
    else:
        kind, _, width = stat.split()
        words = f"{kind} of {name} {_window(int(width))}"
    return words.replace("mean of", "share of", 1) if share else words


def _rows_in_words(maker: FeatureMaker, stream: Stream) -> str:
    if not stream.keys:
        return "earlier labels of all"
    words = "earlier labels" if stream.table == maker.history else _by(maker, stream.keys[0])
    if stream.family == "peers":
        return words  # whose labels they are is said with the owner
    return words if len(stream.keys) == 1 else f"{words} of its {_by(maker, stream.keys[1])}"


def _rows_of(maker: FeatureMaker, stream: Stream) -> str:
    return "labels" if stream.table == maker.history else stream.table


def _one(words: str) -> str:
    """One of some rows; names of tables stay as they are."""
    return words.replace("earlier labels", "earlier label")


def _by(maker: FeatureMaker, key: ForeignKey) -> str:
    """The table of a key; and its column, where another of its columns leads to the same table."""
    twins = [k for k in maker.keys if k.table == key.table and k.parent == key.parent]
    return key.table if len(twins) == 1 else f"{key.table} by {key.column}"


def _owner_in_words(anchor: Anchor) -> str:
    if anchor.key is None:
        return ""
    if anchor.last is None:
        return f"of the same {anchor.key.parent} ({anchor.key.column})"
    return f"of the {anchor.key.parent} of its latest {anchor.last.table} ({anchor.key.column})"
