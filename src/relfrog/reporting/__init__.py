"""`report`: the results of a run as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from relfrog.errors import UsageError
from relfrog.reporting.gather import gather
from relfrog.reporting.page import page
from relfrog.runs.run import Run, load_run
from relfrog.support.files import user_path, write_text

__all__ = ["report"]


def report(
    run: Run | str | Path,
    out: str | Path | None = None,
    *,
    compare: Run | str | Path | None = None,
    deep: bool = False,
    fresh: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write the report of a run: one HTML file that needs nothing else.

    Args:
        run: the run, or its folder.
        out: the file to write; by default `report.html` in the run folder.
        compare: another run, to compare the roles with.
        deep: whether to spend more time on the importance of tables and columns.
        fresh: whether to recompute what needs the dataset. Otherwise it is computed for the first
            report and cached in the run folder.
        progress: called with a line about each step.

    Returns:
        The file.

    Raises:
        RunError: It is not a run folder, or its training is not complete.
        UsageError: The file cannot be written.
    """
    run = run if isinstance(run, Run) else load_run(run)
    progress = progress or _silent
    other = None
    if compare is not None:
        second = compare if isinstance(compare, Run) else load_run(compare)
        other = gather(second, progress=progress, brief=True)
    path = run.folder / "report.html" if out is None else user_path(out)
    if path.is_dir():
        path = path / "report.html"
    material = gather(run, deep=deep, fresh=fresh, progress=progress)
    try:
        text = page(material, other)
    except Exception:
        if not material.kept:
            raise
        # Read from files as well formed as they may be: they need not fit together.
        progress("what was kept of an earlier report does not fit this run: computing it again")
        text = page(gather(run, deep=deep, fresh=True, progress=progress), other)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
    return path


def _silent(text: str) -> None:
    """Report nothing."""
