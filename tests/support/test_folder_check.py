"""A folder holds files of its own and nothing else: no links out, no pipes, no holes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relfrog.errors import DatasetError
from relfrog.support.folder_check import LARGEST_HOLE, check_inside

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links and pipes of Unix")


def test_files_and_links_inside_are_fine(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("some")
    (tmp_path / "b").symlink_to("a")
    check_inside(tmp_path)


@pytest.mark.parametrize("target", ["/etc/hostname", "..", "nowhere/../..", "itself"])
def test_links_that_lead_out_are_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "itself").symlink_to(target)
    with pytest.raises(DatasetError, match="leads out"):
        check_inside(tmp_path)


def test_pipes_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DatasetError, match="neither a file nor a folder"):
        check_inside(tmp_path)


@pytest.mark.skipif(not hasattr(os, "SEEK_HOLE"), reason="the system does not say")
@pytest.mark.parametrize("blocks", [0, 1, 3], ids=lambda n: f"{n} blocks of data")
def test_files_that_were_never_written_are_refused(blocks: int, tmp_path: Path) -> None:
    """A terabyte that takes no room would be read, and hashed, for hours."""
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(LARGEST_HOLE)
        for number in range(blocks):
            os.pwrite(file.fileno(), b"x", number << 29)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this file system has no holes")
    check_inside(tmp_path)
    os.truncate(path, 1 << 40)
    with pytest.raises(DatasetError, match="1,099,511,627,776 bytes, most of which"):
        check_inside(tmp_path)
