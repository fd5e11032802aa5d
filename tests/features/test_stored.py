"""Columns of files: the same bits as those of frames, whatever the size of the pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from relbench.base import Database

import relfrog.features.stored as stored
import relfrog.store.file_table as file_table
import relfrog.support.arrays as arrays
from oracles.every_column import cut_of, everything, imported
from relfrog.features.blocks import Blocks
from relfrog.features.columns import fit_columns
from relfrog.features.novelty import unseen_categories
from relfrog.graph.relational import build_graph, open_graph
from relfrog.store.file_table import FileTable
from relfrog.training.task_store import digest


def fits(values: pd.Series) -> bool:
    """Whether a file can hold a column: one of numbers and words it cannot."""
    try:
        pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        return False
    return not isinstance(values.dropna().iloc[0] if values.notna().any() else 0, set | complex)


def in_files(db: Database, folder: Path) -> tuple[Database, Database]:
    """The database as read from files, in memory and where it lies."""
    tables, frames = {}, {}
    for number, (name, table) in enumerate(db.table_dict.items()):
        path = folder / f"{number}.parquet"
        frame = table.df[[name for name in table.df if fits(table.df[name])]]
        frame.to_parquet(path, index=False, row_group_size=7)
        tables[name] = FileTable(path, table.fkey_col_to_pkey_table, table.pkey_col, table.time_col)
        frames[name] = file_table.concrete(tables[name])
    return Database(frames), Database(tables)


@pytest.mark.parametrize("seed", [None, 1, 7])
def test_the_same_bits_as_frames(
    seed: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, files = in_files(everything() if seed is None else imported(seed), tmp_path)
    cut = cut_of(frames)
    fitted = [fit_columns(frames, before=cut, text_channels=4)]
    for place, name in ((stored, "AT_ONCE"), (file_table, "PIECE"), (arrays, "BLOCK")):
        monkeypatch.setattr(place, name, 5)
    fitted.append(fit_columns(files, before=cut, text_channels=4))
    expected, unseen = fitted[0].encode(frames), unseen_categories(fitted[0], frames)
    found_unseen = {}
    for name, table in fitted[1].tables.items():
        assert digest(name, table) == digest(name, fitted[0].tables[name])
        (tmp_path / name).mkdir()
        stored.encode_file(files.table_dict[name], table, tmp_path / name)
        found, unreadable, new = stored.open_encoded(tmp_path / name, table)
        assert not unreadable
        found_unseen |= {f"{name}.{column}": texts for column, texts in new.items()}
        assert isinstance(found.dense, Blocks)
        whole, one = found.dense.whole(), expected[name]
        assert whole.shape == one.dense.shape
        assert whole.numpy().tobytes() == one.dense.numpy().tobytes(), name
        rows = torch.randint(len(one), (50,)) if len(one) else torch.zeros(0, dtype=torch.long)
        assert torch.equal(found.dense[rows], one.dense[rows])
        assert torch.equal(found.codes.int(), one.codes)
        assert found.moments.numpy().tobytes() == one.moments.numpy().tobytes()
        for part in ("bag_offsets", "bag_values"):
            ours, theirs = getattr(found, part), getattr(one, part)
            assert ours is theirs is None or torch.equal(ours, theirs)
    assert found_unseen == unseen


@pytest.mark.parametrize("seed", [1, 7])
def test_the_same_graph(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, files = in_files(imported(seed), tmp_path)
    one = build_graph(frames)
    monkeypatch.setattr(file_table, "PIECE", 5)
    monkeypatch.setattr(arrays, "BLOCK", 3)
    (tmp_path / "graph").mkdir()
    build_graph(files, tmp_path / "graph")
    other = open_graph(tmp_path / "graph")
    for name in ("parents", "children", "blocks", "times", "keys", "tables"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert (one.unit, one.num_rows) == (other.unit, other.num_rows)


def test_values_of_another_type_are_told(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": np.arange(60), "n": np.arange(60) * 1.5, "w": ["x y", "z"] * 30})
    frames, _ = in_files(Database({"t": file_table.Table(frame, {}, "id", None)}), tmp_path)
    fitted = fit_columns(frames, before=pd.Timestamp("2020-01-01"))
    frame.assign(n="no number").to_parquet(tmp_path / "0.parquet")
    changed = FileTable(tmp_path / "0.parquet", {}, "id", None)
    (tmp_path / "out").mkdir()
    stored.encode_file(changed, fitted.tables["t"], tmp_path / "out")
    assert stored.open_encoded(tmp_path / "out", fitted.tables["t"])[1] == ["n"]


def test_columns_of_blocks_move_alone() -> None:
    from relfrog.features.blocks import Block

    values, codes = torch.rand(4, 3), torch.tensor([0, 3, 1, 1, 2], dtype=torch.uint8)
    blocks = Blocks((Block(torch.rand(5, 2)), Block(values, codes)), 5)
    order = torch.tensor([4, 3, 2, 0, 1])
    for columns in ([0], [0, 1], [2, 3, 4], [1, 2, 3, 4], []):
        expected = blocks.whole().clone()
        expected[:, columns] = blocks.whole()[order][:, columns]
        assert torch.equal(blocks.reordered(order, columns).whole(), expected)


@pytest.mark.parametrize("cut", [None, "2020-01-05", "1999-01-01"])
def test_pieces_of_times_are_the_column(
    cut: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_table, "PIECE", 3)
    times = pd.Series(pd.date_range("2020-01-01", periods=11, freq="D")).where(np.arange(11) != 4)
    pd.DataFrame({"at": times}).to_parquet(tmp_path / "t.parquet", index=False)
    table = FileTable(tmp_path / "t.parquet", {}, None, "at")
    table = table if cut is None else table.upto(pd.Timestamp(cut))
    expected = times if cut is None else times[times <= pd.Timestamp(cut)]
    parts = list(file_table.column_parts(table, "at"))
    assert len(parts) == 4
    assert pd.concat(parts).tolist() == expected.tolist() == table.column("at").tolist()
    assert len(table) == len(expected)
    ends = [table.min_timestamp, table.max_timestamp]
    assert ends == [expected.min(), expected.max()] or pd.isna([*ends, expected.min()]).all()
