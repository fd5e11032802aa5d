"""Optimisers: PyTorch's own, to the bit, without what takes a second to import."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch

from relfrog.training.optimizers import plain_optimizer


def trained(kind: type[torch.optim.Adam]) -> list[torch.Tensor]:
    """Weights and state after some steps, with a save and a load in between."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1))
    optimizer = kind(network.parameters(), lr=0.01, weight_decay=0.1, fused=True)
    for step in range(6):
        optimizer.zero_grad(set_to_none=True)
        network(torch.full((3, 7), float(step))).square().sum().backward()
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
    state = [part for one in optimizer.state_dict()["state"].values() for part in one.values()]
    return [*(weight.detach() for weight in network.parameters()), *state]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_the_same_steps(kind: type[torch.optim.Adam], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trained(kind)
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    plain = plain_optimizer.__wrapped__(kind)
    monkeypatch.undo()
    assert plain is not kind
    found = trained(plain)
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))
    assert not any(part.requires_grad for part in found)


@pytest.mark.slow
def test_commands_do_not_load_what_they_do_not_need() -> None:
    code = """
        import sys
        import relfrog.runs.predict_parts, relfrog.runs.run, relfrog.runs.train, torch
        from relfrog.training.optimizers import plain_optimizer
        assert not {"sklearn", "lightgbm", "torch_frame", "sqlglot"} & {*sys.modules}
        layer = torch.nn.Linear(2, 1)
        optimizer = plain_optimizer(torch.optim.AdamW)(layer.parameters(), fused=True)
        layer(torch.ones(2)).sum().backward()
        optimizer.step()
        assert "torch._dynamo" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=300)
