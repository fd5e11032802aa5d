"""Results arrive in files whole and in order; what cannot be written is refused beforehand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers import plain_rows, some_results
from relfrog.errors import OutputError, UsageError
from relfrog.io.marks import LIST
from relfrog.io.output import check_output, write_frame
from relfrog.support.files import atomic_file


def test_long_names_are_refused_not_cut(fresh_postgres: str) -> None:
    frame = pd.DataFrame({"a": [1]})
    for name in ("x" * 64, "ü" * 32):
        with pytest.raises(OutputError, match="63 bytes at most"):
            check_output(fresh_postgres, name)
    write_frame(frame, fresh_postgres, table="x" * 63)
    with pytest.raises(OutputError, match="63 bytes at most"):
        write_frame(frame.rename(columns={"a": "y" * 64}), fresh_postgres, table="t")


def test_the_canary_password_never_shows(
    fresh_postgres: str, capfd: pytest.CaptureFixture[str]
) -> None:
    canary = "c4n4ry-p4ss"
    frame = pd.DataFrame({"a": ["x\0"]})
    good = fresh_postgres.replace("postgres:@", f"postgres:{canary}@")
    assert canary in good
    said = [write_frame(frame[:0], good, table="t")]
    wrong: list[tuple[str, str | None]] = [
        (good, "t"), (good, f"{canary}.t"), (good, None), (good, "x" * 64), (good, "u"), (good, ""),
        (f"postgresql://me:{canary}@127.0.0.1:1/db", "t"),
        (f"mysql://me:{canary}@127.0.0.1:1/db", "t"),
        (f"mysql://me@127.0.0.1:1/db?password={canary}", "t"),
        (f"mysql://me:{canary}@127.0.0.1:1", "t"),
        (f"postgresql://me:{canary}@[x/db", "t"),
        (f"postgresql:/me:{canary}@h/db", "t"),
        (f"oracle://me:{canary}@h/db", "t"),
        (f"oracle://me:{canary}@h/db.csv", "t"),
    ]  # fmt: skip
    for out, table in wrong:
        with pytest.raises((OutputError, UsageError)) as caught:
            write_frame(frame, out, table=table)
        said.append(str(caught.value))
        if table != "u":
            with pytest.raises((OutputError, UsageError)) as caught:
                check_output(out, table)
            said.append(str(caught.value))
    said += capfd.readouterr()
    assert not [text for text in said if canary in text]


def test_files_give_back_what_was_written(tmp_path: Path) -> None:
    frame = some_results()
    wanted = plain_rows(frame)
    for ending in (".parquet", ".csv", ".csv.gz", ".CSV"):
        path = tmp_path / "deep" / "er" / f"r{ending}"
        check_output(path)
        assert not path.parent.exists() or ending != ".parquet"
        assert write_frame(frame, str(path)) == str(path)
        if ending == ".parquet":
            got = pd.read_parquet(path)
            assert got.index.tolist() == [0, 1, 2, 3, 4]
        else:
            got = pd.read_csv(
                path, dtype={"count": "Int64"}, compression="gzip" if "gz" in ending else None,
                parse_dates=["at"], date_format="ISO8601",
                converters={
                    "score": lambda t: float(t) if t else None, "names": json.loads,
                    "top": lambda t: json.loads(t) if t else None,
                },
            )  # fmt: skip
        assert plain_rows(got) == wanted
    assert sorted(p.name for p in path.parent.iterdir()) == [
        LIST,
        "r.CSV",
        "r.csv",
        "r.csv.gz",
        "r.parquet",
    ]


def test_csv_is_written_plainly(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "k": ["007", None, "a,b"],
            "day": pd.to_datetime(["2020-01-01", None, "2020-01-02"]),
            "at": pd.to_datetime(["2020-01-01 00:00:00.25", "2020-01-02", None], format="mixed"),
            "ns": pd.to_datetime(["2020-01-01T00:00:00.000000001"] * 3).astype("datetime64[ns]"),
            "z": pd.to_datetime(["2020-01-01 02:00+02:00"] * 3, utc=True),
            "s": [0.1 + 0.2, np.nan, 1e-300],
            "n": [1, 2, 3],
            "l": [["x", None], [], None],
        }
    )
    write_frame(frame, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_bytes().decode() == (
        "k,day,at,ns,z,s,n,l\n"
        "007,2020-01-01T00:00:00,2020-01-01T00:00:00.250,2020-01-01T00:00:00.000000001,2020-01-01T00:00:00Z,"
        '0.30000000000000004,1,"[""x"", null]"\n'
        ",,2020-01-02T00:00:00.000,2020-01-01T00:00:00.000000001,2020-01-01T00:00:00Z,,2,[]\n"
        '"a,b",2020-01-02T00:00:00,,2020-01-01T00:00:00.000000001,2020-01-01T00:00:00Z,1e-300,3,\n'
    )
    odd = pd.DataFrame({"k": ["a\rb", "c\r\nd", 'e"f'], "n": [1, 2, 3]})
    write_frame(odd, tmp_path / "b.csv")
    assert pd.read_csv(tmp_path / "b.csv").equals(odd) or list(
        pd.read_csv(tmp_path / "b.csv")["k"]
    ) == list(odd["k"])
    write_frame(odd[:0], tmp_path / "c.csv")
    assert (tmp_path / "c.csv").read_text() == "k,n\n"


def test_a_file_is_replaced_only_if_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("mine")
    with pytest.raises(OutputError, match=r"a\.csv already exists\. Replace it with --overwrite"):
        check_output(path)
    with pytest.raises(OutputError, match="already exists"):
        write_frame(some_results(), path)
    assert path.read_text() == "mine"
    check_output(path, overwrite=True)
    assert path.read_text() == "mine"
    (tmp_path / "link.csv").symlink_to(path)
    write_frame(pd.DataFrame({"a": [1]}), tmp_path / "link.csv", overwrite=True)
    assert path.read_text() == "a\n1\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == [LIST, "a.csv", "link.csv"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_failure_leaves_no_file(
    error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b.csv").write_text("mine")

    def broken(self: Any, path: Path, **options: Any) -> None:
        Path(path).write_text("half")
        raise error

    monkeypatch.setattr(pd.DataFrame, "to_csv", broken)
    expected = KeyboardInterrupt if error is KeyboardInterrupt else OutputError
    for name in ("new/er/a.csv", "b.csv"):
        with pytest.raises(expected):
            write_frame(some_results(), tmp_path / name, overwrite=True)
    assert [p.name for p in tmp_path.rglob("*")] == ["b.csv"]
    assert (tmp_path / "b.csv").read_text() == "mine"


def test_a_file_that_came_in_between_stays(tmp_path: Path) -> None:
    def late() -> None:
        with atomic_file(tmp_path / "a.csv", False) as partial:
            partial.write_text("new")
            (tmp_path / "a.csv").write_text("theirs")

    with pytest.raises(OutputError, match="already exists"):
        late()
    assert (tmp_path / "a.csv").read_text() == "theirs"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".a.csv.partial-999999999").write_text("half")
    write_frame(pd.DataFrame({"a": [1]}), tmp_path / "a.csv")
    assert os.listdir(tmp_path) == ["a.csv"]


@pytest.mark.parametrize(
    ("out", "table", "words"),
    [
        (
            "a.xlsx",
            None,
            r"a\.xlsx: results are written to a file ending in \.parquet, \.csv, \.csv\.gz",
        ),
        ("a", None, "results are written to a file"),
        (".csv", None, "results are written to a file"),
        ("s3://bucket/a.csv", None, "results are written to a file"),
        ("a.csv", "t", r"is a file\. Leave out --table"),
        ("sqlite:///a.db", None, "needs the name of a table.*--table"),
        ("sqlite:///a.db", "", "cannot be a table's name"),
        ("sqlite:///a.db", "a\0b", "cannot be a table's name"),
        ("duckdb:///a.duckdb", ".t", "cannot be a table's name"),
        ("duckdb:///a.duckdb", "t.", "cannot be a table's name"),
        ("sqlite://", "t", "has no file name"),
        ("duckdb:///:memory:", "t", "has no file name"),
        ("mysql://me@h", "t", "has no database name"),
    ],
)
def test_wrong_usage_is_said(
    out: str, table: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: check_output(out, table),
        lambda: write_frame(some_results(), out, table=table),
    ):
        with pytest.raises(UsageError, match=words):
            call()
    assert os.listdir(tmp_path) == []


def test_places_out_of_reach_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no database, though it is longer than a header of one" * 9)
    (tmp_path / "folder.csv").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for out, table, words in (
        (tmp_path / "folder.csv", None, "is a folder"),
        (tmp_path / "file" / "a.csv", None, "file is a file"),
        (tmp_path / ("x" * 300 + ".csv"), None, "too long"),
        (f"sqlite:///{tmp_path / 'file'}", "t", "file is not a database"),
        (f"duckdb:///{tmp_path / 'file'}", "t", "cannot be opened"),
        (f"sqlite:///{tmp_path / 'folder.csv'}", "t", "is a folder"),
        (f"duckdb:///{tmp_path / 'file' / 'a.duckdb'}", "t", "file is a file"),
        ("postgresql://u@127.0.0.1:1/d", "t", "cannot be opened: .* Check host"),
        ("mysql://u@127.0.0.1:1/d", "t", "cannot be opened: .* Check host"),
    ):
        with pytest.raises(OutputError, match=words):
            check_output(out, table, overwrite=True)
        with pytest.raises(OutputError, match=words):
            write_frame(some_results(), out, table=table, overwrite=True)
    assert sorted(tmp_path.rglob("*")) == before
