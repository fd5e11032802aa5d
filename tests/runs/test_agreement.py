"""Roles of several runs: what they agree on, and the runs of other seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import relfrog
from helpers import inside
from relfrog.errors import RunError, UsageError
from relfrog.runs.agreement import other_seeds, role_agreement


class Told:
    """A run of which only the roles are known."""

    def __init__(self, roles: dict[str, tuple[float, str]], task: str = "churn") -> None:
        self.about = {"dataset": "shop", "task": task}
        self._roles = roles

    def roles(self) -> pd.DataFrame:
        rows = [[route, "co-occurrence", *"uvw", *said] for route, said in self._roles.items()]
        return pd.DataFrame(rows, columns=["route", "paradigm", "u", "v", "w", "gate", "role"])


def test_runs_agree_unless_one_is_on_the_other_side() -> None:
    said = {
        "agree": [(0.7, "edge"), (0.8, "edge"), (0.9, "edge")],
        "sides": [(0.2, "node"), (0.8, "edge"), (0.2, "node")],
        "most": [(0.3, "node"), (0.5, "undecided"), (0.2, "node")],
        "few": [(0.3, "node"), (0.5, "undecided"), (0.01, "undecided")],
    }
    runs = [Told({route: gates[number] for route, gates in said.items()}) for number in range(3)]
    found = role_agreement(runs).set_index("route")
    assert found["role"].to_dict() == {
        "agree": "edge", "sides": "undecided", "most": "node", "few": "undecided"
    }  # fmt: skip
    assert found.loc["sides", ["nodes", "edges", "undecided"]].tolist() == [2, 1, 0]
    assert found.loc["agree", ["gate", "lowest", "highest"]].tolist() == pytest.approx(
        [0.8, 0.7, 0.9]
    )


def test_what_cannot_be_compared() -> None:
    one = Told({"a": (0.7, "edge")})
    with pytest.raises(UsageError, match="of one task, not of churn on shop and sales on shop"):
        role_agreement([one, Told({"a": (0.7, "edge")}, "sales")])
    with pytest.raises(UsageError, match="no route in common"):
        role_agreement([one, Told({"b": (0.7, "edge")})])


@pytest.mark.slow
def test_other_seeds_are_trained_once(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    small = {"channels": 8, "epochs": 1, "steps_per_epoch": 2, "model": "frog"}
    run = relfrog.train(store, "buys", tmp_path / "run", settings=small, seed=3, baselines=False)
    runs = other_seeds(run, 2)
    assert [one.config.seed for one in runs] == [3, 4]
    assert runs[1].folder == run.folder / "seeds" / "4"
    assert {**vars(runs[1].config), "seed": 3} == vars(run.config)
    stamp = (runs[1].folder / "model.safetensors").stat().st_mtime_ns
    assert (other_seeds(run, 2)[1].folder / "model.safetensors").stat().st_mtime_ns == stamp
    found = role_agreement(runs)
    assert found["route"].tolist() == run.roles()["route"].tolist()
    assert ((found["lowest"] <= found["gate"]) & (found["gate"] <= found["highest"])).all()
    bounds = [entry["bound"] for entry in json.loads((run.folder / "roles.json").read_text())]
    assert all(0 < bound <= 0.5 for bound in bounds)

    code, said, _ = inside(capfd, "roles", str(run.folder), "--seeds", "2", "--json")
    assert (code, json.loads(said)) == (0, found.to_dict("records"))
    _, said, _ = inside(capfd, "roles", *(str(one.folder) for one in runs))
    assert f"of {len(found)} routes have a role on which they agree" in said
    assert all(route in said for route in found["route"])

    fixed = relfrog.train(store, "buys", tmp_path / "fixed", roles="edge", settings=small,
                          baselines=False)  # fmt: skip
    with pytest.raises(RunError, match="has no learned roles"):
        other_seeds(fixed, 2)
    assert set(fixed.roles()["role"]) == {"edge"}
