"""Aggregates of streams, computed by DuckDB: per row and time, over the rows visible by then.

Rows of a stream are sorted by owner and time, with cumulative sums per owner. What was visible at a
time is then a prefix, found by an ASOF join, and a recent window is the difference of two prefixes,
so the cost does not depend on how often a row is used.

A row is visible from its time on, its own or inherited, and a child's child once both are visible.
Values of a parent that is later than its child are missing.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from relfrog.graph.relational import ForeignKey, RelationalGraph
from relfrog.models.aggregates.cumulative import Cumulative
from relfrog.models.aggregates.encoded_columns import EncodedColumn, days
from relfrog.models.aggregates.siblings import beside_siblings
from relfrog.models.aggregates.statistic_sql import statistic_sql
from relfrog.models.aggregates.streams import LAGS, WINDOWS, Measure, Stream
from relfrog.support.arrays import unique_pairs
from relfrog.support.duckdb import silence
from relfrog.support.times import MISSING

__all__ = ["Aggregator"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

#: The most numbers cached between queries.
CACHED_NUMBERS = 120_000_000
#: Rows that are added up at a time: some hundred numbers each.
AT_ONCE = 1 << 18
#: Memory limit of DuckDB, beyond which it spills to disk.
MEMORY = "4GB"


class Aggregator:
    """Aggregates streams in an in-memory DuckDB database.

    Args:
        graph: parent pointers and times.
        encodings: encoded columns with their values, per table. Shapes [rows].
        horizon: horizon of the task, in ticks of the graph.
    """

    def __init__(
        self,
        graph: RelationalGraph,
        encodings: Mapping[str, list[tuple[EncodedColumn, NDArray[np.float64]]]],
        horizon: int,
    ) -> None:
        self.graph, self.horizon = graph, horizon
        self._encodings = encodings
        folder = tempfile.mkdtemp(prefix="relfrog-")
        # Removed with this object, whether it is closed or garbage-collected.
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        # SQL uses numbers for tables and columns, never their names.
        self._db = duckdb.connect(":memory:")
        self._run(f"SET memory_limit = '{MEMORY}'")
        self._run("SET temp_directory = ?", [folder])
        silence(self._db)
        self._tables: dict[str, str] = {}
        self._beside: dict[Measure, str] = {}
        self._streams: dict[Stream, str] = {}
        self._counted: set[Stream] = set()
        self._cached = self._made = 0

    def close(self) -> None:
        """Free the memory."""
        self._db.close()
        self._remove()

    def __enter__(self) -> Aggregator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def aggregate(
        self, stream: Stream, owners: Ints, limits: Ints
    ) -> tuple[Floats, dict[ForeignKey, Ints]]:
        """Aggregate a stream.

        Args:
            stream: the rows, and the statistics of them.
            owners: the rows that they belong to; -1 for none. Shape [n].
            limits: cut-off of each owner. Shape [n].

        Returns:
            The features of the stream, shape [n, features]; and for each pointer of the stream the
            parent of the latest row, -1 for none. Shape [n].
        """
        owner, limit, place = unique_pairs(owners, limits)
        asked = {"ask": np.arange(len(owner)), "owner": owner}
        for number, width in enumerate((0, *WINDOWS)):
            # Avoid an overflow of 64 bits for early cut-offs.
            span = min(width * self.horizon, np.iinfo(np.int64).max // 2)
            early = limit < MISSING + 1 + span
            asked[f"l{number}"] = np.where(early, MISSING, limit - span)
            if width == 0:
                asked["l0"] = limit
        made = self._make(stream)
        self._db.register("asked", asked)
        found = self._db.execute(self._query(stream, made)).fetchnumpy()
        self._db.unregister("asked")
        self._evict(stream, made)
        count = len(stream.features)
        columns = [_column(found, f"f{number}") for number in range(count)]
        table = np.stack(columns, 1) if columns else np.zeros((len(owner), 0), np.float32)
        pointers = {
            key: np.nan_to_num(_column(found, f"p{number}", np.float64), nan=-1.0).astype(np.int64)
            for number, key in enumerate(stream.pointers)
        }
        return table[place], {key: rows[place] for key, rows in pointers.items()}

    def _load(self, table: str) -> str:
        """Create a DuckDB table: place, tick, pointers p.., encodings c..; its name."""
        if table not in self._tables:
            name = f"t{len(self._tables)}"
            count = self.graph.num_rows[table]
            own = self.graph.time(table)
            tick = np.full(count, MISSING) if own is None else own
            columns: dict[str, Any] = {"place": np.arange(count), "tick": tick}
            for number, key in enumerate(self._keys(table)):
                columns[f"p{number}"] = self.graph.parent(key).astype(np.int64)
            moments = days(tick, self.graph.unit)
            for number, (encoded, values) in enumerate(self._encodings.get(table, [])):
                if encoded.kind == "moment" and own is not None:
                    # Relative to the row's time, so that it means the same at all times.
                    values = moments - values - encoded.center
                columns[f"c{number}"] = values
            self._db.register("frame", columns)
            self._run(f"CREATE TEMP TABLE {name} AS FROM frame")
            self._db.unregister("frame")
            self._tables[table] = name
        return self._tables[table]

    def _load_beside(self, measure: Measure) -> str:
        """Create a DuckDB table of place and number beside siblings; its name."""
        assert measure.beside is not None
        kind = replace(measure, stats=())
        if kind not in self._beside:
            name, table = f"b{len(self._beside)}", measure.encoded.table
            own = self.graph.time(table)
            tick = np.full(self.graph.num_rows[table], MISSING) if own is None else own
            values = next(v for e, v in self._encodings[table] if e == measure.encoded)
            parents = self.graph.parent(measure.beside).astype(np.int64)
            found = beside_siblings(values, parents, tick, measure.form)
            frame = {"place": np.arange(len(found)), "v": found}
            self._db.register("frame", frame)
            self._run(f"CREATE TEMP TABLE {name} AS FROM frame")
            self._db.unregister("frame")
            self._beside[kind] = name
        return self._beside[kind]

    def _keys(self, table: str) -> list[ForeignKey]:
        return [key for key in self.graph.foreign_keys if key.table == table]

    def _pointer(self, key: ForeignKey) -> str:
        return f"p{self._keys(key.table).index(key)}"

    def _encoded(self, encoded: EncodedColumn) -> str:
        return f"c{[c for c, _ in self._encodings[encoded.table]].index(encoded)}"

    def _make(self, stream: Stream) -> str:
        """Create the tables of a stream: cumulative sums, last and first rows; its number."""
        if stream in self._streams:
            return self._streams[stream]
        made = str(self._made)
        self._made += 1
        tables = f"{self._load(stream.table)} a"
        owner, tick, where = "0::BIGINT", "a.tick", "true"
        if stream.keys:
            owner = f"a.{self._pointer(stream.keys[0])}"
            where = f"{owner} >= 0"
        if len(stream.keys) == 2:
            middle = self._load(stream.keys[1].table)
            tables += f" JOIN {middle} b ON b.place = {owner}"
            owner = f"b.{self._pointer(stream.keys[1])}"
            where, tick = f"{owner} >= 0", "greatest(a.tick, b.tick)"
        elif stream.link is not None:
            tables += f" ASOF JOIN ({self._linked(stream.link)}) b ON b.owner = {owner}"
            # The label's window began a horizon before it closed, which is the time of its row.
            begin = f"CASE WHEN a.tick > {MISSING} + {self.horizon} THEN a.tick - {self.horizon}"
            tables += f" AND b.tick <= {begin} ELSE {MISSING} END"
            owner = "b.other"
            where = f"{owner} >= 0"
        joined: dict[ForeignKey, str] = {}
        for measure in stream.measures:
            if measure.via is not None and measure.via not in joined:
                name = f"d{len(joined)}"
                joined[measure.via] = name
                tables += (
                    f" LEFT JOIN {self._load(measure.via.parent)} {name} ON {name}.place = "
                    f"a.{self._pointer(measure.via)} AND {name}.tick <= {tick}"
                )
        columns = [f"{owner} AS owner, {tick} AS tick, a.place AS place"]
        for number, measure in enumerate(stream.measures):
            if measure.beside is not None:
                side = f"x{number}"
                tables += f" JOIN {self._load_beside(measure)} {side} ON {side}.place = a.place"
                value = f"{side}.v"
            else:
                side = "a" if measure.via is None else joined[measure.via]
                value = f"{side}.{self._encoded(measure.encoded)}"
            # NaN stands for NULL in NumPy.
            value = f"CASE WHEN NOT isnan({value}) THEN {value} END"
            if measure.level >= 0:
                value = f"(({value}) = {measure.level})::INTEGER::DOUBLE"
            columns.append(f"{value} AS v{number}")
        for number, code in enumerate(stream.codes):
            value = f"a.{self._encoded(code)}"
            columns.append(f"CASE WHEN NOT isnan({value}) THEN {value} END AS k{number}")
        for number, key in enumerate(stream.pointers):
            columns.append(f"nullif(a.{self._pointer(key)}, -1) AS p{number}")
        # A table that is made in an order keeps it: its row ids, from 0, number the rows.
        self._run(
            f"CREATE TEMP TABLE s{made} AS SELECT {', '.join(columns)} FROM {tables} "
            f"WHERE {where} ORDER BY owner, tick, place"
        )
        self._add_up(stream, made)
        self._run(
            f"CREATE TEMP TABLE e{made} AS SELECT owner, tick, max(rowid) + 1 AS g FROM s{made} "
            f"GROUP BY owner, tick"
        )
        self._run(
            f"CREATE TEMP TABLE f{made} AS SELECT owner, min(rowid) + 1 AS g FROM s{made} "
            f"GROUP BY owner"
        )
        self._run(f"DROP TABLE s{made}")
        self._streams[stream] = made
        return made

    def _linked(self, link: tuple[ForeignKey, ForeignKey]) -> str:
        """SQL for the other parent of each owner's latest row, by time."""
        table, owner, other = self._load(link[0].table), *map(self._pointer, link)
        return (
            f"SELECT {owner} AS owner, tick, arg_max({other}, place) AS other FROM {table} "
            f"WHERE {owner} >= 0 GROUP BY {owner}, tick"
        )

    def _add_up(self, stream: Stream, made: str) -> None:
        """Make the table of the rows with what has come together up to each."""
        cumulative = Cumulative(stream, self.graph.num_rows)
        columns = ", ".join(cumulative.columns)
        (rows,) = self._run(f"SELECT count(*) FROM s{made}")[0]
        for first in range(0, max(rows, 1), AT_ONCE):
            part = self._db.execute(
                f"SELECT {columns} FROM s{made} WHERE rowid >= {first} "
                f"AND rowid < {first + AT_ONCE} ORDER BY rowid"
            ).fetchnumpy()
            self._db.register("part", cumulative.add(part))
            into = f"INSERT INTO r{made}" if first else f"CREATE TEMP TABLE r{made} AS"
            self._run(f"{into} FROM part")
            self._db.unregister("part")

    def _query(self, stream: Stream, made: str) -> str:
        """SQL for the features of the rows of `asked`, in their order."""
        asof = "".join(
            f" ASOF LEFT JOIN e{made} e{n} ON a.owner = e{n}.owner AND a.l{n} >= e{n}.tick"
            for n in range(len(WINDOWS) + 1)
        )
        ends = ", ".join(f"e{n}.g AS g{n}" for n in range(len(WINDOWS) + 1))
        # Prefixes to subtract: the rows before each window, and before the last few.
        lows = {f"w{n}": f"x.g{n}" for n in range(1, len(WINDOWS) + 1)}
        lags = stream.ages or any(lag in m.stats for m in stream.measures for lag in LAGS)
        back = (1, 2, 3, 10) if lags else (3, 10)
        lows |= {f"b{n}": f"CASE WHEN x.g0 - {n} >= x.first THEN x.g0 - {n} END" for n in back}
        joins = "".join(f" LEFT JOIN r{made} {low} ON {low}.g = {g}" for low, g in lows.items())
        horizon = float(self.horizon)
        rows = [
            "coalesce(x.g0 - x.first + 1, 0)",
            *(
                f"coalesce(x.g0 - coalesce(x.g{n}, x.first - 1), 0)"
                for n in range(1, len(WINDOWS) + 1)
            ),
            f"CASE WHEN h.tick <> {MISSING} THEN (x.l0::DOUBLE - h.tick::DOUBLE) / {horizon} END",
            f"(x.l0::DOUBLE - h.t0::DOUBLE) / {horizon}",
            f"CASE WHEN x.g0 > x.first AND h.tick <> {MISSING} THEN "
            f"(h.tick::DOUBLE - h.t0::DOUBLE) / {horizon} / (x.g0 - x.first) END",
        ]
        rows = rows if stream.counted else []
        if stream.ages:
            rows += [
                f"CASE WHEN b{n}.tick <> {MISSING} THEN "
                f"(x.l0::DOUBLE - b{n}.tick::DOUBLE) / {horizon} END"
                for n in (1, 2)
            ]
        for number, measure in enumerate(stream.measures):
            rows += [statistic_sql(stat, number, measure) for stat in measure.stats]
        rows += [f"h.k{number}" for number in range(len(stream.codes))]
        rows += [f"coalesce(h.u{number}, 0)" for number in range(len(stream.pointers))]
        columns = [f"({row})::FLOAT AS f{number}" for number, row in enumerate(rows)]
        columns += [f"h.p{number}::DOUBLE AS p{number}" for number in range(len(stream.pointers))]
        return (
            f"WITH x AS (SELECT a.ask, a.l0, f.g AS first, {ends} FROM asked a "
            f"LEFT JOIN f{made} f ON f.owner = a.owner{asof}) "
            f"SELECT {', '.join(columns)} FROM x LEFT JOIN r{made} h ON h.g = x.g0{joins} "
            "ORDER BY x.ask"
        )

    def _evict(self, stream: Stream, made: str) -> None:
        """Drop the tables of a stream if the cache is full."""
        if stream in self._counted:
            return
        rows = self._run(f"SELECT count(*) FROM r{made}")[0][0]
        size = rows * (4 * len(stream.measures) + 8)
        if self._cached + size > CACHED_NUMBERS:
            for kind in "ref":
                self._run(f"DROP TABLE {kind}{made}")
            del self._streams[stream]
        else:
            self._cached += size
            self._counted.add(stream)

    def _run(self, sql: str, given: Any = None) -> list[Any]:
        """Run SQL and fetch all rows, as DuckDB accepts no new query before."""
        return list(self._db.execute(sql, given).fetchall())


def _column(table: dict[str, Any], name: str, kind: Any = np.float32) -> NDArray[Any]:
    """A column of a query result, NaN for NULL."""
    return np.asarray(np.ma.filled(table[name].astype(kind), np.nan))
