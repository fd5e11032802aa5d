"""Read JSON and YAML files, each validated against its form where it is opened.

A form is a type that msgspec knows: structs, lists, dictionaries, limits. Whatever a file holds, it
is what its form says, or one sentence says why not.
"""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from relfrog.errors import RelFrogError, RunError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["fits", "parse_json", "read_json", "read_json_lines", "read_yaml"]

#: The largest file in bytes, and the most entries, repeated ones counted: an empty list takes three
#: bytes of a file, and thirty times as many in memory.
MOST_JSON, MOST_VALUES = 1 << 30, 10_000_000
MOST_YAML, MOST_ENTRIES = 16 << 20, 500_000
#: The longest number: to read one takes the square of its length.
LONGEST = 400
#: The deepest nesting.
DEEPEST = 100


def read_json(
    path: Path,
    form: Any = Any,
    error: type[RelFrogError] = RunError,
    remedy: str = "Train again.",
) -> Any:
    """Read a JSON file.

    Args:
        path: The file.
        form: The type that its content must have.
        error: What to raise if it has not, or cannot be read.
        remedy: What to do then.

    Returns:
        The content: dictionaries, lists, texts, finite numbers, booleans and None.
    """
    try:
        return _parsed(_content(path, MOST_JSON), form)
    except OSError as wrong:
        raise error(f"{path} cannot be read ({_said(wrong)}). {remedy}") from None
    except _WRONG as wrong:
        raise error(f"{path} is damaged ({_said(wrong)}). {remedy}") from None


def read_json_lines(path: Path, form: Any, remedy: str = "Train again.") -> list[Any]:
    """Read a file with one JSON value per line.

    Raises:
        RunError: It cannot be read, or a line is not of the form.
    """
    found: list[Any] = []
    try:
        for line in _content(path, MOST_JSON).splitlines():
            found.append(_parsed(line, form))
    except _WRONG as wrong:
        text = f"line {len(found) + 1}: {_said(wrong)}"
        raise RunError(f"{path} is damaged ({text}). {remedy}") from None
    return found


def read_yaml(
    path: Path | Traversable, name: str, error: type[RelFrogError], form: Any = Any
) -> Any:
    """Read a YAML file.

    Args:
        path: The file.
        name: How to name it in an error.
        error: What to raise if it cannot be read, is not YAML, or not of the form.
        form: The type that its content must have; dates are texts.
    """
    import yaml

    try:
        content = _loaded(_content(path, MOST_YAML).decode())
    except OSError as wrong:
        raise error(f"{name} cannot be read: {wrong.strerror or wrong}.") from None
    except UnicodeDecodeError:
        raise error(f"{name} is not YAML: it is not UTF-8.") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as wrong:
        # Such as a date like 2020-99-99, or a file that is too large.
        raise error(f"{name} is not YAML: {_said(wrong)}") from None
    try:
        _fit(_plain(content), form)
    except _WRONG as wrong:
        raise error(f"{name} is wrong: {_said(wrong)}.") from None
    return content


def fits(value: Any, form: Any) -> str:
    """Why a value is not of a form; empty if it is."""
    try:
        _fit(value, form)
    except _WRONG as wrong:
        return _said(wrong)
    return ""


#: All that can be wrong with content. RecursionError: nesting without an end.
_WRONG = (OSError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


def _content(path: Path | Traversable, most: int) -> bytes:
    if isinstance(path, Path) and path.exists() and not path.is_file():
        raise ValueError("it is no file")
    if isinstance(path, Path) and path.stat().st_size > most:
        raise ValueError(f"it has {path.stat().st_size:,} bytes; at most {most:,} are read")
    return path.read_bytes()


def parse_json(text: str, form: Any) -> Any:
    """The value that a JSON text stands for.

    Raises:
        ValueError: It is none, or not of the form.
    """
    try:
        return _parsed(text.encode(), form)
    except _WRONG as wrong:
        raise ValueError(_said(wrong)) from None


def _parsed(content: bytes, form: Any) -> Any:
    if sum(map(content.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError("it holds too much")
    value = msgspec.json.decode(content)
    _fit(value, form)
    return value


def _fit(value: Any, form: Any) -> None:
    msgspec.convert(value, form, strict=True)


def _said(wrong: BaseException) -> str:
    if isinstance(wrong, RecursionError):
        return "it is nested too deeply"
    if isinstance(wrong, OSError) and wrong.strerror:
        return wrong.strerror
    return " ".join(str(wrong).split())[:300]


def _loaded(text: str) -> Any:
    """The content of a YAML file.

    The parser in C is ten times as quick, and ends the process where nesting is deep: so it is
    asked first what there is, one piece after the other.

    Raises:
        yaml.YAMLError, ValueError: It is not YAML, or holds too much.
    """
    import yaml

    kind = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    depth = count = 0
    for event in yaml.parse(text, kind):
        count += 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent):
            _check_scalar(event)
        if count > 2 * MOST_ENTRIES or depth > DEEPEST:
            raise ValueError("it holds too much, or is nested too deeply")
    loader = kind(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _check_scalar(event: Any) -> None:
    """Refuse what a few bytes of would take for ever."""
    kind = (event.tag or "").rpartition(":")[2]
    plain = not event.style and not event.tag
    if kind == "merge" or (plain and event.value == "<<"):
        # What is merged may itself be merged of others.
        raise ValueError("it merges mappings (<<). Write out what they hold")
    number = kind in ("int", "float") or (plain and event.value.lstrip("+-.")[:1].isdigit())
    if number and len(event.value) > LONGEST:
        raise ValueError("it holds too long a number")


def _plain(value: Any) -> Any:
    """YAML's values as JSON would have them; dates as texts.

    An alias repeats what it names, so that a small file can hold more than any memory.
    """
    left = MOST_ENTRIES

    def plain(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > DEEPEST:
            raise ValueError("it holds too much, or is nested too deeply")
        if isinstance(value, dict):
            return {plain(k, depth + 1): plain(v, depth + 1) for k, v in value.items()}
        if isinstance(value, list | tuple | set):
            return [plain(entry, depth + 1) for entry in value]
        if isinstance(value, datetime.date):  # and times, which are dates, too
            return value.isoformat()
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is no number")
        if isinstance(value, int) and value.bit_length() > 64:
            raise ValueError("it holds a number of more than 64 bits")
        if isinstance(value, str):
            value.encode()  # half a character is none
        return value

    return plain(value, 0)
