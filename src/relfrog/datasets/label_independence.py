"""Whether label SQL treats every seed time by itself, so that times can be labelled one by one.

One statement for all times joins everything with everything: a range join of weeks and events. With
few times at once DuckDB reads the rows of their windows alone, and needs memory for those.

That the labels of a time do not depend on the other times is derived from the statement: the
relation `timestamps` has to reach the result through joins, and wherever rows are put together
(groups, distinct rows, windows) the seed time has to be among what keeps them apart. What cannot be
derived counts as dependent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

__all__ = ["is_independent"]

#: The relation of seed times, and its one column.
TIMES, TIME = "timestamps", "timestamp"
#: What a SELECT may consist of; anything else is not understood.
PARTS = {
    "with", "expressions", "from", "joins", "where", "group", "having", "order", "distinct",
    "qualify",
}  # fmt: skip
_CALL = re.compile(r"(\w+)\s*\(")
_CHANCE = {"random", "rand", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval", "setseed"}


class _Unknown(Exception):
    """It cannot be derived."""


@dataclass(frozen=True)
class _Relation:
    """What is known of a relation.

    Attributes:
        timed: whether it is made of the seed times, each of its rows of one of them.
        carriers: names of columns that hold that time, as it is.
    """

    timed: bool
    carriers: frozenset[str] = frozenset()


FREE = _Relation(False)


@lru_cache(maxsize=64)
def is_independent(sql: str) -> bool:
    """Whether a statement's rows for some seed times are those for each of them, put together."""
    try:
        tree: Any = parse_one(sql, dialect="duckdb")
        if any(name in _CHANCE for name in _calls(tree)):
            return False
        return _relation(tree, {}).timed
    except (_Unknown, SqlglotError, RecursionError):
        return False


def _relation(node: Any, known: Mapping[str, _Relation]) -> _Relation:
    """What is known of a relation.

    Args:
        node: a table, a subquery or a SELECT.
        known: what is known of named subqueries.
    """
    if isinstance(node, exp.Subquery) and _parts(node) <= {"this", "alias"}:
        return _relation(node.this, known)
    if isinstance(node, exp.Select):
        return _select(node, known)
    if type(node) is exp.Union and _parts(node) <= {"this", "expression"}:  # all, not distinct
        sides = [_relation(side, known) for side in (node.left, node.right)]
        if sides[0].timed == sides[1].timed:
            return _Relation(sides[0].timed)
    if isinstance(node, exp.Table) and _parts(node) <= {"this", "alias"}:
        name = node.name.lower() if isinstance(node.this, exp.Identifier) else ""
        if name in known:
            return known[name]
        if name == TIMES:
            return _Relation(True, frozenset({TIME}))
    elif not isinstance(node, exp.Unnest | exp.Values):
        raise _Unknown
    _refuse_times(node, known)
    return FREE


def _parts(node: Any) -> set[str]:
    """What a node has; its names have an underscore or not, depending on sqlglot's version."""
    return {name.rstrip("_") for name, value in node.args.items() if value not in (None, [], False)}


def _refuse_times(node: Any, known: Mapping[str, _Relation]) -> None:
    """Refuse anything that reads the seed times in a way that is not understood."""
    timed = {TIMES} | {name for name, relation in known.items() if relation.timed}
    if any(table.name.lower() in timed for table in node.find_all(exp.Table)):
        raise _Unknown


def _select(node: Any, known: Mapping[str, _Relation]) -> _Relation:
    if _parts(node) - PARTS:
        raise _Unknown
    known = _with_named(node, known)
    sources = _Sources(node, known)
    if not sources.timed:
        for part in node.args.values():
            for child in part if isinstance(part, list) else [part]:
                if isinstance(child, exp.Expression) and not isinstance(child, exp.With):
                    _refuse_times(child, known)
        return FREE
    for child in _expressions(node):
        for inner in child.find_all(exp.Subquery, exp.Select):
            _refuse_times(inner, known)
            if isinstance(inner, exp.Select) and _argument(inner, "from") is None:
                raise _Unknown  # what it computes may be of the rows outside
        for window in child.find_all(exp.Window):
            if not _any(window.args.get("partition_by") or [], sources):
                raise _Unknown
    _check_groups(node, sources)
    return _Relation(True, _carried(node, sources))


def _with_named(node: Any, known: Mapping[str, _Relation]) -> dict[str, _Relation]:
    """What is known of named subqueries inside a SELECT."""
    found = dict(known)
    named = _argument(node, "with")
    if named is not None:
        if named.args.get("recursive"):
            raise _Unknown
        for one in named.expressions:
            if one.args["alias"].args.get("columns"):
                raise _Unknown
            found[one.alias.lower()] = _relation(one.this, found)
    return found


def _argument(node: Any, name: str) -> Any:
    return node.args.get(name) or node.args.get(f"{name}_")


class _Sources:
    """The relations that a SELECT joins, and which columns hold the seed time then."""

    def __init__(self, node: Any, known: Mapping[str, _Relation]) -> None:
        self.carriers: dict[str, frozenset[str]] = {}
        self.shared: set[str] = set()
        self.timed = False
        begin = _argument(node, "from")
        if begin is None:
            return
        where = _conjuncts(_argument(node, "where") and node.args["where"].this)
        self._add(begin.this, known)
        for join in node.args.get("joins") or []:
            self._join(join, known, where)

    def _add(self, node: Any, known: Mapping[str, _Relation]) -> _Relation:
        if isinstance(node, exp.Subquery | exp.Table) and node.args.get("joins"):
            raise _Unknown
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise _Unknown
        found = _relation(node, known)
        name = node.alias_or_name.lower()
        if name in self.carriers:
            raise _Unknown
        self.carriers[name] = found.carriers
        self.timed |= found.timed
        return found

    def _join(self, join: Any, known: Mapping[str, _Relation], where: list[Any]) -> None:
        if _parts(join) - {"this", "on", "using", "side", "kind"}:
            raise _Unknown  # natural, asof, positional
        side, kind = join.side.upper(), join.kind.upper()
        if kind not in ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"):
            raise _Unknown
        before, left = self.timed, set(self.carriers)
        right = self._add(join.this, known)
        new = (set(self.carriers) - left).pop()
        using = {name.name.lower() for name in join.args.get("using") or []}
        outer = side in ("LEFT", "RIGHT", "FULL") or kind in ("SEMI", "ANTI")
        if before and right.timed:
            tied = bool(using & self.carriers[new] & self._names(left)) or self._tied(
                _conjuncts(join.args.get("on")) + ([] if outer else where), left, new
            )
            if not tied:
                raise _Unknown
            self.shared |= using & self.carriers[new] & self._names(left)
        # Rows without a partner are there once, not once per time, on a side that has none.
        needs_left = side in ("LEFT", "FULL") or kind in ("SEMI", "ANTI")
        if (needs_left and not before) or (side in ("RIGHT", "FULL") and not right.timed):
            raise _Unknown
        if side in ("LEFT", "FULL") or kind in ("SEMI", "ANTI"):
            self.carriers[new] = frozenset()
        if side in ("RIGHT", "FULL"):
            self.carriers |= dict.fromkeys(left, frozenset())

    def _names(self, sources: Iterable[str]) -> set[str]:
        return {name for source in sources for name in self.carriers[source]} | self.shared

    def _tied(self, conditions: list[Any], left: set[str], new: str) -> bool:
        """Whether one condition says that both sides are of the same time."""
        for one in conditions:
            if isinstance(one, exp.EQ):
                for a, b in ((one.left, one.right), (one.right, one.left)):
                    if self._holds(a, left) and self._holds(b, {new}):
                        return True
        return False

    def _holds(self, node: Any, among: set[str]) -> bool:
        if not isinstance(node, exp.Column) or not node.table or node.args.get("db"):
            return False
        table = node.table.lower()
        return table in among and node.name.lower() in self.carriers[table]

    def holds_time(self, node: Any) -> bool:
        """Whether an expression is a column that holds the seed time."""
        if not isinstance(node, exp.Column) or node.args.get("db"):
            return False
        name = node.name.lower()
        if not node.table:
            return name in self._names(self.carriers)
        return name in self.carriers.get(node.table.lower(), frozenset())


def _conjuncts(condition: Any) -> list[Any]:
    if condition is None:
        return []
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]


def _expressions(node: Any) -> list[Any]:
    """All expressions of a SELECT that are no relations."""
    found = list(node.expressions)
    for join in node.args.get("joins") or []:
        found += [join.args["on"]] if join.args.get("on") else []
    found += [node.args[name] for name in ("where", "group", "having", "order", "qualify")
              if node.args.get(name)]  # fmt: skip
    return found


def _any(nodes: Iterable[Any], sources: _Sources) -> bool:
    return any(sources.holds_time(node) for node in nodes)


def _check_groups(node: Any, sources: _Sources) -> None:
    """Refuse rows of several times that become one."""
    items = [item.unalias() for item in node.expressions]
    aliases = {item.alias.lower(): item.unalias() for item in node.expressions if item.alias}
    group, distinct = node.args.get("group"), node.args.get("distinct")
    if distinct is not None:
        on = distinct.args.get("on")
        if not _any(items if on is None else on.expressions, sources):
            raise _Unknown
    if group is not None:
        if _parts(group) - {"expressions", "all"}:
            raise _Unknown  # rollup, cube, grouping sets
        keys = list(items) if group.args.get("all") else []
        for key in group.expressions:
            if isinstance(key, exp.Literal) and not key.is_string:
                place = int(key.name) - 1
                keys.append(items[place] if 0 <= place < len(items) else key)
            elif isinstance(key, exp.Column) and not key.table and key.name.lower() in aliases:
                # A name may be that of a column, or what the SELECT calls it: both have to do.
                keys += [key] if sources.holds_time(aliases[key.name.lower()]) else []
            else:
                keys.append(key)
        if not _any(keys, sources):
            raise _Unknown
    elif any(name in _aggregates() for part in (*items, node.args.get("having"))
             if part is not None for name in _calls(_without_windows(part))):  # fmt: skip
        raise _Unknown


def _without_windows(node: Any) -> Any:
    """An expression without what is computed over windows or in subqueries."""
    inside = (exp.Window, exp.Subquery, exp.Exists)
    return node.copy().transform(lambda n: exp.null() if isinstance(n, inside) else n)


def _calls(node: Any) -> set[str]:
    return {name.lower() for name in _CALL.findall(node.sql("duckdb"))}


@cache
def _aggregates() -> frozenset[str]:
    """Names of functions that make one row of many, or may do so."""
    import duckdb

    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() "
            "WHERE function_type IN ('aggregate', 'macro')"
        ).fetchall()
    return frozenset(name for (name,) in found)


def _carried(node: Any, sources: _Sources) -> frozenset[str]:
    """The columns of the result that hold the seed time."""
    found: set[str] = set()
    for item in node.expressions:
        inner = item.unalias()
        star = isinstance(inner, exp.Star) or (
            isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)
        )
        if star:
            if _parts(inner if isinstance(inner, exp.Star) else inner.this):
                raise _Unknown  # with columns left out or replaced
            table = "" if isinstance(inner, exp.Star) else inner.table.lower()
            found |= (
                sources.carriers.get(table, frozenset())
                if table
                else sources._names(sources.carriers)
            )
        elif sources.holds_time(inner):
            found.add((item.alias or inner.name).lower())
    return frozenset(found)
