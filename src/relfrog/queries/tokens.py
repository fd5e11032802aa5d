"""The words of a question, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

from relfrog.errors import QueryError
from relfrog.queries.syntax import Span, point_at
from relfrog.support.text import nearest

__all__ = ["LONGEST", "Reader", "Token", "tokenize"]

#: The most characters of a question.
LONGEST = 20_000

_PATTERN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<date>\d{4}-\d{2}-\d{2}(?:[T\ ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?
        (?:Z|[-+]\d{2}:\d{2})?)?(?![\w-]))
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    |(?P<name>[^\W\d]\w*)
    |(?P<string>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
    |(?P<mark><=|>=|<>|!=|==|[-+*(),.;=<>]|/(?!\*))""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A word.

    Attributes:
        kind: "name", "quoted", "string", "number", "date", "mark" or "end".
        text: What it says; of a quoted one, without quotes.
        span: Where it stands.
    """

    kind: str
    text: str
    span: Span

    @property
    def word(self) -> str:
        """In capitals if it may be a keyword, a sign as it is; empty otherwise."""
        if self.kind == "name":
            return self.text.upper()
        return self.text if self.kind == "mark" else ""

    @property
    def shown(self) -> str:
        """For an error message."""
        return "the end" if self.kind == "end" else repr(self.text)


def tokenize(text: str) -> list[Token]:
    """Split a question into words; the last is of the kind "end".

    Raises:
        QueryError: A quote is not closed, or a character has no meaning.
    """
    if len(text) > LONGEST:
        raise point_at(
            text, Span(LONGEST, LONGEST + 1), f"a question has at most {LONGEST:,} characters"
        )
    tokens, place = [], 0
    while place < len(text):
        found = _PATTERN.match(text, place)
        if found is None:
            raise point_at(text, Span(place, place + 1), _unreadable(text[place:]))
        kind, said, span = str(found.lastgroup), found.group(), Span(place, found.end())
        place = found.end()
        if kind in ("string", "quoted"):
            said = said[1:-1].replace(said[0] * 2, said[0])
        if kind == "quoted" and not said:
            raise point_at(text, span, "a name is empty")
        if kind != "space":
            tokens.append(Token(kind, said, span))
    return [*tokens, Token("end", "", Span(len(text), len(text) + 1))]


def _unreadable(rest: str) -> str:
    if rest[0] in "'\"`":
        return f"the quote {rest[0]} is not closed"
    if rest.startswith("/*"):
        return "the comment /* is not closed"
    if rest[0].isdigit():
        return (
            "neither a number nor a date; leave a space after a number, write a date as 2024-01-31"
        )
    return f"{rest[0]!r} has no meaning here"


class Reader:
    """Reads the words of a question one after the other."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.place = text, tokenize(text), 0

    @property
    def now(self) -> Token:
        """The word that comes next."""
        return self.tokens[self.place]

    def ahead(self, count: int = 1) -> Token:
        """A word further on."""
        return self.tokens[min(self.place + count, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Go on by a word."""
        token = self.now
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def accept(self, *words: str) -> bool:
        """Take some words if they come next."""
        if any(self.ahead(i).word != word for i, word in enumerate(words)):
            return False
        self.place += len(words)
        return True

    def expect(self, *words: str, after: str = "") -> Token:
        """Take one of some words."""
        if self.now.word in words:
            return self.take()
        raise self.expected(" or ".join(words), after)

    def date(self) -> datetime:
        """The date or time that comes next; with a time zone, the same moment in UTC."""
        try:
            found = datetime.fromisoformat(self.now.text.replace("Z", "+00:00"))
        except ValueError:
            raise point_at(self.text, self.now.span, "there is no such date") from None
        return (
            found if found.tzinfo is None else found.astimezone(timezone.utc).replace(tzinfo=None)
        )

    def expected(self, what: str, after: str = "") -> QueryError:
        """The error that something else was expected here."""
        told = f"expected {what}{f' after {after}' if after else ''}, not {self.now.shown}"
        near = nearest(self.now.text.upper(), what.split(" or ")) if self.now.word else None
        hint = f"; did you mean {near}?" if near and near != self.now.word else ""
        return point_at(self.text, self.now.span, told + hint)
