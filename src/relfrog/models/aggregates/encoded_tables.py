"""Encoded columns of tables, made when they are asked for, and features of seeds in files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relfrog.errors import StoreError
from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.encoded_columns import EncodedColumn
from relfrog.store.arrays import open_array
from relfrog.support.forms import read_json

__all__ = ["EncodedTables", "Trail", "load_features", "save_features"]

Ints = NDArray[np.int64]
Encoded = list[tuple[EncodedColumn, NDArray[np.float64]]]
#: Of a stream: the owners, and the parents of the latest row.
Trail = tuple[Ints, dict[ForeignKey, Ints]]


class EncodedTables(Mapping[str, Encoded]):
    """The encoded columns of each table; a table is encoded when it is first needed.

    Args:
        encodings: the encodings of each table.
        encode: computes one of them.
    """

    def __init__(
        self,
        encodings: dict[str, list[EncodedColumn]],
        encode: Callable[[EncodedColumn], NDArray[np.float64]],
    ) -> None:
        self._encodings, self._encode = encodings, encode
        self._known: dict[str, Encoded] = {}

    def __getitem__(self, table: str) -> Encoded:
        if table not in self._known:
            found = [(encoded, self._encode(encoded)) for encoded in self._encodings[table]]
            self._known[table] = found
        return self._known[table]

    def __iter__(self) -> Iterator[str]:
        return iter(self._encodings)

    def __len__(self) -> int:
        return len(self._encodings)

    def replaced(self, table: str, values: Encoded) -> EncodedTables:
        """The same with other values of one table."""
        other = EncodedTables(self._encodings, self._encode)
        other._known = self._known | {table: values}
        return other


def save_features(folder: Path, made: NDArray[np.float32], trail: list[Trail]) -> None:
    """Write the features of seeds, and how they were found, to a folder."""
    np.save(folder / "made.npy", made)
    about = []
    for number, (owners, pointers) in enumerate(trail):
        np.save(folder / f"owners-{number}.npy", owners)
        for place, rows in enumerate(pointers.values()):
            np.save(folder / f"rows-{number}-{place}.npy", rows)
        about.append([[key.table, key.column, key.parent] for key in pointers])
    (folder / "trail.json").write_text(json.dumps(about), encoding="utf-8")


def load_features(folder: Path) -> tuple[NDArray[np.float32], list[Trail]]:
    """Open what `save_features` wrote."""
    trail: list[Trail] = []
    about = read_json(folder / "trail.json", list[list[tuple[str, str, str]]], StoreError)
    for number, keys in enumerate(about):
        pointers = {
            ForeignKey(*key): open_array(folder / f"rows-{number}-{place}.npy")
            for place, key in enumerate(keys)
        }
        trail.append((open_array(folder / f"owners-{number}.npy"), pointers))
    return open_array(folder / "made.npy"), trail
