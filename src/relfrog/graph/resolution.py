"""Full resolution: the graph under any assignment of roles, and back to the tables.

The paper (Section 4.1, Appendix "Theoretical Analysis of Full-Resolution") calls a graph G of a
database X full-resolution if H(X | G) = 0: X can be rebuilt from G. Here both mappings are
functions, so that the claim can be tested on any database:

* a table as node: each row is a node, each foreign-key value a directed, typed edge;
* a table as edge: each row is a (hyper)edge, each foreign-key value an incidence of it;
* a route as edge: each match (u, v, w) is an edge between u and w that carries v. Where all
  routes over a foreign key are edges, the matches alone hold its values; values outside any match
  (of a row with only one of its two parents) are kept as loose pairs.

Foreign-key columns are not features: they are rebuilt from edges, incidences and matches, and the
primary keys at their ends. A value that refers to no row is kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.errors import UsageError
from relfrog.graph.relational import ForeignKey, RelationalGraph, build_graph
from relfrog.graph.routes import PAPER, Matches, Route, find_routes

if TYPE_CHECKING:
    from relbench.base import Database

__all__ = ["Resolution", "Role", "RoleGraph", "map_to_graph", "prove_full_resolution", "rebuild"]

RowNumbers = NDArray[np.int64]


class Role(str, Enum):
    """What a table, or the table in the middle of a route, acts as."""

    NODE = "node"
    EDGE = "edge"


RoleAssignment = Mapping["str | Route", "Role | str"]


@dataclass(frozen=True)
class TableSchema:
    """A table without its contents: column names, types, index and keys."""

    columns: tuple[Any, ...]
    types: Mapping[Any, Any]
    index: pd.Index
    primary: str | None
    time: str | None
    parents: Mapping[str, str]


@dataclass(frozen=True)
class KeyPairs:
    """The pairs (child row, parent row) of one foreign key. Shapes: [pairs] each."""

    child: RowNumbers
    parent: RowNumbers


@dataclass(frozen=True)
class RoleGraph:
    """The graph of a database under an assignment of roles.

    Attributes:
        schemas: the schema of each table; rows are identified by position.
        nodes: features of the tables that are nodes, including primary keys and times.
        edges: features of the tables that are edges.
        links: typed edges from the rows of node tables.
        incidences: typed ends of the rows of edge tables.
        matches: the edges that routes make.
        loose: for foreign keys stored only in `matches`, the pairs that no match holds.
        dangling: foreign-key values that refer to no row, by child row.
    """

    schemas: dict[str, TableSchema]
    nodes: dict[str, pd.DataFrame]
    edges: dict[str, pd.DataFrame]
    links: dict[ForeignKey, KeyPairs]
    incidences: dict[ForeignKey, KeyPairs]
    matches: dict[Route, Matches]
    loose: dict[ForeignKey, KeyPairs]
    dangling: dict[ForeignKey, pd.Series]


@dataclass(frozen=True)
class Resolution:
    """The result of `prove_full_resolution`; `str()` gives it in one sentence."""

    tables: int
    rows: int
    identical: bool
    difference: str | None = None

    def __str__(self) -> str:
        found = f"full resolution: rebuilt {self.tables} tables, {_count(self.rows)} rows, "
        return found + ("identical" if self.identical else f"NOT identical: {self.difference}")


def prove_full_resolution(
    db: Database, roles: RoleAssignment | None = None, graph: RelationalGraph | None = None
) -> Resolution:
    """Map a database to its graph, rebuild it, and compare every cell, type and key.

    Args:
        db: the database.
        roles: roles of tables and routes; those without one are nodes. By default four assignments
            are tried: all tables nodes, all tables edges, all routes edges, and a mixture.
        graph: the graph of `db`, if it has been built already.
    """
    graph = build_graph(db) if graph is None else graph
    every = find_routes(graph.foreign_keys)
    assignments: list[RoleAssignment] = (
        [roles]
        if roles is not None
        else [
            {},
            dict.fromkeys(graph.num_rows, Role.EDGE),
            dict.fromkeys(every, Role.EDGE),
            {
                **dict.fromkeys(list(graph.num_rows)[::2], Role.EDGE),
                **dict.fromkeys(every[::2], Role.EDGE),
            },
        ]
    )
    difference = None
    for assignment in assignments:
        difference = first_difference(db, rebuild(map_to_graph(db, assignment, graph)))
        if difference is not None:
            break
    rows = sum(graph.num_rows.values())
    return Resolution(len(graph.num_rows), rows, difference is None, difference)


def map_to_graph(
    db: Database, roles: RoleAssignment, graph: RelationalGraph | None = None
) -> RoleGraph:
    """The graph of a database with these roles of tables and routes (nodes by default)."""
    graph = build_graph(db) if graph is None else graph
    every = _routes_of(graph, roles)
    _check_roles(roles, graph, every)
    as_edge = {name for name, role in roles.items() if Role(role) is Role.EDGE}

    result = RoleGraph({}, {}, {}, {}, {}, {}, {}, {})
    for name, table in db.table_dict.items():
        frame, keys = table.df, table.fkey_col_to_pkey_table
        result.schemas[name] = TableSchema(
            tuple(frame.columns),
            dict(frame.dtypes),
            frame.index,
            table.pkey_col,
            table.time_col,
            dict(keys),
        )
        features = frame.drop(columns=[key for key in keys if key != table.pkey_col])
        (result.edges if name in as_edge else result.nodes)[name] = features

    parents = {key: graph.parent(key).astype(np.int64) for key in graph.foreign_keys}
    for route in every:
        if route in as_edge:
            result.matches[route] = route.match(parents)
    for key in graph.foreign_keys:
        over = [route for route in every if key in (route.first, route.second)]
        if over and all(route in result.matches for route in over):
            held = _from_matches(key, result, len(parents[key]))
            child = np.flatnonzero((parents[key] >= 0) & (held < 0))
            result.loose[key] = KeyPairs(child, parents[key][child])
        elif key.table in as_edge:
            # From the children of each parent, so that they are tested, too.
            child = graph.children_by_parent(key).astype(np.int64)
            result.incidences[key] = KeyPairs(child, parents[key][child])
        else:
            child = np.flatnonzero(parents[key] >= 0)
            result.links[key] = KeyPairs(child, parents[key][child])
        values = db.table_dict[key.table].df[key.column]
        dangling = np.flatnonzero((parents[key] < 0) & values.notna().to_numpy())
        if dangling.size:
            result.dangling[key] = values.iloc[dangling].set_axis(dangling)
    return result


def rebuild(graph: RoleGraph) -> Database:
    """Rebuild the database: the inverse of `map_to_graph`."""
    from relbench.base import Database, Table

    features = {**graph.nodes, **graph.edges}
    tables = {}
    for name, schema in graph.schemas.items():
        columns = {column: features[name][column] for column in features[name].columns}
        for column, parent in schema.parents.items():
            if column != schema.primary:
                key = ForeignKey(name, column, parent)
                primary = features[parent][graph.schemas[parent].primary]
                columns[column] = _rebuild_key(graph, key, primary)
        frame = pd.DataFrame(
            {column: columns[column] for column in schema.columns}, index=schema.index, copy=False
        )
        tables[name] = Table(frame, dict(schema.parents), schema.primary, schema.time)
    return Database(tables)


def first_difference(one: Database, two: Database) -> str | None:
    """Describe the first difference between two databases; None if they are identical."""
    if list(one.table_dict) != list(two.table_dict):
        return f"tables {list(one.table_dict)} became {list(two.table_dict)}"
    for name, before in one.table_dict.items():
        after = two.table_dict[name]
        for what in ("pkey_col", "time_col", "fkey_col_to_pkey_table"):
            if getattr(before, what) != getattr(after, what):
                return f"{name}: {what} {getattr(before, what)} became {getattr(after, what)}"
        if list(before.df.columns) != list(after.df.columns):
            return f"{name}: columns {list(before.df)} became {list(after.df)}"
        if not before.df.index.equals(after.df.index):
            return f"{name}: the row indices differ"
        for column in before.df.columns:
            found = _column_difference(before.df[column], after.df[column])
            if found is not None:
                return f"{name}.{column}: {found}"
    return None


def _routes_of(graph: RelationalGraph, roles: RoleAssignment) -> tuple[Route, ...]:
    """The routes of the paper, and routes of other paradigms that have a role."""
    named = {one.paradigm.name: one.paradigm for one in roles if isinstance(one, Route)}
    known = {paradigm.name for paradigm in PAPER}
    more = [paradigm for name, paradigm in named.items() if name not in known]
    others = [route for route in find_routes(graph.foreign_keys, more) if route in roles]
    return (*find_routes(graph.foreign_keys), *others)


def _check_roles(roles: RoleAssignment, graph: RelationalGraph, every: tuple[Route, ...]) -> None:
    unknown = [str(key) for key in roles if key not in graph.num_rows and key not in every]
    if unknown:
        raise UsageError(
            f"roles of unknown tables or routes: {', '.join(unknown)}. "
            f"The tables are {', '.join(graph.num_rows)}; for routes: relfrog inspect."
        )


def _from_matches(key: ForeignKey, graph: RoleGraph, num_rows: int) -> RowNumbers:
    """The parent of each row according to the matches, -1 if unknown. Shape [num_rows]."""
    held = np.full(num_rows, -1, np.int64)
    for route, (u, v, w) in graph.matches.items():
        for used, arrow, (left, right) in zip(
            (route.first, route.second), route.paradigm.arrows, ((u, v), (v, w)), strict=True
        ):
            if used == key:
                child, parent = (left, right) if arrow.forward else (right, left)
                held[child] = parent
    return held


def _rebuild_key(graph: RoleGraph, key: ForeignKey, primary: pd.Series) -> pd.Series:
    """Rebuild a foreign-key column from links, incidences, matches and primary keys."""
    schema = graph.schemas[key.table]
    parent = _from_matches(key, graph, len(schema.index))
    for part in (graph.links, graph.incidences, graph.loose):
        if key in part:
            parent[part[key].child] = part[key].parent
    kind = schema.types[key.column]
    names = primary if len(primary) else pd.Series([None], dtype=object)
    if len(primary) and kind != primary.dtype:
        names = _cast(primary, kind)
    if (parent < 0).any() and names.dtype.kind in "iub":
        names = pd.Series(
            pd.array(names.to_numpy())
        )  # a type with NULL, so that large keys stay exact
    column = pd.api.extensions.take(names.array, parent, allow_fill=True)
    series = pd.Series(column, index=schema.index, copy=False)
    if key in graph.dangling:
        series = series.astype(object)
        series.iloc[graph.dangling[key].index] = graph.dangling[key].to_numpy(dtype=object)
    return series if series.dtype == kind else series.astype(kind)


def _cast(names: pd.Series, kind: Any) -> pd.Series:
    """Primary keys in the type of the foreign key; as objects if some do not fit."""
    try:
        return names.astype(kind)
    except (TypeError, ValueError, OverflowError):
        return names.astype(object)


def _column_difference(before: pd.Series, after: pd.Series) -> str | None:
    if before.dtype != after.dtype:
        return f"type {before.dtype} became {after.dtype}"
    missing = before.isna().to_numpy()
    wrong = missing != after.isna().to_numpy()
    if before.dtype == object:
        # Cells may be lists or arrays, whose comparison gives no single boolean.
        pairs = zip(before, after, strict=True)
        same = [one is two or _equal(one, two) for one, two in pairs]
        wrong |= ~np.fromiter(same, bool, len(same)) & ~missing
    else:
        known = ~missing & ~wrong
        wrong[known] = (before.array[known] != after.array[known]).astype(bool)
    if not wrong.any():
        return None
    row = int(np.argmax(wrong))
    return (
        f"{wrong.sum():,} of {len(wrong):,} cells differ, "
        f"in row {row} {before.iloc[row]!r} became {after.iloc[row]!r}"
    )


def _equal(one: Any, two: Any) -> bool:
    return type(one) is type(two) and bool(np.all(one == two))


def _count(rows: int) -> str:
    """Format a count: 1,204, 97 k or 3.1 M."""
    if rows < 10_000:
        return f"{rows:,}"
    return f"{rows / 1e3:.0f} k" if rows < 999_500 else f"{rows / 1e6:.1f} M"
