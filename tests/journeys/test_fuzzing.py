"""Random databases and damaged files: a RelFrog error or success, never a traceback."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from fuzz import CASES, Outcome, try_case
from fuzz_changes import OWNED
from fuzz_formats import MENDED, make_formats
from oracles.dirty_journeys import Journey, journeys, run_journey
from relfrog import RelFrogError


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_some_random_cases(name: str, store: Path, tmp_path: Path) -> None:
    # The same ones each time: new ones are for benchmarks/fuzz.py, not for whoever changes a word.
    first = 901149147
    for seed in range(first, first + (2 if name == "journey" else 12)):
        found = try_case(name, seed, store, tmp_path / str(seed))
        assert found.kind in ("success", "error"), f"{name} {seed}: {found}"


#: Cases that once ended in a traceback.
FOUND = [
    ("source.db", 50221), ("source.db", 50277), ("facts.json", 1850), ("fingerprint.json", 3456),
    ("keys.parquet", 12), ("keys.parquet", 15), ("kept mapping.yaml", 5),
    ("entities.parquet", 107931), ("audited.parquet", 80), ("table in place.parquet", 2),
    ("table in place.parquet", 38),
]  # fmt: skip
STORED = Path(__file__).parents[1] / "stored" / "format-1" / "run"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_some_changed_files_of_every_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read or refused in words; no file is made. The same ones each time."""
    monkeypatch.chdir(tmp_path)
    formats = make_formats(tmp_path / "formats", STORED)
    assert len(formats) >= 76
    for name, form in formats.items():
        refused = 0
        for number in range(25):
            try:
                form.try_case(random.Random(f"{name} {number}"))
            except RelFrogError:
                refused += 1
        form.put_back()
        assert refused >= 3 or name in MENDED, name
    for name, number in FOUND:
        with contextlib.suppress(RelFrogError):
            formats[name].try_case(random.Random(f"{name} {number}"))
        formats[name].put_back()
    assert not list(tmp_path.rglob(OWNED))


def test_a_traceback_is_noticed(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(CASES, "config", broken)
    assert try_case("config", 0, store, tmp_path) == Outcome("traceback", "ZeroDivisionError: ")


#: How far the journeys of the test below came.
REACHED: list[tuple[str, str]] = []


@pytest.mark.filterwarnings("ignore")
@settings(
    max_examples=6, deadline=120_000, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(journey=journeys())
def _travel(journey: Journey, folder: Path) -> None:
    REACHED.append(run_journey(journey, folder / str(len(REACHED))))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dirty_databases_come_through_the_whole_journey(tmp_path: Path) -> None:
    """Import, check, train one epoch, predict, evaluate: to the end, or an error in words."""
    REACHED.clear()
    _travel(folder=tmp_path)
    assert len(REACHED) >= 6
    assert [at for at, _ in REACHED].count("end") >= 2, REACHED
