"""The parser: recursive descent over the words of a question.

::

    question    := PREDICT or [mode] FOR [EACH] name [= literal | IN list] [WHERE or] [ASSUMING or]
    mode        := CLASSIFY | RANK TOP number | FORECAST number TIMEFRAMES
    or          := and {OR and};   and := not {AND not};   not := NOT not | comparison
    comparison  := sum [operator sum | [NOT] IN list | [NOT] BETWEEN sum AND sum | IS [NOT] NULL
                   | [NOT] (LIKE | STARTS WITH | ENDS WITH | CONTAINS) string]
    sum         := product {(+ | -) product};   product := sign {(* | /) sign}
    sign        := - sign | primary
    primary     := ( or ) | literal | aggregation | name
    aggregation := function ( name {VIA name} [WHERE or] [, window] )
    window      := number , number [, unit] | NEXT [number] unit | LAST [number] unit
"""

from __future__ import annotations

from relfrog.errors import QueryError
from relfrog.queries.syntax import (
    AGGREGATIONS,
    Aggregation,
    Arithmetic,
    Between,
    Column,
    Comparison,
    Expression,
    InList,
    IsNull,
    Literal,
    Logical,
    Match,
    Not,
    Query,
    Span,
    Value,
    Window,
    point_at,
)
from relfrog.queries.tokens import Reader
from relfrog.support.text import nearest

__all__ = ["UNITS", "parse"]

#: Units by every way to write them.
UNITS = {
    word: unit
    for unit, words in {
        "SECOND": "SECOND SECONDS SEC S",
        "MINUTE": "MINUTE MINUTES MIN",
        "HOUR": "HOUR HOURS H",
        "DAY": "DAY DAYS D",
        "WEEK": "WEEK WEEKS W",
        "MONTH": "MONTH MONTHS",
        "YEAR": "YEAR YEARS",
    }.items()
    for word in words.split()
}
#: Other names of aggregations.
_ALIASES = {"MEAN": "AVG", "AVERAGE": "AVG"}
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">",
                ">=": ">="}  # fmt: skip
#: Ways to ask about a part of a text.
_MATCHES = (("LIKE",), ("STARTS", "WITH"), ("STARTS_WITH",), ("ENDS", "WITH"), ("ENDS_WITH",),
            ("CONTAINS",))  # fmt: skip
#: The deepest nesting of parentheses, NOT and signs.
_DEEPEST = 40
#: The most signs of arithmetic, and the most conditions that one AND or OR joins.
_MOST_OPERATORS, _MOST_CONDITIONS = 60, 500
#: The largest number in a window, in a list or in a forecast.
_LARGEST = 1_000_000


def parse(text: str) -> Query:
    """Parse a question.

    Raises:
        QueryError: It is not one, with a caret under the place and what was expected there.
    """
    if not isinstance(text, str):
        raise QueryError(f"a question must be text (got {text!r})")
    return _Parser(text).question()


class _Parser(Reader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = self.operators = 0

    # Clauses.

    def question(self) -> Query:
        self.expect("PREDICT")
        target = self.expression()
        rank, classify, forecast, mode = self.mode()
        self.expect("FOR", after="the target")
        self.accept("EACH")
        entity = self.column()
        only = self.keys()
        where = self.expression() if self.accept("WHERE") else None
        assuming = self.expression() if self.accept("ASSUMING") else None
        self.accept(";")
        if self.now.kind != "end":
            if self.now.word == "WHERE" and where is not None:
                raise point_at(self.text, self.now.span, "a second WHERE; join conditions by AND")
            left = [w for w, given in (("WHERE", where), ("ASSUMING", assuming)) if given is None]
            if assuming is not None:
                left = []
            raise self.expected(" or ".join([*left, "the end"]))
        return Query(
            self.text, target, entity, only, where, assuming, rank, classify, forecast, mode
        )

    def mode(self) -> tuple[int | None, bool, int | None, Span | None]:
        begin = self.now.span
        if self.accept("CLASSIFY"):
            return None, True, None, begin
        if self.accept("RANK"):
            self.expect("TOP", after="RANK")
            return self.count("RANK TOP"), False, None, begin
        if self.accept("FORECAST"):
            steps = self.count("FORECAST")
            self.expect("TIMEFRAMES", "TIMEFRAME", after="FORECAST n")
            return None, False, steps, begin
        return None, False, None, None

    def keys(self) -> tuple[Literal, ...] | None:
        if self.now.word in ("=", "=="):
            self.take()
            return (self.literal(),)
        if self.accept("IN"):
            return self.items()
        return None

    # Expressions.

    def expression(self) -> Expression:
        return self.joined("OR")

    def joined(self, word: str) -> Expression:
        items = [self.joined("AND") if word == "OR" else self.negated()]
        while self.accept(word):
            if len(items) == _MOST_CONDITIONS:
                told = f"more than {_MOST_CONDITIONS} conditions; write a list: IN (...)"
                raise point_at(self.text, self.now.span, told)
            items.append(self.joined("AND") if word == "OR" else self.negated())
        if len(items) == 1:
            return items[0]
        return Logical(word, tuple(items), items[0].span.to(items[-1].span))

    def negated(self) -> Expression:
        begin = self.now.span
        if self.ahead().word != "." and self.accept("NOT"):  # a table may be called so
            self.deeper(begin)
            item = self.negated()
            self.depth -= 1
            return Not(item, begin.to(item.span))
        return self.comparison()

    def comparison(self) -> Expression:
        left = self.sum()
        operator = _COMPARISONS.get(self.now.word)
        if operator is not None:
            self.take()
            right = self.sum()
            return Comparison(operator, left, right, left.span.to(right.span))
        if self.accept("IS"):
            negative = self.accept("NOT")
            end = self.expect("NULL", after="IS NOT" if negative else "IS").span
            return self.maybe_not(negative, IsNull(left, left.span.to(end)))
        negative = self.accept("NOT")
        found = self.postfix(left)
        if found is None:
            if negative:
                raise self.expected("IN or BETWEEN or LIKE or STARTS or ENDS or CONTAINS", "NOT")
            return left
        return self.maybe_not(negative, found)

    def maybe_not(self, negative: bool, item: Expression) -> Expression:
        return Not(item, item.span) if negative else item

    def postfix(self, left: Expression) -> Expression | None:
        """What may follow a value besides a comparison."""
        if self.accept("IN"):
            items = self.items()
            return InList(left, items, left.span.to(self.tokens[self.place - 1].span))
        if self.accept("BETWEEN"):
            low = self.sum()
            self.expect("AND", after="BETWEEN and a value")
            high = self.sum()
            return Between(left, low, high, left.span.to(high.span))
        for words in _MATCHES:
            if self.now.word == words[0]:
                self.take()
                for word in words[1:]:
                    self.expect(word, after=words[0])
                pattern = self.literal()
                operator = words[0].partition("_")[0]
                return Match(operator, left, pattern, left.span.to(pattern.span))
        return None

    def sum(self) -> Expression:
        left = self.product()
        while self.now.word in ("+", "-"):
            operator = self.operator()
            right = self.product()
            left = Arithmetic(operator, left, right, left.span.to(right.span))
        return left

    def product(self) -> Expression:
        left = self.sign()
        while self.now.word in ("*", "/"):
            operator = self.operator()
            right = self.sign()
            left = Arithmetic(operator, left, right, left.span.to(right.span))
        return left

    def operator(self) -> str:
        token = self.take()
        self.operators += 1
        if self.operators > _MOST_OPERATORS:
            raise point_at(self.text, token.span, f"more than {_MOST_OPERATORS} signs + - * /")
        return token.text

    def sign(self) -> Expression:
        begin = self.now.span
        if self.accept("-"):
            self.deeper(begin)
            item = self.sign()
            self.depth -= 1
            if isinstance(item, Literal) and isinstance(item.value, int | float):
                return Literal(-item.value, begin.to(item.span))
            return Arithmetic("-", Literal(0, begin), item, begin.to(item.span))
        return self.primary()

    def deeper(self, span: Span) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise point_at(self.text, span, f"nested more than {_DEEPEST} deep")

    def primary(self) -> Expression:
        token = self.now
        if self.accept("("):
            self.deeper(token.span)
            item = self.expression()
            self.depth -= 1
            self.expect(")", after="what is in parentheses")
            return item
        if token.kind == "name" and self.ahead().word == "(":
            return self.aggregation()
        if token.kind in ("name", "quoted") and self.ahead().word == ".":
            return self.column()
        found = self.maybe_literal()
        if found is not None:
            return found
        if token.kind == "name":
            if token.word in AGGREGATIONS or token.word in _ALIASES:
                self.take()
                raise self.expected("(", token.word)
            return self.column()
        raise self.expected("a column, an aggregation or a value")

    # Names and values.

    def column(self) -> Column:
        """A name with dots; ``*`` may be its last part."""
        if self.now.kind not in ("name", "quoted"):
            raise self.expected("a name such as orders.total")
        first = self.take()
        parts, span = [first.text], first.span
        while self.now.word == ".":
            self.take()
            if self.now.kind not in ("name", "quoted") and self.now.word != "*":
                raise self.expected("a column", f"{'.'.join(parts)}.")
            last = self.take()
            parts.append(last.text)
            span = span.to(last.span)
            if last.word == "*":
                break
        return Column(tuple(parts), span)

    def literal(self) -> Literal:
        begin = self.now.span
        negative = self.accept("-")
        found = self.maybe_literal()
        if found is None or (negative and not isinstance(found.value, int | float)):
            raise self.expected("a value such as 5 or 'text'")
        if negative and isinstance(found.value, int | float):
            return Literal(-found.value, begin.to(found.span))
        return found

    def maybe_literal(self) -> Literal | None:
        token = self.now
        value: Value
        if token.word == "DATE" and self.ahead().kind == "string":
            self.take()
            return Literal(self.take().text, token.span.to(self.tokens[self.place - 1].span))
        if token.kind in ("string", "quoted"):
            value = token.text
        elif token.kind == "number":
            value = float(token.text) if not token.text.isdecimal() else int(token.text)
        elif token.kind == "date":
            value = self.date()
        elif token.word in ("TRUE", "FALSE"):
            value = token.word == "TRUE"
        elif token.word == "NULL":
            raise point_at(self.text, token.span, "write IS NULL or IS NOT NULL")
        else:
            return None
        self.take()
        return Literal(value, token.span)

    def items(self) -> tuple[Literal, ...]:
        self.expect("(", after="IN")
        items = [self.literal()]
        while self.accept(","):
            items.append(self.literal())
        self.expect(")", after="a value")
        return tuple(items)

    def count(self, after: str, lowest: int = 1) -> int:
        if self.now.kind != "number" or not self.now.text.isdecimal():
            raise self.expected("a whole number", after)
        token = self.take()
        if not lowest <= int(token.text[:12]) <= _LARGEST or len(token.text) > 12:
            told = f"must be from {lowest} to {_LARGEST:,}"
            raise point_at(self.text, token.span, told)
        return int(token.text)

    # Aggregations.

    def aggregation(self) -> Aggregation:
        name = self.take()
        function = _ALIASES.get(name.word, name.word)
        if function not in AGGREGATIONS:
            near = nearest(function, AGGREGATIONS)
            known = f"did you mean {near}?" if near else f"there are {', '.join(AGGREGATIONS)}"
            told = f"{name.text}: no such aggregation; {known}"
            raise point_at(self.text, name.span, told)
        self.deeper(name.span)
        self.expect("(")
        if self.now.word == "DISTINCT" and self.ahead().kind in ("name", "quoted"):
            told = f"write {function}_DISTINCT({self.ahead().text}..."
            if f"{function}_DISTINCT" not in AGGREGATIONS:
                told = f"{function} takes no DISTINCT"
            raise point_at(self.text, self.now.span, told)
        column = self.column()
        via = []
        while self.accept("VIA"):
            via.append(self.column())
        where = self.expression() if self.accept("WHERE") else None
        window = None
        if self.accept(",") or self.now.word in ("NEXT", "LAST"):
            window = self.window()
        if self.now.word != ")":
            options = [] if window else ["WHERE"] if where is None else []
            raise self.expected(" or ".join([*options, *([] if window else [","]), ")"]), function)
        end = self.take().span
        self.depth -= 1
        return Aggregation(function, column, tuple(via), where, window, name.span.to(end))

    def window(self) -> Window:
        begin = self.now.span
        if self.now.word in ("NEXT", "LAST"):
            ahead = self.take().word == "NEXT"
            count = self.count("NEXT") if self.now.kind == "number" else 1
            unit = self.unit("NEXT" if ahead else "LAST")
            span = begin.to(self.tokens[self.place - 1].span)
            return Window(0 if ahead else -count, count if ahead else 0, unit, span)
        start = self.bound("the start of the window")
        self.expect(",", after="the start of the window")
        end = self.bound("the end of the window")
        unit = self.unit("the end of the window") if self.accept(",") else "DAY"
        span = begin.to(self.tokens[self.place - 1].span)
        if end is None:
            raise point_at(self.text, span, "a window must end: its end is a whole number")
        if start is not None and start >= end:
            told = f"a window must end after it starts (from {start} to {end})"
            raise point_at(self.text, span, told)
        return Window(start, end, unit, span)

    def bound(self, what: str) -> int | None:
        negative = self.accept("-")
        if not negative:
            self.accept("+")
        if self.now.word in ("INF", "INFINITY"):
            if not negative:
                raise point_at(self.text, self.now.span, "a window must end: at a whole number")
            self.take()
            return None
        if self.now.kind != "number" or not self.now.text.isdecimal():
            raise self.expected("a whole number or NEXT or LAST", what if negative else "")
        count = self.count(what, lowest=0)
        return -count if negative else count

    def unit(self, after: str) -> str:
        if self.now.word not in UNITS:
            raise self.expected("seconds or minutes or hours or days or weeks or months or years",
                                after)  # fmt: skip
        return UNITS[self.take().word]
