"""Scores of differences one by one against all differences at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from oracles.network_cases import assert_close, fill, gradients, normal
from relfrog.nn import difference_scores as module
from relfrog.nn.difference_scores import difference_scores

SIZE = 8


@pytest.mark.parametrize("many", [0, 1, 5])
@pytest.mark.parametrize("count", [1, 7, 64, 130])
def test_kernels_give_what_copies_of_the_rows_give(
    count: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same scores, and gradients of rows and weights; rows are drawn several times."""
    hidden, score = fill(nn.Linear(SIZE, SIZE)).double(), fill(nn.Linear(SIZE, 1)).double()
    parent, child = normal(count, SIZE, grad=True), normal(count, SIZE, seed=1, grad=True)
    others = torch.randint(count, (count, many), generator=torch.Generator().manual_seed(2))
    upstream = normal(count, 1 + many, seed=3)
    named = {"parent": parent, "child": child}
    for name, layer in (("hidden", hidden), ("score", score)):
        named |= {f"{name}.{key}": weight for key, weight in layer.named_parameters()}

    def found() -> tuple[Tensor, dict[str, Tensor]]:
        out = difference_scores(parent, child, others, hidden, score)
        return out.detach(), gradients((out * upstream).sum(), named)

    fast, by_kernels = found()
    monkeypatch.setattr(module, "has_kernels", lambda *given: False)
    slow, by_copies = found()
    assert fast.shape == (count, 1 + many)
    assert_close(fast, slow)
    assert by_kernels.keys() == by_copies.keys() == named.keys()
    assert_close(by_kernels, by_copies, 1e-8)
    own = score((hidden(parent) - hidden(child) + hidden.bias).relu())
    assert_close(fast[:, :1], own.detach())


def test_no_gradient_is_computed_of_what_is_fixed() -> None:
    hidden, score = nn.Linear(SIZE, SIZE).double(), nn.Linear(SIZE, 1).double()
    parent, child = normal(6, SIZE), normal(6, SIZE, seed=1, grad=True)
    hidden.requires_grad_(False)
    difference_scores(parent, child, torch.zeros(6, 1).long(), hidden, score).sum().backward()
    assert parent.grad is None
    assert hidden.weight.grad is None
    assert child.grad is not None
    assert score.weight.grad is not None


def test_what_is_no_number_stays_so() -> None:
    hidden, score = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, 1)
    parent = torch.full((3, SIZE), torch.nan)
    scores = difference_scores(
        parent, torch.zeros(3, SIZE), torch.zeros(3, 1).long(), hidden, score
    )
    assert scores.isnan().all()


@pytest.mark.parametrize("width", [1, 3])
def test_gradients_are_those_of_finite_differences(width: int) -> None:
    hidden, score = fill(nn.Linear(width, width)).double(), fill(nn.Linear(width, 1)).double()
    parent, child = normal(width, 5, grad=True), normal(5, width, seed=1, grad=True)
    others = torch.tensor([[0, 1], [1, 1], [4, 0], [2, 3], [0, 0]])
    weights = (*hidden.parameters(), *score.parameters())

    def scores(parent: Tensor, child: Tensor, *_: Tensor) -> Tensor:
        return difference_scores(parent.T, child, others, hidden, score)

    assert torch.autograd.gradcheck(scores, (parent, child, *weights))
    first = torch.autograd.grad(scores(parent, child).square().sum(), child, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
