"""Full resolution: H(X | G) = 0 as a test; and the two ways to lose it."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from relbench.base import Database, Table

from helpers import examples
from oracles.relational_databases import databases, real, table
from oracles.schemas import SharedParent
from relfrog.errors import UsageError
from relfrog.graph.relational import ForeignKey, build_graph
from relfrog.graph.resolution import (
    KeyPairs,
    Role,
    first_difference,
    map_to_graph,
    prove_full_resolution,
    rebuild,
)
from relfrog.graph.routes import CompletionAgainst, find_routes

KEY = ForeignKey("child", "p", "parent")


def family(*parents: int | None) -> Database:
    children = {"p": pd.array(parents, dtype="Int64"), "x": np.arange(len(parents))}
    return Database(
        {"parent": table({"y": [1.5, None]}), "child": table(children, {"p": "parent"})}
    )


@examples(150)
@given(databases(), st.data())
def test_any_roles_can_be_undone(db: Database, data: st.DataObject) -> None:
    keys = build_graph(db).foreign_keys
    some = data.draw(st.sampled_from([(), (CompletionAgainst(),), (SharedParent(),)]))
    every = [*db.table_dict, *find_routes(keys), *find_routes(keys, some)]
    roles = {name: data.draw(st.sampled_from(Role)) for name in every}
    graph = map_to_graph(db, roles)
    assert first_difference(db, rebuild(graph)) is None
    for name in db.table_dict:
        assert name in (graph.edges if roles[name] is Role.EDGE else graph.nodes)
    report = prove_full_resolution(db)
    assert report.identical, report
    assert report.rows == sum(len(t) for t in db.table_dict.values())


@examples(50)
@given(databases())
def test_foreign_keys_come_from_the_graph_alone(db: Database) -> None:
    graph = map_to_graph(db, dict.fromkeys(find_routes(build_graph(db).foreign_keys), "edge"))
    for features in (graph.nodes, graph.edges):
        for name, frame in features.items():
            assert not set(frame.columns) & set(db.table_dict[name].fkey_col_to_pkey_table)


@pytest.mark.parametrize("name", ["rel-f1", "flights", "olist-sample", "travel-exchange"])
def test_real_databases(name: str) -> None:
    report = prove_full_resolution(real(name))
    assert report.identical, report


def test_the_sentence() -> None:
    report = prove_full_resolution(real("rel-f1"))
    assert str(report) == "full resolution: rebuilt 9 tables, 97 k rows, identical"
    small = prove_full_resolution(family(0, 1, None))
    assert str(small) == "full resolution: rebuilt 2 tables, 5 rows, identical"


@pytest.mark.parametrize(
    "primary",
    [
        np.array(["b", "a", "c"], dtype=object),
        np.array([2**60 + 1, 2**60 + 3, 7]),
        pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]),
    ],
)
@pytest.mark.parametrize("dangling", [False, True])
def test_keys_of_any_type(primary: np.ndarray, dangling: bool) -> None:
    names = pd.Series(primary)
    column = names.take([2, 0, 0, 1]).reset_index(drop=True)
    if dangling:
        other = {"O": "nobody", "i": 2**60 + 2, "M": pd.Timestamp("1999-01-01")}[column.dtype.kind]
        column.iloc[1] = other
    child = pd.DataFrame({"p": column, "free": [None, "é", "", "x"], "cell": [[1], [], None, [2]]})
    db = Database(
        {
            "parent": Table(pd.DataFrame({"id": names}), {}, "id"),
            "child": Table(child, {"p": "parent"}),
        }
    )
    assert prove_full_resolution(db).identical
    graph = map_to_graph(db, {})
    assert (KEY in graph.dangling) == dangling


def test_a_changed_cell_is_found() -> None:
    db = family(0, 1, None)
    cases = {
        "child.p: 1 of 3 cells differ, in row 0 0 became 1": family(1, 1, None),
        "child.p: 1 of 3 cells differ, in row 2 <NA> became 0": family(0, 1, 0),
        "child: the row indices differ": family(0, 1),
    }
    for sentence, other in cases.items():
        found = first_difference(db, other)
        assert found is not None
        assert found.replace("np.int64(0)", "0").replace("np.int64(1)", "1") == sentence
    other = family(0, 1, None)
    other.table_dict["child"].df["x"] = other.table_dict["child"].df["x"].astype(float)
    assert first_difference(db, other) == "child.x: type int64 became float64"


def test_unknown_roles_are_refused() -> None:
    with pytest.raises(UsageError, match="no_such_table"):
        map_to_graph(family(0), {"no_such_table": "edge"})


def test_pruning_loses_resolution() -> None:
    """Proposition "Non-Invertibility of Edge Pruning": two databases, one pruned graph."""
    one, two = family(0, None), family(1, None)
    assert first_difference(one, two) is not None
    pruned = []
    for db in (one, two):
        graph = map_to_graph(db, {})
        assert first_difference(db, rebuild(graph)) is None
        none = KeyPairs(np.empty(0, np.int64), np.empty(0, np.int64))
        pruned.append(replace(graph, links={KEY: none}))
    # Nothing tells the two graphs apart, so what rebuilds them must be wrong about one.
    back = [rebuild(graph) for graph in pruned]
    assert first_difference(*back) is None
    assert [first_difference(db, found) for db, found in zip((one, two), back, strict=True)] != [
        None,
        None,
    ]


def test_adding_edges_loses_resolution() -> None:
    """Proposition "Indistinguishability of Edge Addition": two databases, one larger graph."""
    one, two = family(0, None), family(0, 0)

    def complete(db: Database):
        """Infer a parent for every child, and do not say which were there."""
        graph = map_to_graph(db, {})
        child = np.arange(len(db.table_dict["child"].df))
        return replace(graph, links={KEY: KeyPairs(child, np.zeros_like(child))})

    back = [rebuild(complete(db)) for db in (one, two)]
    assert first_difference(one, two) is not None
    assert first_difference(*back) is None
    assert first_difference(one, back[0]) is not None
