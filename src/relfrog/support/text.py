"""Names of tables and columns: taking them apart, and making them fit for a dataset folder."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable

__all__ = [
    "duration",
    "folder_names",
    "free_name",
    "is_plain",
    "number",
    "percent",
    "plain",
    "singular",
    "words",
]


_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")


def words(name: str) -> tuple[str, ...]:
    """The lower-case words of a name.

    >>> words("OwnerUserId"), words("created_at"), words("HTTPCode2")
    (('owner', 'user', 'id'), ('created', 'at'), ('http', 'code', '2'))
    """
    return tuple(piece.lower() for piece in _PIECES.findall(name))


_IRREGULAR = {"people": "person", "children": "child", "men": "man", "women": "woman"}
_IRREGULAR |= {"criteria": "criterion", "indices": "index", "matrices": "matrix"}


def singular(word: str) -> str:
    """One form for an English noun's singular and plural, to compare names by.

    It is not always a word: ``movies`` and ``categories`` do not tell how their singulars end.

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


def is_plain(name: str) -> bool:
    """Whether RelBench can filter by a time column of this name (it writes it into a query)."""
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and unicodedata.normalize("NFKC", name) == name
    )


def plain(name: str) -> str:
    """The nearest name for which `is_plain` holds."""
    name = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name)) or "_"
    return name if is_plain(name) else f"_{name}"


def folder_names(names: Iterable[str]) -> dict[str, str]:
    """For each table the name it can have in a dataset folder.

    A table is a file there and a view in label SQL, so its name must be a file name everywhere,
    must not differ from another in case alone, and must not be ``timestamps``, which label SQL
    uses for the seed times.
    """
    taken = {"timestamps"}
    out = {}
    for name in names:
        safe = re.sub(r'[<>:"/\\|?*\x00-\x1f\x7f]', "_", name).rstrip(". ") or "_"
        safe = f"_{safe}" if safe.startswith(".") else safe
        while len(safe.encode()) > 200:  # file systems allow 255 bytes, the ending included
            safe = safe[:-1]
        out[name] = free_name(safe, taken)
    return out


def free_name(name: str, taken: set[str]) -> str:
    """A name that differs from all taken ones in more than case; it is taken from now on."""
    candidate, number = name, 1
    while candidate.lower() in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate.lower())
    return candidate


def number(value: float) -> str:
    """A number for people: ``12,345``, ``0.482``, ``1.2e-05``."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.3f}" if abs(value) >= 0.001 else f"{value:.2g}"


def percent(share: float) -> str:
    """A share as a percentage; nothing is rounded to 0 or to 100 that is not."""
    if 0 < share < 0.001:
        return "<0.1 %"
    return ">99.9 %" if 0.999 < share < 1 else f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """A time span for people: ``40 s``, ``3 min``, ``2 h 5 min``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
