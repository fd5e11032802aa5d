"""A packed file of a few kilobytes may hold a line, or rows, without end."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from relfrog.datasets import entities, external
from relfrog.errors import RelFrogError
from relfrog.io.sources import open_source
from relfrog.support import lines
from relfrog.support.lines import bounded_lines


def test_lines_are_those_of_the_file() -> None:
    for text in ("", "a", "a\n\nb\r\nc", "a\n"):
        assert list(bounded_lines(io.StringIO(text, newline=""))) == list(
            io.StringIO(text, newline="")
        )
        assert list(bounded_lines(io.BytesIO(text.encode()))) == list(io.BytesIO(text.encode()))


def packed(path: Path, text: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text))
    return path


@pytest.mark.parametrize("head", [b"", b"id,x\n1,2\n3,"], ids=["in the header", "in a row"])
def test_a_line_without_end_is_refused(
    head: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 1 << 20)
    path = packed(tmp_path / "shop" / "orders.csv.gz", head + b"a" * (9 << 20))
    with pytest.raises(RelFrogError, match="a line of more than 1,048,576 characters"):
        entities._read_csv(path)
    with pytest.raises(RelFrogError, match="a line of more than 1,048,576 characters"):  # noqa: PT012
        with open_source(str(path.parent)) as source:
            for table in source.tables():
                list(source.read(table))


def test_rows_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / "asked.csv.gz", b"id,x\n" + b"1,2\n" * 5000)
    for module in (entities, external):
        monkeypatch.setattr(module, "most_rows", lambda: 4000)
    with pytest.raises(RelFrogError, match=r"more than 4,000 rows"):
        entities._read_csv(path)
    with pytest.raises(RelFrogError, match=r"4,000 rows or more"):
        external.read_frame(path)
    for module in (entities, external):
        monkeypatch.setattr(module, "most_rows", lambda: 6000)
    assert len(entities._read_csv(path)["id"]) == len(external.read_frame(path)) == 5000
