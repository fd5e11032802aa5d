"""A column of texts as different texts and, per row, which of them: each is looked at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relfrog.features.values import read_texts
from relfrog.store.file_table import FileTable, is_whole, read_column
from relfrog.support.relbench import Table

__all__ = ["Coded", "code_file", "code_texts", "code_values", "holds_text", "read_cells"]


@dataclass(frozen=True, eq=False)
class Coded:
    """Texts, each different one once.

    Attributes:
        codes: the text of each row, -1 for none. Shape [rows].
        texts: different texts: an array of Python's, or one of Arrow's.
    """

    codes: NDArray[np.int32]
    texts: Any

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Any) -> Coded:
        """Some rows, by a mask or by position; texts that none of them has stay."""
        return Coded(self.codes[rows], self.texts)

    def some(self, chosen: NDArray[Any]) -> list[str]:
        """Some of the different texts, by number."""
        if isinstance(self.texts, np.ndarray):
            return list(self.texts[chosen])
        return list(self.texts.take(pa.array(chosen)).to_pylist())

    def expanded(self) -> pd.Series:
        """The text of each row, None for none."""
        words = np.array([*self.some(np.arange(len(self.texts))), None], object)
        return pd.Series(words[self.codes], dtype=object)

    def counts(self) -> NDArray[np.int64]:
        """How often each text occurs. Shape [texts]."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.texts))

    def find(self, words: tuple[str, ...]) -> NDArray[np.int64]:
        """Where each different text is among some words, -1 if it is not. Shape [texts]."""
        if isinstance(self.texts, np.ndarray):
            known = pd.Index(list(words), dtype=object)
            return np.asarray(known.get_indexer(pd.Index(self.texts, dtype=object)), np.int64)
        known = pa.array(list(words), self.texts.type)
        places = pc.fill_null(pc.index_in(self.texts, known), -1)
        return np.asarray(places.to_numpy(zero_copy_only=False), np.int64)


def code_texts(found: NDArray[Any]) -> Coded:
    """Texts with None where there is none."""
    codes, texts = pd.factorize(np.asarray(found, object), use_na_sentinel=True)
    return Coded(codes.astype(np.int32), np.asarray(texts, object))


def code_values(values: pd.Series | Coded) -> Coded:
    """Values of any kind as texts, see `read_texts`; each different one is written once."""
    if isinstance(values, Coded):
        return values
    kinds = pd.api.types
    if kinds.is_numeric_dtype(values.dtype) or kinds.is_bool_dtype(values.dtype):
        codes, different = pd.factorize(values)
        return Coded(codes.astype(np.int32), read_texts(pd.Series(different)))
    return code_texts(read_texts(values))


def read_cells(table: Table, column: str) -> pd.Series | Coded:
    """A column of a table; texts of a file are coded."""
    if is_whole(table) and holds_text(table.arrow_type(column)):
        return code_file(table, column)
    return read_column(table, column)


def holds_text(kind: pa.DataType | None) -> bool:
    """Whether a column of this type of Arrow's holds texts."""
    if kind is None:
        return False
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def code_chunk(chunk: pa.Array) -> pa.DictionaryArray:
    """Texts of a piece of a column, as numbers of different ones."""
    if not pa.types.is_dictionary(chunk.type):
        return chunk.cast(pa.large_string()).dictionary_encode()
    return chunk.cast(pa.dictionary(pa.int32(), pa.large_string()))


def code_file(table: FileTable, column: str) -> Coded:
    """A column of texts of a file, read in pieces."""
    chunks = [code_chunk(chunk) for chunk in table.chunks(column)]
    kind = pa.dictionary(pa.int32(), pa.large_string())
    if not chunks:
        return Coded(np.zeros(0, np.int32), pa.array([], pa.large_string()))
    joined = pa.chunked_array(chunks, kind).unify_dictionaries()
    codes = np.empty(len(joined), np.int32)
    at = 0
    for chunk in joined.chunks:
        part = pc.fill_null(chunk.indices, -1)
        codes[at : at + len(part)] = part.to_numpy(zero_copy_only=False)
        at += len(part)
    return Coded(codes, joined.chunk(joined.num_chunks - 1).dictionary)
