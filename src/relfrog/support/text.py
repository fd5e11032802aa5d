"""Names of tables and columns, and numbers as people read them."""

from __future__ import annotations

import difflib
import hashlib
import keyword
import re
import unicodedata
from collections.abc import Iterable

__all__ = [
    "counted",
    "duration",
    "folder_names",
    "free_name",
    "horizon",
    "is_identifier",
    "nearest",
    "number",
    "percent",
    "plural",
    "singular",
    "size",
    "split_place",
    "text_digest",
    "time_words",
    "to_identifier",
    "words",
]


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")


def words(name: str) -> tuple[str, ...]:
    """Split a name into lower-case words.

    >>> words("OwnerUserId"), words("created_at"), words("HTTPCode2")
    (('owner', 'user', 'id'), ('created', 'at'), ('http', 'code', '2'))
    """
    return tuple(word.lower() for word in _WORD.findall(name))


_TIME_ENDINGS = ("timestamp", "datetime", "date", "time")


def time_words(name: str) -> set[str]:
    """The words of a time's name, and the parts of those written as one word.

    >>> sorted(time_words("duedate")), sorted(time_words("OrderDate"))
    (['date', 'due', 'duedate'], ['date', 'order'])
    """
    found = set(words(name))
    for word in list(found):
        ending = next((end for end in _TIME_ENDINGS if word.endswith(end) and word != end), None)
        if ending is not None:
            found |= {word.removesuffix(ending), ending}
    return found


_IRREGULAR = {"people": "person", "children": "child", "men": "man", "women": "woman"}
_IRREGULAR |= {"criteria": "criterion", "indices": "index", "matrices": "matrix"}


def singular(word: str) -> str:
    """Reduce the singular and the plural of an English noun to one form, for comparing names.

    The form is not always a word: whether ``-ies`` comes from ``-ie`` or ``-y`` cannot be seen.

    >>> [singular(w) for w in ("users", "user", "boxes", "status", "people")]
    ['user', 'user', 'box', 'status', 'person']
    >>> singular("movies") == singular("movie"), singular("categories") == singular("category")
    (True, True)
    """
    word = _IRREGULAR.get(word, word)
    if word.endswith(("sses", "xes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 2:
        word = word[:-1]
    for ending in ("ie", "y"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            return word[: -len(ending)]
    return word


def plural(word: str) -> str:
    """The plural of an English noun; a plural stays as it is.

    >>> [plural(w) for w in ("customer", "orders", "category", "box", "person", "people")]
    ['customers', 'orders', 'categories', 'boxes', 'people', 'people']
    """
    for several, one in _IRREGULAR.items():
        if word in (several, one):
            return several
    if not word.isalpha() or (word.endswith("s") and not word.endswith(("ss", "us", "is"))):
        return word
    if word.endswith("y") and word[-2:-1] not in set("aeiou"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def is_identifier(name: str) -> bool:
    """Whether RelBench can filter by a time column of this name, which it puts into a query."""
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and unicodedata.normalize("NFKC", name) == name
    )


def to_identifier(name: str) -> str:
    """The closest name for which :func:`is_identifier` is true."""
    name = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name)) or "_"
    return name if is_identifier(name) else f"_{name}"


def folder_names(names: Iterable[str]) -> dict[str, str]:
    """Choose a name in the dataset folder for each table.

    A table is a file there and a view in label SQL. So its name must be a valid file name on every
    system, must not differ from another in case alone, and must not be ``timestamps``, which holds
    the seed times in label SQL.
    """
    taken = {"timestamps"}
    out = {}
    for name in names:
        safe = re.sub(r'[<>:"/\\|?*\x00-\x1f\x7f]', "_", name).rstrip(". ") or "_"
        safe = f"_{safe}" if safe.startswith(".") else safe
        while len(safe.encode()) > 200:  # file systems allow 255 bytes, including the suffix
            safe = safe[:-1]
        out[name] = free_name(safe, taken)
    return out


def free_name(name: str, taken: set[str]) -> str:
    """Make a name unique regardless of case, by a number if needed, and add it to ``taken``."""
    candidate, number = name, 1
    while candidate.lower() in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate.lower())
    return candidate


def split_place(place: str, tables: Iterable[str]) -> tuple[str, str]:
    """Table and column of ``TABLE.COLUMN``; both may have dots in their names.

    Of several tables that it may begin with the longest is meant; an unknown one ends at the last
    dot, and is empty if there is none.
    """
    known = [table for table in tables if place.startswith(f"{table}.")]
    if known:
        table = max(known, key=len)
        return table, place[len(table) + 1 :]
    table, _, column = place.rpartition(".")
    return table, column


def number(value: float) -> str:
    """Format a number: ``12,345``, ``0.482``, ``1.2e-05``."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.3f}" if abs(value) >= 0.001 else f"{value:.2g}"


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 table``, ``12 tables``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: float) -> str:
    """Format a number of bytes: ``200 MB``, ``4.0 GB``."""
    gigabyte = 1 << 30
    return f"{count / gigabyte:,.1f} GB" if count >= gigabyte else f"{count / (1 << 20):,.0f} MB"


def percent(share: float) -> str:
    """Format a share as a percentage; only exact 0 and 1 become 0 % and 100 %."""
    if 0 < share < 0.001:
        return "<0.1 %"
    return ">99.9 %" if 0.999 < share < 1 else f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """Format a time span: ``40 s``, ``3 min``, ``2 h 5 min``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def horizon(seconds: float) -> str:
    """Format how far a task looks ahead: ``30 days``, ``12 hours``, ``2 h 5 min``."""
    days = seconds / 86400
    if days >= 1:
        return "1 day" if days == 1 else f"{days:,.0f} days" if days >= 1000 else f"{days:.4g} days"
    hours = seconds / 3600
    if hours >= 1 and hours == int(hours):
        return "1 hour" if hours == 1 else f"{hours:.0f} hours"
    return duration(seconds)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is spelled most like another, whatever its case; None if none is.

    >>> nearest("tota", ["id", "Total"]), nearest("x", ["id"])
    ('Total', None)
    """
    by_case = {k.casefold(): k for k in sorted(known, reverse=True)}
    found = difflib.get_close_matches(name.casefold(), sorted(by_case), n=1, cutoff=0.6)
    return by_case[found[0]] if found else None


def text_digest(*texts: str) -> str:
    """A hash of some texts."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        digest.update(f"{len(text)} {text}".encode())
    return digest.hexdigest()
