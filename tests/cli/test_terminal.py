"""The terminal: colours for eyes, plain text for pipes."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

from relfrog.cli.data_summaries import check_lines, notice_lines
from relfrog.cli.terminal import _BARS, _COLOURS, ROLE_STYLES, coloured, styled, table, visible
from relfrog.datasets.checks.findings import CheckReport
from relfrog.importing.mapping import Notice

HEADERS = ["route", "gate", "role"]
ROWS = [
    ["people <- orders -> things", "0.912", "edge"],
    ["[red]bold[/] \x1b[2J <script>", "0.1", "node"],
]


class Terminal(io.StringIO):
    """Where text goes when someone looks at it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)


def bare(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def made(stream: io.StringIO | None = None) -> str:
    with redirect_stdout(stream or Terminal()):
        return table(HEADERS, ROWS, right=[1], styles={2: ROLE_STYLES})


PLAIN = """\
route                        gate  role
--------------------------  -----  ----
people <- orders -> things  0.912  edge
[red]bold[/] �[2J <script>    0.1  node"""


def test_plain_in_a_pipe() -> None:
    assert made(io.StringIO()) == PLAIN
    assert styled("x", "bold red", io.StringIO()) == "x"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_plain_where_colours_are_not_wanted(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert coloured(Terminal())
    monkeypatch.setenv(name, value)
    assert not coloured(Terminal())
    assert made() == PLAIN


def test_coloured_on_a_terminal() -> None:
    lines = made().splitlines()
    assert bare(lines[0]) == PLAIN.splitlines()[0]
    assert [bare(line) for line in lines[2:]] == PLAIN.splitlines()[2:]
    assert set(bare(lines[1])) == {"─"}
    assert "\x1b[1m" in lines[0]  # bold
    assert "\x1b[2m" in lines[1]  # dim
    assert "33m" in lines[2].split("0.912")[1]  # the role in its colour
    assert "34m" in lines[3].split("0.1")[1]
    assert styled("x", "bold red", Terminal()) == "\x1b[31m\x1b[1mx\x1b[0m"


def test_columns_stay_columns_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    lines = [bare(line) for line in made().splitlines()]
    assert max(map(len, lines)) <= 30
    assert [line.split()[-2:] for line in lines if "0.9" in line] == [["0.912", "edge"]]


def test_findings_and_notices_have_colours() -> None:
    report = CheckReport(passed=["keys"])
    report.error("orders.x", "is wrong", "Fix it.")
    report.warning("orders.y", "is odd", "Look at it.")
    with redirect_stdout(Terminal()):
        said = check_lines(report)
        heading, _ = notice_lines([Notice("leak", "orders", "", "may leak")])
    assert "\x1b[31m" in said.split("\n")[0]
    assert "\x1b[33m" in said.split("\n")[2]
    assert "\x1b[32m" in said
    assert bare(said).splitlines()[0] == "error: orders.x: is wrong"
    assert bare(heading) == "May leak:" != heading


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [True, False])
def test_errors_of_the_command(wanted: bool) -> None:
    parent, child = pty.openpty()
    env = {**os.environ, "TERM": "xterm"} | ({} if wanted else {"NO_COLOR": "1"})
    process = subprocess.Popen(
        [sys.executable, "-m", "relfrog", "inspect", "./none"], stderr=child, env=env
    )
    os.close(child)
    assert process.wait(60) == 1
    said = os.read(parent, 4096).decode()
    os.close(parent)
    assert bare(said).startswith("DatasetError: none does not exist")
    assert ("\x1b[31m" in said) == wanted


@pytest.mark.parametrize(
    "code",
    ["\x1b]52;c;cm0=\x07", "\x1b]0;title\x07", "\x1bP+q\x1b\\", "\x1b[2J", "\x1b[6n", "\x9b31m",
     "\x08", "\x07", "\u202e", "\u2066"],
)  # fmt: skip
def test_no_text_steers_a_terminal(code: str) -> None:
    """Only colours, and what bars need, are codes; lines and tabs stay."""
    for allowed in ("", _COLOURS, _BARS):
        found = visible(f"a\t{code}b\n", allowed)
        assert found.startswith("a\t")
        assert found.endswith("b\n")
        kept = re.sub(_BARS, "", found) if allowed == _BARS else found
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", kept)
    assert visible("\x1b[31mred\x1b[0m\r\x1b[2K", _BARS) == "\x1b[31mred\x1b[0m\r\x1b[2K"
    assert "\x1b" not in visible("\x1b[31mred")
    assert visible("\x1b[2Kred", _COLOURS) == "�[2Kred"
