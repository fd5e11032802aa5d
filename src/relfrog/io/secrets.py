"""Keep passwords in database addresses out of messages and files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, quote_plus, unquote

from relfrog.errors import SECRET_NAME

__all__ = ["hide_password", "scrub", "secrets_in"]


#: The part before the user name; and the user with a password, which is everything from the first
#: colon to the last at sign.
_SCHEME = re.compile(r"^[\s'\"]*(?:[a-z][a-z0-9+.-]*:)?/{0,3}", re.I)
_USERINFO = re.compile(r"^(?P<user>[^:]*:)(?P<password>.*)@")
_PARAMETER = re.compile(rf"(?P<key>(?:^|[?&;\s]){SECRET_NAME}=)(?P<value>[^&;\s]*)", re.I)


def _parts(address: str) -> tuple[str, str]:
    """Split an address before the user name."""
    scheme = _SCHEME.match(address)
    end = scheme.end() if scheme is not None and "/" in scheme[0] else 0
    return address[:end], address[end:]


def hide_password(address: str) -> str:
    """Replace passwords in an address by ``***``."""
    head, rest = _parts(address)
    return _PARAMETER.sub(r"\g<key>***", head + _USERINFO.sub(r"\g<user>***@", rest))


def secrets_in(address: str) -> tuple[str, ...]:
    """Every spelling of the passwords in an address, and their longer fragments; longest first.

    A driver that splits a password at an unescaped ``@`` may quote only a fragment of it.
    """
    found = [m["password"] for m in [_USERINFO.match(_parts(address)[1])] if m and m["password"]]
    found += [m["value"] for m in _PARAMETER.finditer(address) if m["value"]]
    words = {unquote(secret) for secret in found} | set(found)
    words |= {part for secret in words for part in re.split(r"[@:/?#]", secret) if len(part) > 3}
    spellings = words | {quote(s, safe="") for s in words} | {quote_plus(s) for s in words}
    return tuple(sorted(spellings, key=len, reverse=True))


def scrub(text: str, secrets: Sequence[str]) -> str:
    """Replace every secret in a text by ``***``."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
