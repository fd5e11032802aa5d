"""Read a folder of predictions in parts, which may be half done, damaged or somebody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from relfrog.datasets.key_lookup import parse_time
from relfrog.errors import OutputError
from relfrog.support.folder_check import check_inside
from relfrog.support.forms import read_json
from relfrog.support.parquet import UNREADABLE

__all__ = ["MANIFEST", "PLAN", "begun_at", "is_whole", "read_parts"]

MANIFEST, PLAN = "manifest.json", "unfinished.json"


class _Begun(msgspec.Struct):
    """`unfinished.json`: of what the parts are that are there, and when they were begun."""

    model: str
    data: str
    made_at: str


class _Listed(msgspec.Struct):
    """A part in `manifest.json`; its file lies beside it."""

    file: Annotated[str, msgspec.Meta(pattern=r"^[\w-]+\.parquet\Z")]


class _Manifest(msgspec.Struct):
    """What is read of `manifest.json`."""

    parts: Annotated[list[_Listed], msgspec.Meta(min_length=1)]


def read_parts(folder: Path) -> pd.DataFrame:
    """All predictions of a complete folder of parts, in order.

    Raises:
        OutputError: It is not complete, or a part is damaged.
    """
    if not (folder / MANIFEST).is_file():
        raise OutputError(f"{folder} has no {MANIFEST}: predictions are not complete. Go on there.")
    check_inside(folder, OutputError)  # a part that is a pipe would be read for ever
    parts = read_json(folder / MANIFEST, _Manifest, OutputError, "Predict again.")["parts"]
    try:
        tables = [pq.read_table(folder / part["file"]) for part in parts]
        joined = pa.concat_tables([t for t in tables if len(t)] or tables[:1])
        frame: pd.DataFrame = joined.to_pandas()
    except UNREADABLE as error:
        raise OutputError(f"{folder}: a part cannot be read: {error}. Predict again.") from None
    return frame


def begun_at(folder: Path, about: dict[str, str]) -> pd.Timestamp | None:
    """When predictions of the same were begun in a folder; None if they were not.

    Raises:
        OutputError: What says so is damaged.
    """
    path = folder / PLAN
    if not path.is_file():
        return None
    remedy = "Choose another folder."
    found = read_json(path, _Begun, OutputError, remedy)
    if any(found[name] != about[name] for name in ("model", "data")):
        return None
    try:
        return parse_time(found["made_at"]).as_unit("us")
    except (ValueError, TypeError, ArithmeticError):
        raise OutputError(
            f"{path} is damaged ({found['made_at']!r} is no time). {remedy}"
        ) from None


def is_whole(path: Path) -> bool:
    """Whether a part is there; one that is damaged is made anew."""
    if not path.is_file():  # whoever reads a pipe waits for ever
        return False
    try:
        pq.read_metadata(path)
    except UNREADABLE:
        return False
    return True
