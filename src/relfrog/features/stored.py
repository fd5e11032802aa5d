"""Encode a table of a file into arrays on disk, a piece at a time, and open them.

The result is what `TableColumns.encode` gives, bit for bit, but narrower, and memory-mapped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relfrog.errors import StoreError
from relfrog.features.coded import Coded, code_chunk, code_file, code_texts, holds_text
from relfrog.features.column_kinds import (
    BagColumn,
    CategoryColumn,
    Column,
    NumberColumn,
    TextColumn,
    TimeColumn,
    VectorColumn,
    calendar,
)
from relfrog.features.novelty import MOST_STORED
from relfrog.features.table import Features, TableColumns, read_column
from relfrog.features.values import missing_mask, read_texts
from relfrog.store.arrays import Writer, open_array
from relfrog.store.file_table import FileTable
from relfrog.support.forms import read_json
from relfrog.support.parquet import reading
from relfrog.support.times import MISSING

__all__ = ["encode_file", "open_encoded"]

ABOUT = "encoded.json"
#: Days of the year by weekday, minutes of the day; one more each for a missing time.
DAYS, MINUTES = 12 * 31 * 7, 1440
#: Rows at a time.
AT_ONCE = 1 << 19


class _About(msgspec.Struct):
    """`encoded.json`."""

    rows: int
    unreadable: list[str]
    unseen: dict[str, list[str]]


@dataclass
class _Seen:
    """What has been seen of a column: whether its type still fits, and new categories."""

    readable: bool = False
    numeric: bool = False
    missing: bool = True
    unseen: set[str] = field(default_factory=set)


def encode_file(table: FileTable, columns: TableColumns, folder: Path) -> None:
    """Write the encoded columns of a file into a folder."""
    rows = table.file_rows
    texts = {c.name: _embed(table, c, number, folder)
             for number, c in enumerate(columns.columns) if isinstance(c, TextColumn)}  # fmt: skip
    narrow = _narrowest(columns.num_codes)
    moments = [c for c in columns.times if c.name != columns.time_col]
    writers = {
        "numbers": Writer(folder / "numbers.npy", np.float32, (rows, len(columns.numbers))),
        "flags": Writer(folder / "flags.npy", np.uint8, (rows, len(columns.flagged))),
        "codes": Writer(folder / "codes.npy", narrow, (rows, len(columns.categories))),
        "moments": Writer(folder / "moments.npy", np.float64, (rows, len(moments))),
    }  # fmt: skip
    for number, column in enumerate(columns.columns):
        if isinstance(column, TimeColumn):
            writers[f"days-{number}"] = Writer(folder / f"days-{number}.npy", np.int16, (rows,))
            if column.hours:
                path = folder / f"minutes-{number}.npy"
                writers[f"minutes-{number}"] = Writer(path, np.int16, (rows,))
        elif isinstance(column, VectorColumn):
            path = folder / f"vectors-{number}.npy"
            writers[f"vectors-{number}"] = Writer(path, np.float32, (rows, column.channels))
    seen = [_Seen() for _ in columns.columns]
    lengths: list[NDArray[np.int64]] = []
    entries: list[NDArray[np.int32]] = []
    try:
        for first, count, chunk in _chunks(table, columns):
            known = {name: found[first : first + count] for name, found in texts.items()}
            parts = _encode_chunk(columns, chunk, count, known, seen)
            bags = parts.pop("bags", None)
            if bags is not None:
                lengths.append(bags[0])
                entries.append(bags[1])
            for name, array in parts.items():
                writers[name].append(array)
    finally:
        for writer in writers.values():
            writer.close()
    if columns.bags:
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]), out=offsets[1:])
        np.save(folder / "bag_offsets.npy", offsets)
        np.save(folder / "bag_values.npy", np.concatenate([np.zeros(0, np.int32), *entries]))
    about = {
        "rows": rows,
        "unreadable": list(dict.fromkeys(
            column.name for column, one in zip(columns.columns, seen, strict=True)
            if not (one.readable or one.numeric or one.missing)
        )),
        "unseen": {
            column.name: sorted(one.unseen)[:MOST_STORED]
            for column, one in zip(columns.columns, seen, strict=True) if one.unseen
        },
    }  # fmt: skip
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")


def _narrowest(count: int) -> type[np.integer[Any]]:
    """The narrowest type of numbers below a count that PyTorch can look up by."""
    return np.uint8 if count <= 2**8 else np.int16 if count <= 2**15 else np.int32


def _chunks(table: FileTable, columns: TableColumns) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Rows in pieces: the first, how many, and of each column its values, or texts as `Coded`."""
    apart = {c.name for c in columns.columns if isinstance(c, TextColumn)}
    wanted = [c.name for c in columns.columns if c.name not in apart]
    names = list(dict.fromkeys(wanted))
    added = {n: np.asarray(table.column(n)) for n in names if n in table.layout.added}
    own = [name for name in names if name not in added]
    first, rows = 0, table.file_rows
    if not own:
        for first in range(0, rows, AT_ONCE):
            last = min(first + AT_ONCE, rows)
            yield first, last - first, {n: pd.Series(v[first:last]) for n, v in added.items()}
        return
    path = table.layout.path
    with reading(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(AT_ONCE, columns=own):
            batch.validate(full=True)
            chunk: dict[str, Any] = {}
            for name in own:
                part = batch.column(batch.schema.get_field_index(name))
                if holds_text(part.type):
                    coded = code_chunk(part)
                    codes = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
                    chunk[name] = Coded(codes.astype(np.int32), coded.dictionary)
                else:
                    chunk[name] = part.to_pandas()
            for name, values in added.items():
                chunk[name] = pd.Series(values[first : first + len(batch)])
            yield first, len(batch), chunk
            first += len(batch)


def _embed(table: FileTable, column: TextColumn, number: int, folder: Path) -> NDArray[np.bool_]:
    """Write the vectors of a column of texts, each once, and which rows have one of them."""
    if holds_text(table.arrow_type(column.name)):
        found = code_file(table, column.name)
    else:
        found = code_texts(read_texts(table.column(column.name)))
    count = len(found.texts)
    with Writer(
        folder / f"vectors-{number}.npy", np.float32, (count + 1, column.channels)
    ) as writer:
        for part in column.vectors(found):
            writer.append(part)
    kind = _narrowest(count + 1)
    codes = np.where(found.codes < 0, count, found.codes).astype(kind)
    with Writer(folder / f"texts-{number}.npy", kind, (len(codes),)) as writer:
        writer.append(codes)
    return np.asarray(found.codes >= 0)


def _encode_chunk(
    columns: TableColumns,
    chunk: dict[str, Any],
    rows: int,
    texts: dict[str, NDArray[np.bool_]],
    seen: list[_Seen],
) -> dict[str, Any]:
    """Some rows as arrays, by the names of the files that they go to."""
    out: dict[str, Any] = {
        "numbers": np.zeros((rows, len(columns.numbers)), np.float32),
        "flags": np.zeros((rows, len(columns.flagged)), np.uint8),
        "codes": np.zeros((rows, len(columns.categories)), np.int32),
        "moments": np.zeros((rows, columns.moment_count), np.float64),
    }
    number = flag = code = moment = 0
    bags: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for place, column in enumerate(columns.columns):
        if isinstance(column, TextColumn):
            readable = texts[column.name]
            found: Any = None
            seen[place].readable |= bool(readable.any())
        else:
            found, readable = _read(column, chunk[column.name])
            _look(column, chunk[column.name], readable, seen[place])
        if column in columns.flagged:
            out["flags"][:, flag] = ~readable
            flag += 1
        if isinstance(column, NumberColumn):
            out["numbers"][:, number] = column.encode(found)
            number += 1
        elif isinstance(column, CategoryColumn):
            out["codes"][:, code] = column.encode(found) + columns.code_offsets[code]
            code += 1
        elif isinstance(column, BagColumn):
            offset = columns.code_offsets[len(columns.categories) + len(bags)]
            row, local = column.encode(found)
            bags.append((row, local + offset))
        elif isinstance(column, TimeColumn):
            _, months, days, weekdays, minutes = calendar(found)
            gone = found == MISSING
            out[f"days-{place}"] = np.where(gone, DAYS, (months * 31 + days) * 7 + weekdays)
            if column.hours:
                out[f"minutes-{place}"] = np.where(gone, MINUTES, minutes)
            if column.name != columns.time_col:
                out["moments"][:, moment] = np.where(readable, found / 1e6, np.nan)
                moment += 1
        elif isinstance(column, VectorColumn):
            out[f"vectors-{place}"] = column.encode(found)
    if bags:
        row, value = (np.concatenate(parts) for parts in zip(*bags, strict=True))
        order = np.argsort(row, kind="stable")
        out["bags"] = np.bincount(row, minlength=rows), value[order].astype(np.int32)
    return out


def _read(column: Column, values: Any) -> tuple[Any, NDArray[np.bool_]]:
    """See `read_column`; values may be coded."""
    if isinstance(values, Coded):
        if isinstance(column, CategoryColumn) and not column.numeric:
            return values, values.codes >= 0
        # A column that was something else when it was fitted: read it as that, text by text.
        values = values.expanded()
    return read_column(column, values)


def _look(column: Column, values: Any, readable: NDArray[np.bool_], seen: _Seen) -> None:
    """Note whether a column still has its type, and which categories are new."""
    seen.readable |= bool(readable.any())
    if isinstance(values, Coded):
        seen.missing &= not (values.codes >= 0).any()
        if isinstance(column, CategoryColumn) and not column.numeric:
            new = np.flatnonzero((values.find(column.categories) < 0) & (values.counts() > 0))
            if len(seen.unseen) < MOST_STORED * 10:
                seen.unseen.update(values.some(new))
        return
    numeric = isinstance(column, NumberColumn | CategoryColumn)
    seen.numeric |= numeric and pd.api.types.is_numeric_dtype(values.dtype)
    seen.missing &= bool(missing_mask(values).all())
    if isinstance(column, CategoryColumn) and not column.numeric:
        try:
            different = pd.Series(values.dropna().unique(), dtype=object)
        except TypeError:  # unhashable values, such as lists, are no categories
            return
        words = {text for text in read_texts(different) if text is not None}
        seen.unseen |= words - set(column.categories)


def open_encoded(
    folder: Path, columns: TableColumns
) -> tuple[Features, list[str], dict[str, list[str]]]:
    """The encoded columns of a folder, memory-mapped.

    Returns:
        The columns; the names of those of which no value can be read; and new categories by
        column.
    """
    import torch

    from relfrog.features.blocks import Block, Blocks

    about = read_json(folder / ABOUT, _About, StoreError)

    def tensor(name: str) -> torch.Tensor:
        return torch.from_numpy(open_array(folder / f"{name}.npy"))

    numbers, flags, codes = tensor("numbers"), tensor("flags"), tensor("codes")
    parts = [Block(part) for part in (numbers, flags) if part.shape[1]]
    later = []
    for place, column in enumerate(columns.columns):
        if isinstance(column, TimeColumn):
            days, minutes = _calendar_tables(column)
            parts.append(Block(torch.from_numpy(days), tensor(f"days-{place}")))
            if column.hours:
                parts.append(Block(torch.from_numpy(minutes), tensor(f"minutes-{place}")))
        elif isinstance(column, TextColumn):
            later.append(Block(tensor(f"vectors-{place}"), tensor(f"texts-{place}")))
        elif isinstance(column, VectorColumn):
            later.append(Block(tensor(f"vectors-{place}")))
    dense = Blocks((*parts, *later), int(about["rows"]))
    bags = [tensor(name) for name in ("bag_offsets", "bag_values")] if columns.bags else []
    found = Features(dense, codes, tensor("moments"), *bags)
    return found, list(about["unreadable"]), dict(about["unseen"])


def _calendar_tables(column: TimeColumn) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What `TimeColumn.encode` makes of each day, and of each minute of a day; then of none."""

    def waves(part: NDArray[np.int64], period: int) -> list[NDArray[np.float32]]:
        angles = np.arange(period) * (2 * np.pi / period)
        return [np.sin(angles).astype(np.float32)[part], np.cos(angles).astype(np.float32)[part]]

    every = np.arange(DAYS)
    days = np.zeros((DAYS + 1, 6), np.float32)
    columns = [*waves(every // 217, 12), *waves(every // 7 % 31, 31), *waves(every % 7, 7)]
    days[:DAYS] = np.stack(columns, 1)
    minutes = np.zeros((MINUTES + 1, 2), np.float32)
    minutes[:MINUTES] = np.stack(waves(np.arange(MINUTES), MINUTES), 1)
    return days, minutes
