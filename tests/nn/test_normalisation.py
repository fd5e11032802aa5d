"""LayerNorm of short rows in one pass is PyTorch's, in place or not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from relfrog.nn.normalisation import normalised


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_the_same_as_torch(size: int, dtype: torch.dtype, relu: bool) -> None:
    torch.manual_seed(0)
    norm = nn.LayerNorm(size).to(dtype)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = 3 * torch.randn(50, size, dtype=dtype) + 1
    expected = norm(x).relu() if relu else norm(x)
    with torch.no_grad():
        kept = normalised(x, norm, relu, keep=True)
        own = x.clone()
        in_place = normalised(own, norm, relu)
    torch.testing.assert_close(kept, expected.detach())
    assert torch.equal(kept, in_place)
    assert in_place.data_ptr() == own.data_ptr() != kept.data_ptr()
    x.requires_grad_()
    assert torch.equal(normalised(x, norm, relu), expected)  # with gradients nothing is overwritten
