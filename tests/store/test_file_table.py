"""A table whose rows stay in their file, against a frame with the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relfrog.store import file_table
from relfrog.store.file_table import FileTable

HOURS = [5, 1, None, 9, 3, 3, None, 7]


def written(path: Path) -> tuple[FileTable, pd.DataFrame]:
    start = np.datetime64("2020-01-01", "us")
    times = [None if h is None else start + np.timedelta64(h, "h") for h in HOURS]
    other = [start + np.timedelta64(10 - n, "h") for n in range(len(HOURS))]
    table = pa.table({
        "at": pa.array(times, pa.timestamp("us")), "other": pa.array(other, pa.timestamp("us")),
    })  # fmt: skip
    pq.write_table(table, path)
    return FileTable(path, {}, None, "at"), table.to_pandas()


def same(one: Any, other: Any) -> bool:
    return bool(one == other) or (pd.isna(one) and pd.isna(other))


@pytest.mark.parametrize("piece", [1, 3, 100])
def test_first_and_last_times_are_those_of_the_frame(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_table, "PIECE", piece)
    table, frame = written(tmp_path / "a.parquet")
    for opened in (False, True):  # a header that is open is shared by what is made of the table
        if opened:
            assert len(table) == len(frame)
        for hour in (-1, 0, 1, 3, 8, 20):
            cut = pd.Timestamp("2020-01-01") + pd.Timedelta(hours=hour)
            for some in (table, table.with_time("other")):
                for twice in (some.upto(cut), some.upto(cut).upto(cut - pd.Timedelta(hours=2))):
                    rows = frame
                    for one in twice.layout.cuts:
                        rows = rows[rows[one.column] <= one.time]
                    for column in ("at", "other"):
                        found = twice.retimed({}, column)
                        assert same(found.min_timestamp, rows[column].min()), (hour, column)
                        assert same(found.max_timestamp, rows[column].max()), (hour, column)
                        assert len(found) == len(rows)


def test_times_of_one_cut_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = written(tmp_path / "a.parquet")
    read: list[str] = []
    chunks = FileTable.chunks
    monkeypatch.setattr(
        FileTable, "chunks", lambda self, name: (read.append(name), chunks(self, name))[1]
    )
    assert len(table) == len(HOURS)
    for cut in (pd.Timestamp("2020-01-01T04:00"), pd.Timestamp("2020-01-01T06:00")):
        for _ in range(3):
            assert table.upto(cut).max_timestamp <= cut
    assert read == ["at", "at"]
