"""When does a role matter? The main statements of the page, on smaller databases."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from relfrog.nn.roles import role_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def worlds() -> ModuleType:
    """The script that makes the page's table, with fewer customers."""
    path = ROOT / "benchmarks" / "when_roles_matter.py"
    spec = importlib.util.spec_from_file_location("when_roles_matter", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.CUSTOMERS = 600
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "can", "cannot"),
    [
        ("u alone", ["edge", "learned"], ["node"]),
        ("u with v", ["pair message"], ["node", "learned"]),
        ("counts", ["node", "learned"], ["edge"]),
        ("chain", ["learned"], ["node"]),
    ],
)
def test_who_can_say_it_in_one_layer(
    name: str, can: list[str], cannot: list[str], worlds: ModuleType
) -> None:
    world = worlds.WORLDS[name][1](0)
    scores = {
        variant: worlds.learn(world, 0, steps=200, channels=16, **worlds.VARIANTS[variant]).score
        for variant in (*can, *cannot)
    }
    worst, best = min(scores[one] for one in can), max(scores[one] for one in cannot)
    assert worst > 0.8, scores
    assert best < worst - 0.08, scores


def test_labels_are_balanced_and_hang_on_one_thing(worlds: ModuleType) -> None:
    for name, (_, make) in worlds.WORLDS.items():
        world = make(1)
        assert 0.3 < world.labels.mean() < 0.7, name
        own = world.db.table_dict["customers"].df["x"]
        assert abs(np.corrcoef(own, world.labels)[0, 1]) < 0.15, name
        if name != "counts":  # how many orders there are says nothing
            orders = world.db.table_dict["orders"].df["customer"].value_counts()
            assert orders.nunique() == 1


@pytest.mark.slow
def test_a_second_layer_reaches_what_a_route_does(worlds: ModuleType) -> None:
    chain = worlds.WORLDS["chain"][1](0)
    found = worlds.learn(chain, 0, 2, channels=16, **worlds.VARIANTS["node"])
    assert found.score > 0.85
    # It stops when it knows its own customers.
    assert found.steps < worlds.STEPS[2]


def test_runs_that_are_there_are_not_repeated(
    worlds: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, learned = tmp_path / "found.json", []

    def learn(world: object, seed: int, layers: int, **variant: object) -> object:
        if len(learned) == 2:
            raise KeyboardInterrupt
        learned.append((seed, layers))
        return worlds.Learned(0.75, 10, {})

    monkeypatch.setattr(worlds, "learn", learn)
    given = ["--worlds", "chain", "--variants", "node", "--layers", "1", "2", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["when_roles_matter", *given, "--out", str(out)])
    with pytest.raises(KeyboardInterrupt):
        worlds.main()
    assert learned == [(0, 1), (1, 1)]
    learned.clear()
    worlds.main()
    assert learned == [(0, 2), (1, 2)]
    runs = json.loads(out.read_text("utf-8"))["runs"]
    assert [(run["seed"], run["layers"]) for run in runs] == [(0, 1), (1, 1), (0, 2), (1, 2)]


def test_learned_roles_are_as_good_as_the_best_fixed_ones(worlds: ModuleType) -> None:
    """In the table of the page: within a deviation of the better of node and edge."""
    runs = json.loads((ROOT / "experiments" / "when-roles-matter.json").read_text("utf-8"))["runs"]

    def scores(layers: int, world: str, variant: str) -> list[float]:
        return [
            run["roc_auc"] for run in runs
            if (run["layers"], run["world"], run["variant"]) == (layers, world, variant)
        ]  # fmt: skip

    for place in itertools.product(worlds.STEPS, worlds.WORLDS):
        node, edge, learned = (scores(*place, v) for v in ("node", "edge", "learned"))
        assert len(node) == len(edge) == len(learned) >= 2, place
        best = max((node, edge), key=np.mean)
        spread = max(np.std(best, ddof=1), np.std(learned, ddof=1), 0.005)
        assert np.mean(learned) > np.mean(best) - spread, place


def test_gates_say_what_a_label_hangs_on(worlds: ModuleType) -> None:
    """In the table of the page: the same role with every seed where only one of the two will do."""
    runs = json.loads((ROOT / "experiments" / "when-roles-matter.json").read_text("utf-8"))["runs"]

    def roles(world: str) -> set[str]:
        return {
            role_of(gate)
            for run in runs
            if (run["layers"], run["world"], run["variant"]) == (1, world, "learned")
            for route, gate in run["gates"].items()
            if route.endswith("-> customers")
        }

    assert roles("u alone") == roles("chain") == {"edge"}
    assert roles("counts") == {"node"}
    # Node and edge are equally good here: nothing tells the gate where to go.
    assert len(roles("v alone")) > 1
    assert len(roles("recency")) > 1
