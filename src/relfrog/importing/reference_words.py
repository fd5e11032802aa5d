"""References whose names do not contain the other table's: who did something, and by what way.

``SupportRepId`` names an employee, ``created_by`` a user, ``ship_via`` a shipper. A person sees
that at once, from what the words mean; the values must all be found as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from relfrog.support.text import singular

__all__ = ["acts_through", "is_people", "names_a_person", "says_by_whom"]

#: People who act in the name of a business, as a role; their tables are `_PEOPLE`.
_ROLES = {
    "agent", "approver", "assignee", "assistant", "author", "boss", "clerk", "consultant",
    "coordinator", "creator", "dispatcher", "editor", "handler", "inspector", "lead", "leader",
    "manager", "moderator", "operator", "owner", "recruiter", "rep", "representative", "requester",
    "reporter", "reviewer", "salesman", "salesperson", "supervisor", "technician", "uploader",
}  # fmt: skip
#: Nouns of tables of such people.
_PEOPLE = {
    "employee", "staff", "staffer", "user", "person", "member", "worker", "personnel", "colleague",
}  # fmt: skip
_PEOPLE = {singular(word) for word in _PEOPLE}
_KEY = {"id", "uuid", "guid", "key", "ref", "fk"}
#: What somebody did, before "by", "to" or "via".
_BY = {"by", "to"}
_IRREGULAR = {"bought", "brought", "built", "led", "made", "paid", "sent", "sold", "taught", "won"}
_WAYS = {"via", "by", "through", "with", "to", "from"}
#: Verbs are words of some length, so that "up_to" and "due_by" are none.
_SHORTEST = 4


def is_people(noun: tuple[str, ...]) -> bool:
    """Whether a table is one of the people of a business, by its name in the singular."""
    return bool(noun) and noun[-1] in _PEOPLE


def names_a_person(name: tuple[str, ...]) -> bool:
    """Whether a column names a person by what they do: ``support_rep_id``, ``created_by``.

    >>> names_a_person(("support", "rep", "id")), names_a_person(("created", "by"))
    (True, True)
    >>> names_a_person(("sold", "by")), names_a_person(("paid", "to"))
    (True, False)
    >>> names_a_person(("up", "to")), names_a_person(("lead", "time"))
    (False, False)
    """
    if len(name) < 2:
        return False
    if name[-1] in _KEY:
        return name[-2] in _ROLES or names_a_person(name[:-1])
    done = name[-2].endswith(("ed", "en")) and len(name[-2]) >= _SHORTEST
    return (name[-1] in _BY and done) or (name[-1] == "by" and name[-2] in _IRREGULAR)


def says_by_whom(name: tuple[str, ...]) -> bool:
    """Whether a column says by whom or by what way something was done, whatever that was.

    >>> says_by_whom(("done", "by")), says_by_whom(("ship", "via")), says_by_whom(("size",))
    (True, True, False)
    """
    return names_a_person(name) or (len(name) > 1 and name[-1] in ("by", "via"))


def acts_through(name: tuple[str, ...], noun: tuple[str, ...]) -> bool:
    """Whether a column says what was done through a table's rows: ``ship_via`` for shippers.

    >>> acts_through(("ship", "via"), ("shipper",)), acts_through(("sold", "by"), ("shipper",))
    (True, False)
    """
    plain = name[:-1] if name and name[-1] in _KEY else name
    if len(plain) < 2 or not noun or plain[-1] not in _WAYS:
        return False
    return _is_doer(plain[-2], noun[-1])


def _is_doer(verb: str, noun: str) -> bool:
    """Whether a noun is made of a verb: ship, shipped, shipping and shipper."""
    stems = set(_stems(verb))
    return any(len(stem) >= _SHORTEST and stem in stems for stem in _stems(noun)) and (
        noun.endswith(("er", "or")) or noun in stems
    )


def _stems(word: str) -> Iterable[str]:
    for ending in ("", "ed", "d", "ing", "er", "or", "ers", "s"):
        if word.endswith(ending) and len(word) > len(ending):
            stem = word[: len(word) - len(ending)]
            yield stem
            if len(stem) > 2 and stem[-1] == stem[-2]:
                yield stem[:-1]
