"""Databases that are dirty but bearable, with a task that fits: for journeys that reach the end.

Odd names, NULLs, keys that name no row, rows that name themselves, parallel keys, keys of two
columns, ties in time, tables without rows, without key or with one row, numbers beyond all bounds,
texts that are markup, and columns in which everything is mixed.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pandas as pd
import yaml

import relfrog
from relfrog.testing import FakeDatabase, FakeTable

__all__ = ["Journey", "journeys", "run_journey"]

START = dt.datetime(2020, 1, 1)
#: Days of the database, of validation and of test.
DAYS, VAL, TEST = 120, 70, 95
NAMES = [
    "order", "select", "naïve café", "名字", "a b", 'say "hi"', "it's", "x; DROP TABLE y; --",
    "<b>bold</b>", "100%", "null", "timestamp", "time", "label", "prediction", "id", "UPPER lower",
    "t", "t0", "rank", "ÄÖÜ", "-dash", "{timedelta}", "$1", "tab\tbed", "_", "x" * 60, "history",
]  # fmt: skip
#: Not for files, and not for flags, which put dots and commas between names.
SQL_NAMES = [*NAMES, "dot.ted", "com,ma", "a=b", "sl/ash", "🐸"]
TEXTS = [
    "", " ", "a", "b", "<script>alert(1)</script>", "nan", "NULL", "none", "-", "two\nlines", "🐸",
    "it's", '"', "x" * 500, "Å", "0", "1e5", "2020-01-01", "=1+1", "\\N", "ﬁ", "\u202e", "a,b;c",
]  # fmt: skip
NUMBERS = [0.0, -0.0, 1.5, -2.25, 1e308, -1e308, 5e-324, 1e-300, float("inf"), float("-inf"),
           float("nan"), 123456789.123]  # fmt: skip
WHOLE = [0, 1, 2, 3, -1, 7, 2**31 - 1, -(2**31)]
LARGE = [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)]
TIMES = [START, dt.datetime(2020, 2, 29, 23, 59, 59, 999999), dt.datetime(2020, 4, 1, 12)]
#: Whoever takes these for the times of rows has too many windows; most journeys go without.
FAR = [*TIMES, dt.datetime(1970, 1, 1), dt.datetime(1900, 2, 28), dt.datetime(2261, 12, 31),
       dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)]  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "text": TEXTS, "number": NUMBERS, "integer": WHOLE, "bigint": LARGE, "boolean": [True, False],
    "time": TIMES, "date": [t.date() for t in TIMES], "date far": [t.date() for t in FAR],
    "decimal": [0, 1.25, -9999999.5],
    "uuid": [uuid.UUID(int=i) for i in (0, 1, 2**128 - 1)],
    "text mixed": ["1", "2.5", "x", "2020-01-01", "true", "", "<i>"],
    "text same": ["same"], "number nothing": [None],
}  # fmt: skip
TINY: dict[str, Any] = {
    "channels": 4, "layers": 1, "neighbors": 3, "epochs": 1, "steps_per_epoch": 2, "batch_size": 32,
    "fd_pairs": 8, "fd_negatives": 1, "encoder_depth": 0, "bins": 2, "text_channels": 4,
    "trials": 1,
}  # fmt: skip
LABELS = {
    "binary": "CAST(count({v}) > {n} AS INTEGER)",
    "regression": "coalesce(sum(hash({v}) % 1000), 0) * {scale}",
    "multiclass": "CASE WHEN count({v}) > {n} THEN '<b>many</b>' WHEN count({v}) > 0 THEN 'o''ne' "
    "ELSE 'none' END",
    "multilabel": "[CAST(count({v}) > 0 AS INTEGER), CAST(count({v}) > {n} AS INTEGER)]",
}


@dataclass
class Journey:
    """A database, where it comes from, and what is to be predicted."""

    database: FakeDatabase
    source: str
    kind: str
    entity: str
    event: str
    item: str
    time: str
    model: str
    seed: int
    horizon: int
    many: int
    scale: float
    ready: bool
    flags: dict[str, list[str]] = field(default_factory=dict)

    def run(self, folder: Path) -> None:
        """Import, add the task, check, train one epoch, predict, evaluate.

        Raises:
            RelFrogError: Something does not fit; `reached` has been written to the folder.
        """
        folder.mkdir(parents=True, exist_ok=True)
        reached = folder / "reached"
        reached.write_text("source")
        files = self.source in ("csv", "parquet")
        place = folder / ("source" if files else f"source.{self.source}")
        address = getattr(self.database, f"to_{self.source}")(place)
        cut = [str(START + dt.timedelta(days=days)) for days in (VAL, TEST)]
        reached.write_text("import")
        relfrog.import_database(
            address, folder / "ds", val=cut[0], test=cut[1], memory="256MB", **self.flags
        )
        reached.write_text("task")
        self.add_task(folder / "ds")
        reached.write_text("check")
        report = relfrog.check(folder / "ds", "y")
        relfrog.inspect(folder / "ds")
        reached.write_text("train" if report.ok else "train after findings")
        settings = {**TINY, "seed": self.seed, "model": self.model}
        run = relfrog.train(
            folder / "ds", "y", folder / "run", settings=settings, baselines=False, model="frog"
        )
        reached.write_text("predict")
        found = run.predict()
        again = relfrog.load_run(folder / "run")
        pd.testing.assert_frame_equal(found, again.predict())
        if "prediction" in found and self.kind == "binary":
            assert found["prediction"].between(0, 1).all()
        reached.write_text("evaluate")
        again.evaluate()

    def add_task(self, folder: Path) -> None:
        """Write the task, with SQL, or with labels that are ready."""
        tables = relfrog.open_dataset(folder).manifest.tables
        record = json.loads((folder / "import.json").read_text())["tables"]
        now = {about["source"]: name for name, about in record.items()}  # some have another name
        entity, event, item = (now[name] for name in (self.entity, self.event, self.item))
        key, time = _quoted(tables[entity].pkey), f"v.{_quoted(tables[event].time_col)}"
        to = {parent: column for column, parent in tables[event].fkeys.items()}
        window = f"{time} > t.timestamp AND {time} <= t.timestamp + INTERVAL '{{timedelta}}'"
        options: dict[str, Any] = {"horizon": f"{self.horizon} days", "type": self.kind}
        if self.kind == "recommendation":
            who, what = _quoted(to[entity]), _quoted(to[item])
            sql = (
                f"SELECT t.timestamp, v.{who} AS src, LIST(DISTINCT v.{what}) AS dst FROM "
                f"timestamps t JOIN {_quoted(event)} v ON {window} WHERE v.{who} IS NOT NULL AND "
                f"v.{what} IS NOT NULL GROUP BY t.timestamp, v.{who}"
            )
            options |= {"source": f"{entity}.src", "target": f"{item}.dst", "k": 2}
        else:
            born = tables[entity].time_col
            there = f"WHERE e.{_quoted(born)} <= t.timestamp " if born else ""
            made = LABELS[self.kind].format(v=time, n=self.many, scale=self.scale)
            sql = (
                f"SELECT t.timestamp, e.{key} AS who, {made} AS y FROM timestamps t CROSS JOIN "
                f"{_quoted(entity)} e LEFT JOIN {_quoted(event)} v ON v.{_quoted(to[entity])} = "
                f"e.{key} AND {window} {there}GROUP BY t.timestamp, e.{key}"
            )
            options |= {"entity": f"{entity}.who", "label": "y"}
        relfrog.add_task(folder, "y", sql, **options)
        if self.ready:
            _make_ready(folder)


def _make_ready(folder: Path) -> None:
    """Leave the labels and take the SQL away."""
    from relfrog.datasets.tasks import load_task

    task = load_task(relfrog.open_dataset(folder), "y")
    place = folder / "tasks" / "y"
    for split in ("train", "val", "test"):
        frame = task.get_table(split, mask_input_cols=False).df
        frame.to_parquet(place / f"{split}.parquet", index=False)
    manifest = yaml.safe_load((place / "manifest.yaml").read_text())
    manifest.pop("sql")
    (place / "manifest.yaml").write_text(yaml.safe_dump({**manifest, "kind": "external"}))


def _quoted(name: str) -> str:
    return '"' + str(name).replace('"', '""') + '"'


@st.composite
def _columns(draw: Any, taken: set[str], names: list[str]) -> dict[str, str]:
    """Some columns more: names and kinds."""
    found: dict[str, str] = {}
    for _ in range(draw(st.integers(0, 4))):
        free = [n for n in names if n.lower() not in taken]
        name = draw(st.sampled_from(free))
        taken.add(name.lower())
        found[name] = draw(st.sampled_from(sorted(VALUES)))
    return found


def _cells(rng: random.Random, kinds: dict[str, str]) -> list[Any]:
    """A value for each column."""
    return [rng.choice([None, *VALUES[kind], *VALUES[kind]]) for kind in kinds.values()]


@st.composite
def journeys(draw: Any) -> Journey:
    """A journey: see the module."""
    source = draw(st.sampled_from(["sqlite", "sqlite", "sqlite", "duckdb", "csv", "parquet"]))
    names = SQL_NAMES if source == "sqlite" else NAMES
    # Characters that a file's name or a flag cannot have.
    plain = [n for n in NAMES if not set(n) & set("\t\"'<>%$;{}") and len(n) > 1]
    entity, event, item = draw(
        st.lists(
            st.sampled_from(names if source == "sqlite" else plain), min_size=3, max_size=3,
            unique_by=lambda n: n[:3].lower(),
        )
    )  # fmt: skip
    kind = draw(st.sampled_from([*LABELS, "recommendation"]))
    rng = random.Random(draw(st.integers(0, 1 << 32)))  # of values: quicker than to draw each
    two = draw(st.sampled_from([False, False, True]))
    many = draw(st.integers(3, 14))
    key_kind = draw(st.sampled_from(["integer", "bigint", "text", "uuid"]))
    keys = [_key(key_kind, i) for i in range(many)]
    flags: dict[str, list[str]] = {"time": [], "pk": [], "fk": []}
    tables: dict[str, FakeTable] = {}

    # Who is predicted for; may name itself, and have a key of two columns.
    itself = not two and draw(st.booleans())
    taken = {"key", "part", "parent", "when", "whom", "whom2", "part2", "what", "again"}
    more = draw(_columns(set(taken), names if source == "sqlite" else plain))
    columns = {"key": key_kind, **({"part": "integer"} if two else {})}
    columns |= {"parent": key_kind} if itself else {}
    rows = []
    for number, key in enumerate(keys):
        own = [key, *([number % 3] if two else [])]
        own += [rng.choice([None, *keys, _key(key_kind, 999)])] if itself else []
        rows.append([*own, *_cells(rng, more)])
    foreign = [(("parent",), entity, ("key",))] if itself else []
    names_of = ("key", "part") if two else ("key",)
    tables[entity] = FakeTable(entity, {**columns, **_kinds(more)}, rows, names_of, foreign)

    # What may be recommended; else it may have no row.
    least = 2 if kind == "recommendation" else 0
    things = list(range(draw(st.integers(least, 6))))
    more = draw(_columns(set(taken), names if source == "sqlite" else plain))
    tables[item] = FakeTable(
        item, {"key": "integer", **_kinds(more)},
        [[thing, *_cells(rng, more)] for thing in things], ("key",),
    )  # fmt: skip

    # What happens: with parallel keys, ties in time, and rows without a time.
    again = draw(st.booleans()) and not two
    more = draw(_columns(set(taken), names if source == "sqlite" else plain))
    columns = {"whom": key_kind, **({"part2": "integer"} if two else {}), "what": "integer"}
    columns |= {"again": key_kind} if again else {}
    columns |= {"when": "time", **_kinds(more)}
    foreign = [(("whom", "part2") if two else ("whom",), entity, names_of)]
    foreign += [(("what",), item, ("key",))]
    foreign += [(("again",), entity, ("key",))] if again else []
    step = draw(st.sampled_from([1, 5, 10]))
    rows = []
    count = draw(st.integers(120, 200))
    for number in range(count):
        who = min(rng.randrange(many), rng.randrange(many))  # some much more often than others
        day = DAYS if number == 0 else rng.randrange(DAYS) // step * step
        odd = rng.randrange(20) if number else 19
        whom = [None if odd == 0 else _key(key_kind, 999) if odd == 1 else keys[who]]
        whom += [who % 3] if two else []
        rows.append(
            [
                *whom, rng.choice([None, 77, *things, *things, *things]),
                *([rng.choice([None, *keys])] if again else []),
                None if odd == 2 else START + dt.timedelta(days=day, hours=6 * (odd % 3)),
                *_cells(rng, more),
            ]
        )  # fmt: skip
    tables[event] = FakeTable(event, {**columns, **_kinds(more)}, rows, (), foreign)

    for number in range(draw(st.integers(0, 2))):
        name, extra = (
            f"extra{number}",
            draw(_columns(set(), names if source == "sqlite" else plain)),
        )
        if extra:
            cells = [_cells(rng, extra) for _ in range(draw(st.sampled_from([0, 1, 3])))]
            tables[name] = FakeTable(name, _kinds(extra), cells)
    if source != "sqlite":
        flags["pk"] = [f"{entity}.{','.join(names_of)}", f"{item}.key"]
        flags["fk"] = [
            f"{event}.{','.join(own)}={parent}.{','.join(theirs)}"
            for own, parent, theirs in foreign
        ] + ([f"{entity}.parent={entity}.key"] if itself else [])
    if "." not in event:
        flags["time"] = [f"{event}.when"]
    simple = ["popularity", "past-visit"] if kind == "recommendation" else ["recent", "mean"]
    models = ["frog"] * 6 + ["sage", "relgnn"] * 2 + [*simple, "lightgbm"]
    return Journey(
        FakeDatabase(tables), source, kind, entity, event, item, "when",
        draw(st.sampled_from(models)),
        draw(st.integers(0, 3)), draw(st.sampled_from([5, 10, 20])), draw(st.integers(0, 2)),
        draw(st.sampled_from([1.0, 1e-6, 1e12])), draw(st.sampled_from([False, False, True])),
        {name: some for name, some in flags.items() if some},
    )  # fmt: skip


def _key(kind: str, number: int) -> Any:
    """The key of a row."""
    made: dict[str, Any] = {
        "integer": 3 * number - 5, "bigint": 2**53 + 2 * number + 1, "text": f"<k>'{number}",
        "uuid": uuid.UUID(int=number + 1),
    }  # fmt: skip
    return made[kind]


def _kinds(columns: dict[str, str]) -> dict[str, str]:
    """The kinds as databases have them."""
    return {name: kind.split(" ")[0] for name, kind in columns.items()}


def run_journey(journey: Journey, folder: Path) -> tuple[str, str]:
    """How far a journey came ("end": all the way), and what was said if it did not reach the end.

    Raises:
        Exception: Anything but an error of RelFrog's own.
    """
    try:
        journey.run(folder)
        return "end", ""
    except relfrog.RelFrogError as error:
        return (folder / "reached").read_text(), f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
