"""What an import says: tables, keys and times, also of a dry run; alike things once."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import csv_folder, inside
from relfrog.cli.data_summaries import notice_lines
from relfrog.importing.mapping import Notice


def test_a_dry_run_shows_tables_keys_and_times(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address = csv_folder(
        tmp_path / "csv",
        people="person_id,town\n1,a\n2,b\n3,c\n",
        visits="visit_id,person_id,visited_at\n"
        + "".join(f"{i},{1 + i % 3},2024-01-{1 + i % 28:02d}\n" for i in range(60)),
    )
    code, out, err = inside(capfd, "import", address, "--dry-run", "--mapping", str(tmp_path / "m"))
    assert (code, out) == (0, "")
    assert "visits.person_id -> people.person_id" in err
    assert "visited_at" in err
    assert "Splits: validation from 2024-01" in err


def test_one_table_is_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    address = csv_folder(tmp_path / "csv", people="person_id,town\n1,a\n")
    _, out, _ = inside(capfd, "import", address, str(tmp_path / "out"))
    assert out.startswith("Imported 1 table, 1 row from")


def test_alike_notes_become_one() -> None:
    notes = [
        Notice("note", f"t{i}", "c", f"no time ({i} rows, such as '{i}x'). Try --time t{i}.COLUMN")
        for i in range(12)
    ]
    other = Notice("note", "u", "", "something else")
    few = [Notice("left out", f"t{i}", "c", f"the same value ({i})") for i in range(2)]
    lines = list(notice_lines([*notes, other, *few]))
    text = " ".join(" ".join(lines).split())
    assert text.count("no time") == 1
    assert all(f"t{i}.c" in text for i in range(12))
    assert "Try --time t0.COLUMN (and alike)" in text
    assert "u: something else" in text
    assert text.count("the same value") == 2  # two are soon read
    hints = [
        Notice("suggestion", f"t{i}", "c", f"may refer to p. Use --fk t{i}.c=p.id") for i in "abc"
    ]
    assert " ".join(notice_lines(hints)).count("--fk") == 3  # each is to be copied
