"""Routes: all of them, in a stable order, and open to a third paradigm."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch

from oracles.relational_databases import dataset, real
from oracles.schemas import FLIGHTS, POSTS, RACING, SharedParent
from relfrog.graph.relational import ForeignKey, build_graph, foreign_keys
from relfrog.graph.routes import (
    PAPER,
    Completion,
    CoOccurrence,
    Route,
    routes,
)


def texts(schema: dict) -> list[str]:
    return [str(route) for route in routes(foreign_keys(schema))]


def test_readable_form_and_order() -> None:
    assert texts(RACING) == [
        "drivers <- results -> races",
        "races <- results -> drivers",
        "results -> races -> circuits",
    ]


def test_parallel_keys_are_told_apart() -> None:
    assert texts(FLIGHTS) == [
        "airlines <- flights -[dest]-> airports",
        "airlines <- flights -[origin]-> airports",
        "airports <-[dest]- flights -> airlines",
        "airports <-[dest]- flights -[origin]-> airports",
        "airports <-[origin]- flights -> airlines",
        "airports <-[origin]- flights -[dest]-> airports",
    ]


def test_chains_inside_one_table() -> None:
    assert texts(POSTS) == [
        "users <- posts -> posts",
        "posts <- posts -> users",
        "posts -> posts -> users",
        "posts -> posts -> posts",
    ]


@pytest.mark.parametrize("schema", [RACING, FLIGHTS, POSTS])
def test_no_two_routes_read_the_same_and_order_does_not_depend_on_the_schema(schema: dict) -> None:
    keys = list(foreign_keys(schema))
    expected = routes(keys)
    assert len(set(map(str, expected))) == len(expected) == len(set(expected))
    random.Random(0).shuffle(keys)
    assert routes(keys) == expected
    assert list(map(str, routes(keys))) == list(map(str, expected))


def test_rel_f1_counts() -> None:
    db = real("rel-f1")
    keys = build_graph(db).foreign_keys
    assert len(keys) == 13
    assert Counter(r.paradigm.name for r in routes(keys)) == {"co-occurrence": 18, "completion": 5}
    manifest = dataset("rel-f1").manifest
    assert manifest is not None  # the schema alone gives the same
    schema = {name: t.fkey_col_to_pkey_table for name, t in db.table_dict.items()}
    assert foreign_keys(schema) == keys


def test_every_match_counts() -> None:
    # Two races at one circuit, three results each: six completions, not two.
    keys = {key.column: key for key in foreign_keys(RACING)}
    parents = {
        keys["circuit"]: np.array([0, 0]),
        keys["race"]: np.array([0, 0, 0, 1, 1, 1, -1]),
        keys["driver"]: np.array([0, 1, 2, 0, -1, 2, 1]),
    }
    completion = Route(Completion(), keys["race"], keys["circuit"])
    u, v, w = completion.match(parents)
    assert (u.tolist(), v.tolist(), w.tolist()) == ([0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1], [0] * 6)
    both = Route(CoOccurrence(), keys["driver"], keys["race"])
    assert [x.tolist() for x in both.match(parents)] == [
        [0, 1, 2, 0, 2],
        [0, 1, 2, 3, 5],
        [0, 0, 0, 1, 1],
    ]
    tensors = {key: torch.from_numpy(pointers) for key, pointers in parents.items()}
    for route in (completion, both):
        for fast, plain in zip(route.match(tensors), route.match(parents), strict=True):
            assert isinstance(fast, torch.Tensor)
            assert fast.tolist() == plain.tolist()


def test_a_third_paradigm_is_one_class() -> None:
    keys = foreign_keys(RACING)
    found = routes(keys, (*PAPER, SharedParent()))
    assert found[:3] == routes(keys)
    assert [str(route) for route in found[3:]] == [
        "races -> circuits <- races",
        "results -> drivers <- results",
        "results -> races <- results",
    ]
    assert found[3].tables == ("races", "circuits", "races")
    matches = found[5].match({found[5].first: np.array([0, 1, 0, -1])})
    assert [x.tolist() for x in matches] == [[0, 2], [0, 0], [2, 0]]


def test_a_key_is_a_table_and_a_column() -> None:
    assert str(ForeignKey("flights", "dest", "airports")) == "flights.dest -> airports"
    assert ForeignKey("flights", "dest", "airports") != ForeignKey("flights", "origin", "airports")


def test_routes_and_graph_load_without_torch_and_numba() -> None:
    code = "import sys, relfrog.graph.routes; print({'torch', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
