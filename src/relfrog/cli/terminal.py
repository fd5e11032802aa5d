"""Speaking on the terminal: tables, numbers and progress. Data to stdout, all else to stderr.

Text is plain wherever it does not go to a terminal, and where NO_COLOR is set.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TextIO

__all__ = [
    "ROLE_STYLES",
    "TerminalProgress",
    "bar",
    "coloured",
    "guard",
    "guard_streams",
    "is_unread",
    "open_streams",
    "styled",
    "table",
    "visible",
    "wrapped",
]


#: How words in a column are shown; colours that the colour-blind can tell apart.
ROLE_STYLES = {"edge": "bold yellow", "node": "blue", "undecided": "dim"}


#: Characters that steer a terminal, but for lines and tabs, or turn the order of what follows
#: around; and what we write ourselves: colours to both streams, and what progress bars need to
#: standard error.
_STEERING = "[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_COLOURS, _BARS = r"\x1b\[[0-9;]*m", r"\x1b\[(?:[0-9;]*m|[0-9]*[AGJK]|\?25[hl])"


def visible(text: str, allowed: str = "") -> str:
    """A text that steers no terminal: names and values may hold anything.

    Args:
        text: What is to be written.
        allowed: A pattern of codes that stay.
    """
    found = re.compile(f"({allowed or '(?!)'})|{_STEERING}")
    return found.sub(lambda match: match[1] or "�", text)


def guard(stream: TextIO, allowed: str) -> None:
    """Let a stream write only what `visible` lets through, if it is a terminal."""
    if stream.isatty():
        write = stream.write
        setattr(stream, "write", lambda text: write(visible(text, allowed)))  # noqa: B010


def open_streams() -> None:
    """Open what was closed before this process began, for nothing to be read or written there.

    The next file that is opened would get its number, and whatever else is written there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))


def is_unread(stream: TextIO) -> bool:
    """Whether a stream is a pipe whose reader has gone, where the system can tell."""
    try:
        import select

        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    except (AttributeError, OSError, ValueError):  # none on Windows; no file below
        return False


def guard_streams() -> None:
    """Guard standard output and standard error."""
    guard(sys.stdout, _COLOURS)
    guard(sys.stderr, _BARS)


def coloured(stream: TextIO | None = None) -> bool:
    """Whether a stream, standard output by default, is a terminal that wants colours."""
    stream = sys.stdout if stream is None else stream
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(stream.isatty())


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """Text in a colour where the stream, standard output by default, is a terminal.

    Args:
        text: What is said.
        style: A colour, or "bold" or "dim", or both: ``bold red``.
        stream: Where it will be written.
    """
    if not coloured(stream):
        return text
    import click

    words = style.split()
    colour = next((word for word in words if word not in ("bold", "dim")), None)
    return click.style(text, colour, bold="bold" in words or None, dim="dim" in words or None)


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    styles: Mapping[int, Mapping[str, str]] | None = None,
) -> str:
    """Rows in aligned columns: plain text fit for a pipe, or coloured for a terminal.

    On a terminal long cells are broken into lines, so that columns stay columns.

    Args:
        headers: One per column.
        rows: The cells.
        right: The columns with numbers.
        styles: Per column how certain words in it are coloured.
    """
    rows = [[_one_line(cell) for cell in row] for row in rows]
    if coloured():
        return _terminal_table(headers, rows, right, styles or {})
    from rich.cells import cell_len

    cells = [list(headers), *rows]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(headers))]
    lines = []
    for index, row in enumerate(cells):
        parts = []
        for i, cell in enumerate(row):
            space = " " * (widths[i] - cell_len(cell))
            parts.append(space + cell if i in right else cell + space)
        lines.append("  ".join(parts).rstrip())
        if index == 0:
            lines.append("  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _terminal_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int],
    styles: Mapping[int, Mapping[str, str]],
) -> str:
    """A bold header, a dim rule, and cells that are broken where the terminal is narrow."""
    from io import StringIO

    from rich.box import Box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Only the rule below the header; columns are two spaces apart.
    box = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
    shown = Table(
        box=box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold",
        border_style="dim",
    )  # fmt: skip
    width = Console().width
    # Words and numbers stay whole as long as what holds sentences can give way.
    whole = {i for i in range(len(headers)) if not any(" " in row[i] for row in rows)}
    widths = [max(len(row[i]) for row in [headers, *rows]) + 2 for i in whole]
    if sum(widths) + 12 * (len(headers) - len(whole)) > width:
        whole = set(right)
    for i, header in enumerate(headers):
        shown.add_column(
            Text(header), justify="right" if i in right else "left", no_wrap=i in whole,
            overflow="fold",
        )  # fmt: skip
    for row in rows:
        cells = [Text(c, styles.get(i, {}).get(c, "")) for i, c in enumerate(row)]
        shown.add_row(*cells)  # text, not markup: a cell may hold anything
    written = StringIO()
    console = Console(file=written, force_terminal=True, width=width, highlight=False)
    console.print(shown)
    return "\n".join(line.rstrip() for line in written.getvalue().rstrip("\n").split("\n"))


def _one_line(text: str) -> str:
    """Text without line breaks, and without characters that steer a terminal."""
    line = " ".join(str(text).split())
    return line if line.isprintable() else "".join(c if c.isprintable() else "�" for c in line)


def wrapped(text: str, indent: str = "", width: int = 100) -> str:
    """Text in lines, with an indentation."""
    import textwrap

    return textwrap.fill(
        _one_line(text),
        width=width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


class TerminalProgress:
    """An import's progress: a bar on a terminal, one line per table elsewhere."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._live = sys.stderr.isatty()
        self._table = ""
        self._rows = 0
        self._total = 0

    def __enter__(self) -> TerminalProgress:
        if self._live:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
            from rich.progress import TimeElapsedColumn as Elapsed

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("tables  {task.fields[rows]:,} rows"),
                Elapsed(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("connecting", total=None, rows=0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def reading(self, table: str, number: int, total: int) -> None:
        """A table begins."""
        self._finish_table()
        self._table, self._rows = table, 0
        if self._bar is not None:
            from rich.markup import escape

            self._bar.update(
                self._task,
                description=f"reading {escape(table)}",
                completed=number - 1,
                total=total,
            )

    def rows(self, count: int) -> None:
        """So many rows of it are read."""
        self._rows = count
        if self._bar is not None:
            self._bar.update(self._task, rows=self._total + count)

    def step(self, text: str) -> None:
        """What happens after reading."""
        self._finish_table()
        if self._bar is not None:
            from rich.markup import escape

            self._bar.update(self._task, description=escape(text), rows=self._total)

    def _finish_table(self) -> None:
        if self._table:
            if self._bar is None:
                print(f"read {self._table}: {self._rows:,} rows", file=sys.stderr)
            else:
                self._bar.advance(self._task)
            self._total += self._rows
            self._table, self._rows = "", 0


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, moved by what is done and how much there is; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
