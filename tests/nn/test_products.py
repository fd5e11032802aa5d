"""Products in pieces are products, whatever the number of rows."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

from relfrog.nn.products import PIECE, add_product, product


@pytest.mark.parametrize("rows", [0, 3, PIECE, 2 * PIECE + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_multiplied_in_pieces(rows: int, dtype: torch.dtype) -> None:
    made = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(shape, generator=made, dtype=dtype) for shape in ((rows, 20), (7, 20), (7,))
    )
    total = torch.ones(rows, 7, dtype=dtype)
    with torch.no_grad():
        torch.testing.assert_close(product(x, weight, bias), linear(x, weight, bias))
        torch.testing.assert_close(product(x, weight), linear(x, weight))
        assert add_product(total, x, weight) is total
        torch.testing.assert_close(total, 1 + linear(x, weight))
