"""What the defects of the paper's authors' code cost: messages that never arrive, keys that vanish."""

from __future__ import annotations

import numpy as np
from relbench.base import Database

from oracles.authors_defects import FirstMatch, kept_keys
from oracles.relational_databases import START, table
from relfrog.graph.relational import ForeignKey, build_graph
from relfrog.graph.routes import CompletionAgainst, find_routes
from relfrog.graph.sampler import TemporalSampler
from relfrog.nn.batch_plan import make_plan


def season(races: int = 2, results: int = 20) -> Database:
    """Races at one circuit, with so many results each."""
    return Database(
        {
            "circuits": table({"x": [0]}),
            "races": table({"circuit": [0] * races}, {"circuit": "circuits"}),
            "results": table({"race": np.repeat(np.arange(races), results)}, {"race": "races"}),
        }
    )


def test_first_match_reaches_two_rows_of_forty() -> None:
    graph = build_graph(season())
    reached = {}
    for paradigm in (CompletionAgainst(), FirstMatch()):
        (route,) = find_routes(graph.foreign_keys, [paradigm])
        sampler = TemporalSampler(graph, "circuits", [-1, -1], routes=[route])
        batch = sampler.sample([0], [START])
        (layer,) = make_plan(batch, 1, [route], trim=False).layers
        links = layer.routes[route]
        reached[paradigm.name] = int((links.v.counts > 0).sum())
    assert reached == {"completion-against": 40, "completion-first-match": 2}


def test_keys_that_vanish() -> None:
    keys = [
        ForeignKey("postLinks", "PostId", "posts"),
        ForeignKey("postLinks", "RelatedPostId", "posts"),
        ForeignKey("posts", "ParentId", "posts"),
        ForeignKey("orders", "review_id", "reviews"),
        ForeignKey("orders", "customer", "customers"),
    ]
    assert [key.column for key in kept_keys(keys)] == ["PostId", "customer"]
    assert len(find_routes(kept_keys(keys))) < len(find_routes(keys))
