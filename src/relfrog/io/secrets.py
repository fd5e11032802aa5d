"""Passwords in addresses: never shown, never kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, quote_plus, unquote

__all__ = ["hide_password", "scrub", "secrets_in"]


#: What stands before a user's name, and a user with a password: everything from the first colon
#: to the last at sign.
_SCHEME = re.compile(r"^[\s'\"]*(?:[a-z][a-z0-9+.-]*:)?/{0,3}", re.I)
_USERINFO = re.compile(r"^(?P<user>[^:]*:)(?P<password>.*)@")
_PARAMETER = re.compile(
    r"(?P<key>(?:^|[?&;\s])[^=&;\s]*(?:pass|pwd|secret|token)[^=&;\s]*=)(?P<value>[^&;\s]*)", re.I
)


def _parts(address: str) -> tuple[str, str]:
    """What stands before the user's name, and the rest."""
    scheme = _SCHEME.match(address)
    end = scheme.end() if scheme is not None and "/" in scheme[0] else 0
    return address[:end], address[end:]


def hide_password(address: str) -> str:
    """The address as it may be shown: passwords in it replaced by ``***``."""
    head, rest = _parts(address)
    return _PARAMETER.sub(r"\g<key>***", head + _USERINFO.sub(r"\g<user>***@", rest))


def secrets_in(address: str) -> tuple[str, ...]:
    """Every spelling of a password in the address, and its larger pieces; longest first.

    A driver that takes a password with an unescaped ``@`` apart may quote only a piece of it.
    """
    found = [m["password"] for m in [_USERINFO.match(_parts(address)[1])] if m and m["password"]]
    found += [m["value"] for m in _PARAMETER.finditer(address) if m["value"]]
    plain = {unquote(secret) for secret in found} | set(found)
    plain |= {piece for secret in plain for piece in re.split(r"[@:/?#]", secret) if len(piece) > 3}
    spellings = plain | {quote(s, safe="") for s in plain} | {quote_plus(s) for s in plain}
    return tuple(sorted(spellings, key=len, reverse=True))


def scrub(text: str, secrets: Sequence[str]) -> str:
    """The text with every secret replaced by ``***``."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
