"""Infer the type of each staged column from its values.

There are few types, the same for all sources: ``integer``, ``number``, ``boolean``, ``time``,
``text``, ``list`` (of text) and ``drop``. A time may have a format: ``time epoch ms``,
``time %d.%m.%Y``. :func:`find_type` infers a type, :func:`type_sql` converts a column to it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from relfrog.errors import SchemaError
from relfrog.importing.staging import (
    ISO,
    MISSING_TEXTS,
    StagedColumn,
    StagedTable,
    Staging,
    iso_time,
    sql_list,
    valid_time,
)
from relfrog.support.text import time_words

__all__ = ["ColumnType", "find_type", "period", "type_sql", "unusable"]

TYPES = ("integer", "number", "boolean", "time", "text", "list", "drop")

_TRUE, _FALSE = ("true", "t", "yes", "y"), ("false", "f", "no", "n")


#: An integer column with one of these words in its name and a plausible size is a time.
_TIME_WORDS = {"time", "date", "datetime", "timestamp", "ts", "at", "epoch", "created", "updated"}
_TIME_WORDS |= {"utc", "when", "modified", "registered", "posted", "published", "day", "dt"}
_TIME_WORDS |= {"issued", "opened", "closed"}
#: Dates of six digits: so many different numbers that all are dates cannot be by chance, which one
#: number in 27 is; and the least that the largest must be, to be no time of day or code.
_FEWEST_DATES, _LARGEST_DATE = 10, 10_000
#: Digits that are dates whatever the column is called, as one number in 1,200 is: with the century.
_CERTAIN = ("%Y%m%d", "%Y%m%d%H%M%S")
_FIRST_YEAR, _LAST_YEAR = 1900, 2100

_EPOCHS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": None}
_1973, _2103 = 1e8, 4.2e9

#: Formats to try on text that is not ISO 8601; if several fit, the column is ambiguous.
_CLOCKS = (" %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_FORMATS = [
    f"{day}{clock}"
    for day in (
        "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y",
        "%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y",
        "%B %d, %Y",
    )
    for clock in ("", *_CLOCKS)
]  # fmt: skip
#: Dates without a separator: with a clock, or in a column that is named like a time.
_PACKED = [
    f"{day}{clock}"
    for day in ("%Y%m%d", "%y%m%d")
    for clock in ("", "T%H%M%S", "%H%M%S", "%H%M", *_CLOCKS)
]
#: What a text with a date looks like: 3/12/2020, 12-Mar-20, Mar 3, 2020; and without separators.
_DATED = r"\d+[/. -]\w+[/., -]+\d+|^[A-Za-z]{3,9} \d+, \d{4}"
_DIGITS, _DIGITS_AND_CLOCK = r"^\d{6,14}$", r"^\d{6}(\d\d)?[T ]\d"
_CENTURY_DIGITS = r"^(19|20)\d{6}(\d{6})?$"
_SAMPLE = 1000


@dataclass(frozen=True)
class ColumnType:
    """A type with its format, and why it was chosen.

    Attributes:
        name: One of `TYPES`.
        form: For a time that is not ISO 8601: ``epoch s|ms|us|ns``, or a strptime format.
        reason: Why it was chosen, if that is not obvious; ``chosen`` if the user did.
        notice: Whether to show the reason to the user.
    """

    name: str
    form: str = ""
    reason: str = ""
    notice: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.form}".strip()

    @classmethod
    def parse(cls, text: str, where: str) -> ColumnType:
        """Parse a type from a mapping file."""
        name, _, form = str(text).strip().partition(" ")
        if name not in TYPES:
            raise SchemaError(f"{where}: unknown type {text!r}. Types are {', '.join(TYPES)}")
        if form and name != "time":
            raise SchemaError(
                f"{where}: only time takes a format, as in 'time %d.%m.%Y' (got {text!r})"
            )
        if form.startswith("epoch") and form.removeprefix("epoch ") not in _EPOCHS:
            raise SchemaError(f"{where}: an epoch counts s, ms, us or ns (got {form!r})")
        if form and not form.startswith("epoch"):
            try:
                known = "%" in form
                dt.datetime.strptime(dt.datetime(2020, 2, 3).strftime(form), form)
            except ValueError:
                known = False
            if not known:
                raise SchemaError(f"{where}: {form!r} is neither an epoch nor a strptime format")
        return cls(name, form, "chosen")


def type_sql(column: StagedColumn, kind: ColumnType) -> str:
    """SQL for a column's values converted to a type; NULL where that is impossible."""
    name, staged = column.sql, column.kind
    is_text = staged in ("text", "untyped", "decimal", "hex")
    if kind.name == "integer":
        if staged == "boolean":
            return f"CAST({name} AS BIGINT)"
        if staged in ("number", "seconds"):
            return f"TRY_CAST(CASE WHEN {name} = trunc({name}) THEN {name} END AS BIGINT)"
        return name if staged == "integer" else f"TRY_CAST({_number_text(name)} AS BIGINT)"
    if kind.name == "number":
        value = name if staged in ("number", "seconds") else f"CAST({name} AS DOUBLE)"
        if is_text:
            value = f"TRY_CAST({_number_text(name)} AS DOUBLE)"
        return f"CASE WHEN isfinite({value}) THEN {value} END"
    if kind.name == "boolean":
        if is_text:
            spelled = f"lower(trim({name}))"
            yes, no = sql_list((*_TRUE, "1")), sql_list((*_FALSE, "0"))
            return f"CASE WHEN {spelled} IN {yes} THEN true WHEN {spelled} IN {no} THEN false END"
        return (
            name if staged == "boolean" else f"CASE {name} WHEN 0 THEN false WHEN 1 THEN true END"
        )
    if kind.name == "time":
        return _time_sql(name, staged, kind.form)
    if kind.name == "list":
        if staged == "list":
            return name
        return f"CASE WHEN {name} IS NOT NULL THEN [CAST({name} AS VARCHAR)] END"
    if staged == "decimal":
        # 1.00 and 1 are the same number, even where it is too large for 64 bits.
        return (
            f"CASE WHEN contains({name}, '.') THEN rtrim(rtrim({name}, '0'), '.') ELSE {name} END"
        )
    return name if is_text else f"CAST({name} AS VARCHAR)"


#: The types each kind can be converted to; every kind can become text or be dropped.
_CONVERSIONS = {
    "integer": ("integer", "number", "boolean", "time"),
    "number": ("integer", "number", "time"),
    "seconds": ("integer", "number"),
    "boolean": ("boolean", "integer", "number"),
    "time": ("time",),
    "list": ("list",),
}


def check_conversion(where: str, staged: str, kind: ColumnType) -> None:
    """Raise SchemaError if a kind cannot be converted to a type."""
    possible = (*_CONVERSIONS.get(staged, TYPES), "text", "drop", "list")
    if kind.name not in possible:
        raise SchemaError(
            f"{where}: {staged} cannot become {kind.name}; it can become {', '.join(possible[:-1])}"
        )


def _number_text(name: str) -> str:
    return f"CASE WHEN trim({name}) NOT IN {sql_list(MISSING_TEXTS)} THEN trim({name}) END"


def _time_sql(name: str, staged: str, form: str) -> str:
    if staged == "time":
        return name
    if form.startswith("epoch"):
        scale = _EPOCHS[form.removeprefix("epoch ")]
        number = f"TRY_CAST({name} AS HUGEINT)"
        micros = f"{number} // 1000" if scale is None else f"{number} * {scale}"
        # Programs write zero for an unknown time.
        return valid_time(f"make_timestamp(TRY_CAST(nullif({micros}, 0) AS BIGINT))")
    if form:
        # Zones are ignored: in practice, times with a zone are in ISO 8601.
        text = f"trim(CAST({name} AS VARCHAR))"
        if form == "%y%m%d":  # numbers have lost their leading zeros
            text = f"lpad({text}, 6, '0')"
        return valid_time(_period_end(f"try_strptime({text}, '{_escaped(form)}')", form))
    return iso_time(f"CAST({name} AS VARCHAR)")


def period(form: str) -> str:
    """The period that a format without a day denotes: ``year`` or ``month``; otherwise empty.

    >>> period("%Y"), period("%m/%Y"), period("%d.%m.%Y"), period("epoch s")
    ('year', 'month', '', '')
    """
    codes = set(re.findall("%-?([A-Za-z])", form))
    if not codes & set("yYG") or codes & set("djUWVDFcx"):
        return ""
    return "month" if codes & set("mbBh") else "year"


def _period_end(parsed: str, form: str) -> str:
    """The last day of the year or month, for a format without a day.

    A row about a year, such as a season's goals, is complete only when the year is over. Dated at
    its beginning it would leak the future.
    """
    ends = {"year": f"{parsed} + INTERVAL 11 MONTH", "month": parsed}
    end = ends.get(period(form))
    return parsed if end is None else f"CAST(last_day({end}) AS TIMESTAMP)"


def _escaped(form: str) -> str:
    return form.replace("'", "''")


def unusable(table: StagedTable, column: StagedColumn) -> str:
    """Why a column is useless as a feature; empty if it is not."""
    facts = column.facts
    if not table.rows:
        return ""
    if not facts.present:
        return "all values are NULL"
    if facts.constant and table.rows > 1 and facts.present - facts.infinite == table.rows:
        value = "" if column.kind == "time" else f" ({_short(facts.low)})"
        return f"the same value in every row{value}"
    return ""


def find_type(staging: Staging, table: StagedTable, column: StagedColumn) -> ColumnType:
    """Infer the type of a column from its values."""
    if column.kind in ("boolean", "time", "list"):
        return ColumnType(column.kind)
    if column.kind in ("number", "seconds"):
        return ColumnType("number", reason="in seconds" if column.kind == "seconds" else "")
    if column.kind == "integer":
        return _integer_type(staging, table, column)
    if column.kind == "hex":
        return ColumnType("text", reason="binary, as hexadecimal digits")
    return _text_type(staging, table, column)


def _integer_type(staging: Staging, table: StagedTable, column: StagedColumn) -> ColumnType:
    """``integer``; or ``time``, if the name or the values leave little doubt."""
    named = bool(time_words(column.name) & _TIME_WORDS)
    if column.facts.present and (named or column.facts.distinct >= _FEWEST_DATES):
        for kind in number_times(staging, table, column):
            if kind.form == "%Y" or (kind.form == "%y%m%d" and not _may_be_dates(column)):
                continue
            if not named and not _are_certain(staging, table, column, kind.form):
                continue
            if _all_fit(staging, table, column, kind):
                return replace(kind, notice=True)
    return ColumnType("integer")


def _are_certain(staging: Staging, table: StagedTable, column: StagedColumn, form: str) -> bool:
    """Whether so many numbers are dates of this form that they cannot be so by chance."""
    if form not in _CERTAIN:
        return False
    value = type_sql(column, ColumnType("time", form))
    known, first, last = staging.row(
        f"SELECT count(DISTINCT {value}), min(year({value})), max(year({value})) FROM {table.sql}"
    )
    return bool(known >= _FEWEST_DATES and first >= _FIRST_YEAR and last <= _LAST_YEAR)


def _may_be_dates(column: StagedColumn) -> bool:
    """Whether so many six-digit numbers, and so large, can be told from other numbers."""
    facts = column.facts
    return facts.distinct >= _FEWEST_DATES and _as_number(facts.high) >= _LARGEST_DATE


def _as_number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return 0.0


def number_times(staging: Staging, table: StagedTable, column: StagedColumn) -> list[ColumnType]:
    """The time formats that numbers of this size can have, the likeliest first."""
    value = type_sql(column, ColumnType("integer"))
    low, high = staging.row(
        f"SELECT min({value}), max({value}) FROM {table.sql} WHERE {value} <> 0"
    )
    if low is None:
        return []
    kinds = [
        ColumnType("time", f"epoch {unit}", f"counts {unit} since 1970")
        for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))
        if _1973 * factor <= low and high <= _2103 * factor
    ]
    for form, least, most in (
        ("%Y%m%d", 10000101, 22001231),
        ("%Y%m%d%H%M%S", 10000101000000, 22001231235959),
        ("%Y", 1000, 2200),
        ("%y%m%d", 101, 991231),
    ):
        if least <= low and high <= most:
            kinds.append(ColumnType("time", form, f"a date written as a number ({form})"))
    return kinds


def _all_fit(staging: Staging, table: StagedTable, column: StagedColumn, kind: ColumnType) -> bool:
    # Programs write zero for an unknown time.
    present = f"nullif({type_sql(column, ColumnType('integer'))}, 0)"
    (lost,) = staging.row(
        f"SELECT count({present}) - count({type_sql(column, kind)}) FROM {table.sql}"
    )
    return bool(lost == 0)


def _text_type(staging: Staging, table: StagedTable, column: StagedColumn) -> ColumnType:
    """``text``; or the type that the values of an untyped (CSV) or decimal column have."""
    name = column.sql
    if column.kind in ("untyped", "decimal"):
        value = f"trim({name})"
        known = f"{value} NOT IN {sql_list(MISSING_TEXTS)}"
        integer = f"regexp_full_match({value}, '[+-]?(0|[1-9]\\d*)(\\.0*)?')"
        spelled = f"lower({value})"
        conditions = [
            known,
            f"{known} AND {integer}",
            f"{known} AND {integer} AND TRY_CAST({value} AS BIGINT) IS NOT NULL",
            f"{known} AND TRY_CAST({value} AS DOUBLE) IS NOT NULL",
            f"{known} AND {spelled} IN {sql_list(_TRUE + _FALSE)}",
            f"regexp_full_match({value}, '0\\d+')",
        ]
        counts = ", ".join(f"count(*) FILTER (WHERE {c})" for c in conditions)
        present, integers, fitting, numbers, truths, padded, example = staging.row(
            f"SELECT {counts}, any_value({name}) "
            f"FILTER (WHERE {known} AND TRY_CAST({value} AS DOUBLE) IS NULL) FROM {table.sql}"
        )
        if table.rows and not present:
            return ColumnType("drop", reason="all values are missing", notice=True)
        # 01234 is a code, not a number: it would lose its zero.
        if present and not padded:
            if integers == present:
                if fitting == present:
                    return _integer_type(staging, table, column)
                return ColumnType("text", reason="integers too large for 64 bits")
            if numbers == present:
                return ColumnType("number")
            if truths == present:
                return ColumnType("boolean")
        if numbers >= 0.5 * present and numbers < present:
            odd = present - numbers
            reason = (
                f"mixed: {odd:,} of {present:,} values are not numbers, such as {_short(example)}"
            )
            return ColumnType("text", reason=reason, notice=True)
    return _time_in_text(staging, table, column) or ColumnType("text")


def _time_in_text(staging: Staging, table: StagedTable, column: StagedColumn) -> ColumnType | None:
    """``time``, if all values are in ISO 8601 or fit exactly one other format."""
    name = column.sql
    known = f"trim({name}) NOT IN {sql_list(MISSING_TEXTS)}"
    sample = f"(SELECT {name} FROM {table.sql} WHERE {known} LIMIT {_SAMPLE})"

    def fits(condition: Callable[[str], str], rows: str) -> bool:
        total, fitting = staging.row(
            f"SELECT count(*), count(*) FILTER (WHERE {condition(name)}) FROM {rows}"
        )
        return bool(total and total == fitting)

    def is_iso(text: str) -> str:
        return f"regexp_matches({text}, '{ISO}') AND ({iso_time(text)}) IS NOT NULL"

    def in_format(form: str) -> Callable[[str], str]:
        # %Y reads 94 as the year 94.
        return lambda text: f"year(try_strptime(trim({text}), '{form}')) >= 1000"

    everything = f"(SELECT {name} FROM {table.sql} WHERE {known})"
    if fits(is_iso, sample) and fits(is_iso, everything):
        return ColumnType("time")
    named = bool(time_words(column.name) & _TIME_WORDS)
    packed = f"{_DIGITS if named else _CENTURY_DIGITS}|{_DIGITS_AND_CLOCK}"
    dated, digits, count = staging.row(
        f"SELECT count(*) FILTER (WHERE regexp_matches(trim({name}), '{_DATED}')), "
        f"count(*) FILTER (WHERE regexp_matches(trim({name}), '{packed}')), "
        f"count(*) FROM {sample}"
    )
    if not count or max(dated, digits) < 0.5 * count:
        return None
    parsed, total, odd = staging.row(
        f"SELECT count({iso_time(name)}), count(*), any_value({name}) "
        f"FILTER (WHERE ({iso_time(name)}) IS NULL) FROM {everything}"
    )
    if parsed >= 0.5 * total:
        reason = (
            f"mixed: {total - parsed:,} of {total:,} values are not times, such as {_short(odd)}; "
            "kept as text, unless it is made the table's time column: --time"
        )
        return ColumnType("text", reason=reason, notice=True)
    if digits > dated:  # zeros stand for no date
        known += f" AND NOT regexp_full_match(trim({name}), '0+')"
        sample = f"(SELECT {name} FROM {table.sql} WHERE {known} LIMIT {_SAMPLE})"
        everything = f"(SELECT {name} FROM {table.sql} WHERE {known})"
    forms = _PACKED if digits > dated else _FORMATS
    fitting = [f for f in forms if fits(in_format(f), sample) and fits(in_format(f), everything)]
    if not named:
        bare = [form for form in fitting if re.fullmatch("(%[A-Za-z])+", form)]
        doubtful = {form for form in bare if not _are_certain(staging, table, column, form)}
        fitting = [form for form in fitting if form not in doubtful]
    if len(fitting) == 1:
        return ColumnType("time", fitting[0], f"written as {fitting[0]}", notice=True)
    if fitting:
        reason = f"times in an ambiguous format ({' or '.join(fitting)}); kept as text"
        return ColumnType("text", reason=reason, notice=True)
    return None


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
