"""The mark on tables and files that RelFrog wrote, so that an import does not read them back.

Predictions that come back as data would be learned from. A table carries the mark as its comment,
where SQLite keeps the text of CREATE TABLE instead; a Parquet file in its metadata. A CSV file has
no place for it: it is listed in a file beside it, in folders that hold other tables as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from relfrog.errors import RunError
from relfrog.support.forms import read_json

__all__ = ["LIST", "MARK", "is_marked_file", "mark_csv", "mark_parquet"]

#: The comment.
MARK = "Written by RelFrog"
#: The file that lists CSV files.
LIST = ".relfrog-written.json"
_KEY = b"written_by"
_TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")


def mark_parquet(data: Any) -> Any:
    """An Arrow table with the mark in its metadata."""
    return data.replace_schema_metadata({**(data.schema.metadata or {}), _KEY: MARK.encode()})


def mark_csv(path: Path) -> None:
    """Note that RelFrog wrote a CSV file, if its folder may be imported."""
    with contextlib.suppress(OSError):  # the file itself is written, which is what counts
        for place in {path.absolute(), path.resolve()}:  # a link, and what it leads to
            _list(place)


def _list(path: Path) -> None:
    others = (p for p in path.parent.iterdir() if p != path and not p.name.startswith("."))
    beside = path.parent / LIST
    if beside.exists() or any(p.name.lower().endswith(_TABLES) for p in others):
        text = json.dumps({**_listed(beside), path.name: _digest(path)}, indent=1)
        beside.write_text(text + "\n", encoding="utf-8")


def is_marked_file(path: Path) -> bool:
    """Whether RelFrog wrote a file, and nobody has written another in its place."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        return False
    if path.name.lower().endswith((".parquet", ".pq")):
        try:
            found = pq.read_schema(path).metadata or {}
        except (OSError, pa.ArrowException):
            return False  # whoever reads it will say what is wrong
        return bool(found.get(_KEY) == MARK.encode())
    listed = _listed(path.parent / LIST)
    return path.name in listed and listed[path.name] == _digest(path)


def _listed(beside: Path) -> dict[str, str]:
    try:
        return dict(read_json(beside, dict[str, str]))
    except RunError:
        return {}


def _digest(path: Path) -> str:
    """A name for a file's content, from its size and its beginning."""
    with path.open("rb") as file:
        start = file.read(1 << 16)
    return f"{path.stat().st_size} {hashlib.sha256(start).hexdigest()[:16]}"
