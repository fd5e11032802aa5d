"""The six databases of the paper with made-up rows, at any size, as RelBench dataset folders.

    python benchmarks/paper_databases.py rel-hm data/rel-hm            # full size
    python benchmarks/paper_databases.py rel-hm data/small --scale 0.2

Tables, keys, columns, types, row counts and tasks are those of RelBench (`schemas/*.yaml`, as
published); the rows are not: they are drawn here. Customers have a rate and a taste, articles a
group, posts are answered soon after they were written, trials end after they began; so that the
labels of every task have both outcomes and something to learn. A table is written in chunks: what
is kept in memory are times and keys of tables that others name.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from relbench.manifest import DatasetManifest, TableSpec, TaskManifest

from made_values import DAY, Chunk, Description, Words, draw, filled, skewed

__all__ = ["NAMES", "Schema", "read_schema", "write"]

SCHEMAS = Path(__file__).parent / "schemas"
NAMES = tuple(sorted(path.stem for path in SCHEMAS.glob("*.yaml")))
#: Rows drawn at a time.
_CHUNK = 1 << 17
#: Small tables keep this many rows at any scale.
_FEWEST = 200
#: The share of choices that follow the taste of the one who chooses.
_TASTE = 0.7
_RANGE = re.compile(r"^(.*)\{(\d+)\.\.(\d+)\}$")


@dataclass(frozen=True)
class Schema:
    """A database of the paper: what its tables are, and its tasks.

    Attributes:
        name: As RelBench calls it.
        start: When its rows begin, in microseconds.
        end: When they end.
        val: The first time of validation.
        test: The first time of test.
        tables: Table to its rows, columns and options.
        tasks: Task to its manifest.
    """

    name: str
    start: int
    end: int
    val: str
    test: str
    tables: dict[str, dict[str, Any]]
    tasks: dict[str, dict[str, Any]]

    def columns(self, table: str) -> dict[str, Description]:
        """The columns of a table; `c_{1..9}` stands for nine, and `_end` is not written."""
        found = {}
        for name, text in self.tables[table]["columns"].items():
            many = _RANGE.match(name)
            numbers = range(int(many[2]), int(many[3]) + 1) if many else ()
            names = [f"{many[1]}{i}" for i in numbers] if many else [name]
            found |= {one: Description.parse(text) for one in names}
        return found

    def rows(self, table: str, scale: float = 1) -> int:
        """How many rows a table has at a scale."""
        full = int(self.tables[table]["rows"])
        return max(min(full, _FEWEST), round(full * scale))

    def spec(self, table: str) -> TableSpec:
        """Its keys and its time column."""
        columns = self.columns(table)
        return TableSpec(
            pkey=next((n for n, c in columns.items() if c.kind == "key"), None),
            time_col=self.tables[table].get("time"),
            fkeys={n: c.arguments[0] for n, c in columns.items() if c.kind == "to"},
        )


def read_schema(name: str) -> Schema:
    """The schema of one of the six databases.

    Raises:
        ValueError: There is none of this name.
    """
    if name not in NAMES:
        raise ValueError(f"no schema for {name}; there are {', '.join(NAMES)}")
    found = yaml.safe_load((SCHEMAS / f"{name}.yaml").read_text(encoding="utf-8"))
    return Schema(
        name,
        _microseconds(found["start"]),
        _microseconds(found["end"]),
        str(found["val"]),
        str(found["test"]),
        found["tables"],
        found["tasks"],
    )


def write(name: str, folder: Path | str, scale: float = 1, seed: int = 0) -> Path:
    """Write a made-up version of a database of the paper as a dataset folder.

    Args:
        name: One of `NAMES`.
        folder: Where; made if it is not there.
        scale: The share of the rows to write, above 1 for more than there are.
        seed: Other seeds draw other rows.

    Returns:
        The folder.
    """
    schema, folder = read_schema(name), Path(folder)
    (folder / "db").mkdir(parents=True, exist_ok=True)
    database = _Database(schema, scale, seed)
    for table in schema.tables:
        database.write(table, folder / "db" / f"{table}.parquet")
    manifest = DatasetManifest(
        name=name,
        val_timestamp=schema.val,
        test_timestamp=schema.test,
        description=f"Made-up rows in the schema of RelBench's {name}, scale {scale:g}",
        tables={table: schema.spec(table) for table in schema.tables},
    )
    manifest.save(folder / "manifest.yaml")
    for task, fields in schema.tasks.items():
        made = TaskManifest(name=task, kind="forecast", **fields)
        made.validate()
        made.save(folder / "tasks" / task / "manifest.yaml")
    return folder


class _Database:
    """The tables written so far, as far as later ones name them."""

    def __init__(self, schema: Schema, scale: float, seed: int) -> None:
        self.schema, self.scale, self.seed = schema, scale, seed
        self.words = Words(seed)
        self.rows = {table: schema.rows(table, scale) for table in schema.tables}
        self.kept: dict[tuple[str, str], np.ndarray] = {}
        self._orders: dict[tuple[str, str], np.ndarray] = {}
        self._wanted = self._find_wanted()

    def _find_wanted(self) -> set[tuple[str, str]]:
        """Columns that columns of other tables depend on."""
        wanted = set()
        for table in self.schema.tables:
            columns = self.schema.columns(table)
            for column in columns.values():
                if column.kind == "copy":
                    key, _, name = column.arguments[0].partition(".")
                    wanted.add((columns[key].arguments[0], name))
                elif column.kind == "to":
                    parent = column.arguments[0]
                    if "by" in column.options:
                        wanted.add((parent, column.options["by"]))
                    time = self.schema.tables[parent].get("time")
                    if time and not {"spread", "each", "any"} & set(column.arguments):
                        wanted.add((parent, time))
        return wanted

    def write(self, table: str, path: Path) -> None:
        columns = self.schema.columns(table)
        rows, session = self.rows[table], self.schema.tables[table].get("session", 1)
        order = list(self.schema.tables).index(table)
        written = [name for name in columns if not name.startswith("_")]
        for name in columns:
            if (table, name) in self._wanted:
                self.kept[table, name] = np.full(rows, -1, dtype=np.int64)
        writer = None
        for number, first in enumerate(range(0, rows, _CHUNK)):
            rng = np.random.default_rng([self.seed, order, number])
            size = min(_CHUNK, rows - first)
            begins = rng.random(size) < 1 / session
            begins[0] = True
            starts = np.maximum.accumulate(np.where(begins, np.arange(size), 0))
            chunk = Chunk(first, size, rows, rng, starts, {})
            # Times first: keys depend on them.
            drawn = sorted(columns, key=lambda name: columns[name].kind != "time")
            arrays = {name: self._column(table, name, columns[name], chunk) for name in drawn}
            for name in columns:
                if (table, name) in self.kept:
                    self.kept[table, name][first : first + size] = chunk.values[name]
            batch = pa.table({name: arrays[name] for name in written})
            writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
            writer.write_table(batch)
        if writer is not None:
            writer.close()

    def _column(self, table: str, name: str, column: Description, chunk: Chunk) -> pa.Array:
        if column.kind == "key":
            return pa.array(chunk.numbers)
        if column.kind == "time":
            chunk.values[name] = self._times(column, chunk)
            return filled(_timestamps(chunk.values[name]), column, chunk)
        if column.kind == "after":
            low, high = column.number("low", 0) * DAY, column.number("high", 1) * DAY
            later = (chunk.rng.uniform(low, high, chunk.size) // DAY * DAY).astype(np.int64)
            chunk.values[name] = chunk.values[column.arguments[0]] + later
            return _timestamps(chunk.values[name])
        if column.kind == "copy":
            key, _, copied = column.arguments[0].partition(".")
            parent = self.schema.columns(table)[key].arguments[0]
            keys = chunk.values[key]
            values = self.kept[parent, copied][np.maximum(keys, 0)]
            chunk.values[name] = values
            known = pa.array(keys < 0)
            is_key = self.schema.columns(parent)[copied].kind == "to"
            made = pa.array(values) if is_key else _timestamps(values)
            made = pa.array(values, mask=(keys < 0) | (values < 0)) if is_key else made
            return made if not known.true_count else pa.compute.if_else(known, None, made)
        if column.kind == "to":
            keys = self._keys(table, column, chunk)
            missing = chunk.rng.random(chunk.size) < column.number("missing", 0)
            if "session" in column.arguments:
                missing = missing[chunk.session]
            chunk.values[name] = np.where(missing, -1, keys)
            return pa.array(chunk.values[name], mask=chunk.values[name] < 0)
        return draw(f"{table}.{name}", column, chunk, self.words)

    def _times(self, column: Description, chunk: Chunk) -> np.ndarray:
        """Times in the order of the rows, at even intervals or more of them towards the end."""
        start, end = self.schema.start, self.schema.end
        if "from" in column.options:
            start = _microseconds(column.options["from"])
        at = (chunk.numbers + chunk.rng.random(chunk.size)) / chunk.rows
        times = start + (end - start) * at ** (1 / column.number("growth", 1))
        if "early" in column.options:  # a few dates that cannot be right
            first, few = _microseconds(column.options["early"]), 2e-5
            times = np.where(at < few, first + (start - first) * at / few, times)
        unit = DAY if column.options.get("unit") == "day" else 1_000_000
        return (times.astype(np.int64) // unit * unit)[chunk.session]

    def _keys(self, table: str, column: Description, chunk: Chunk) -> np.ndarray:
        """Foreign keys.

        `skew` and `session` make some rows, and rows of one session, share a parent; `like` names
        the key whose taste decides; `spread` goes through the parents in their order, or in that
        of the column `by`; `each` gives every row its own; `era` lets parents come and go with
        time. Where the parent has a time, it is not later than the row, unless `any`.
        """
        parent, how = column.arguments[0], set(column.arguments[1:])
        size = self.rows[parent]
        uniform = chunk.rng.random(chunk.size)
        if "session" in how:
            uniform = uniform[chunk.session]
        at = (chunk.numbers + uniform) / chunk.rows
        if "each" in how:
            return np.minimum(chunk.numbers * size // chunk.rows, size - 1)
        if "spread" in how:
            share = column.number("share", 1)
            among = max(1, int(size * share))
            place = np.minimum((among * at).astype(np.int64) * size // among, size - 1)
            return (
                self._order(parent, column.options["by"])[place]
                if "by" in column.options
                else place
            )
        if "era" in column.options:
            around = at + chunk.rng.normal(0, column.number("era", 0), chunk.size)
            return np.clip(around * size, 0, size - 1).astype(np.int64)
        if (parent, self.schema.tables[parent].get("time")) in self.kept and "any" not in how:
            return self._earlier(table, column, chunk, uniform)
        skew = column.number("skew", 1)
        if "like" not in column.options:
            return _scattered(skewed(uniform, size, skew), size)
        groups = min(int(column.number("groups", 25)), size)
        taste = chunk.values[column.options["like"]] % groups
        other = chunk.rng.integers(groups, size=chunk.size)
        group = np.where(chunk.rng.random(chunk.size) < _TASTE, taste, other)
        return group + groups * skewed(uniform, size // groups, skew)

    def _order(self, table: str, column: str) -> np.ndarray:
        """The rows of a table in the order of a column."""
        if (table, column) not in self._orders:
            self._orders[table, column] = np.argsort(self.kept[table, column], kind="stable")
        return self._orders[table, column]

    def _earlier(
        self, table: str, column: Description, chunk: Chunk, uniform: np.ndarray
    ) -> np.ndarray:
        """Parents of timed tables, whose rows are in order of time: one of those before."""
        parent = column.arguments[0]
        time = self.schema.tables[table]["time"]
        if parent == table:
            known = chunk.numbers
        else:
            times = self.kept[parent, self.schema.tables[parent]["time"]]
            known = np.searchsorted(times, chunk.values[time], side="right")
        if "recent" in column.options:
            back = uniform ** column.number("recent", 1)
            return known - 1 - np.minimum((known * back).astype(np.int64), known - 1)
        found = (known * uniform ** column.number("skew", 1)).astype(np.int64)
        return np.where(known > 0, np.minimum(found, known - 1), -1)


def _scattered(chosen: np.ndarray, size: int) -> np.ndarray:
    """The same choices, with the popular ones anywhere in the table."""
    step = next(p for p in (1_000_003, 999_983, 786_433, 1) if np.gcd(p, size) == 1)
    return chosen * step % size


def _microseconds(date: Any) -> int:
    return int(np.datetime64(str(date), "us").astype(np.int64))


def _timestamps(microseconds: np.ndarray) -> pa.Array:
    return pa.array(microseconds * 1000, pa.timestamp("ns"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rows", type=float, help="instead of --scale: rows of all tables")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    schema = read_schema(arguments.name)
    scale = arguments.scale
    if arguments.rows:
        scale = arguments.rows / sum(schema.rows(table) for table in schema.tables)
    write(arguments.name, arguments.folder, scale, arguments.seed)
    rows = sum(schema.rows(table, scale) for table in schema.tables)
    print(f"{arguments.folder}: {rows:,} rows, {len(schema.tasks)} tasks")


if __name__ == "__main__":
    main()
