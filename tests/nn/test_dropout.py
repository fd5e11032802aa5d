"""Dropout: the right share, at independent places, and a gradient with the same mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relfrog.nn.dropout import Dropout


@pytest.mark.parametrize("p", [0.05, 0.2, 0.5, 0.95])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_right_share_is_dropped_and_the_rest_is_scaled(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.rand(400, 500, dtype=dtype) + 0.1
    out = Dropout(p)(x.clone())
    kept = out != 0
    expected, deviation = (1 - p), (p * (1 - p) / x.numel()) ** 0.5
    assert abs(float(kept.double().mean()) - expected) < 5 * deviation
    torch.testing.assert_close(out[kept], x[kept] / (1 - p))


def test_places_are_independent_of_each_other_and_of_earlier_calls() -> None:
    """Pairs of entries at many distances are both dropped as often as two coins say."""
    torch.manual_seed(0)
    first, second = (Dropout(0.3)(torch.ones(1 << 17)).eq(0).numpy() for _ in range(2))
    for apart in (1, 2, 3, 7, 8, 64, 127, 128, 1024, 4096):
        for other in (first, second):
            both = np.mean(first[apart:] & other[:-apart])
            assert abs(both - 0.09) < 5 * (0.09 * 0.91 / len(first)) ** 0.5


@pytest.mark.parametrize("relu", [False, True])
def test_the_gradient_has_the_mask_of_the_output(relu: bool) -> None:
    given = torch.randn(50, 8, dtype=torch.float64)
    x = given.clone().requires_grad_()
    out = Dropout(0.4, relu)(x * 1.0)
    upstream = torch.randn_like(out)
    out.backward(upstream)
    mask = (out.detach() != 0) / 0.6
    assert x.grad is not None
    torch.testing.assert_close(out.detach(), mask * (given.relu() if relu else given))
    torch.testing.assert_close(x.grad, mask * upstream)


def test_the_random_state_decides() -> None:
    drop = Dropout(0.5, relu=True)

    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return drop(torch.ones(100))

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


@pytest.mark.parametrize("relu", [False, True])
def test_nothing_is_drawn_in_evaluation_or_without_a_probability(relu: bool) -> None:
    x, state = torch.randn(30), torch.get_rng_state()
    for drop in (Dropout(0.5, relu).eval(), Dropout(0.0, relu)):
        assert torch.equal(drop(x.clone()), x.relu() if relu else x)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_no_number_stays_so() -> None:
    out = Dropout(0.5, relu=True)(torch.full((1000,), torch.nan))
    assert 300 < int(out.isnan().sum()) < 700


def test_the_mask_is_the_same_in_any_type_and_layout() -> None:
    found = []
    for x in (torch.ones(64, 64), torch.ones(64, 64, dtype=torch.bfloat16), torch.ones(64, 64).T):
        torch.manual_seed(0)
        found.append(Dropout(0.5, relu=True)(x).float())
    assert set(found[0].flatten().tolist()) == {0.0, 2.0}
    assert all(torch.equal(found[0], other) for other in found)
