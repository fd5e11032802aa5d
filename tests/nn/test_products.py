"""Products by oneDNN: those of PyTorch, up to the order of the terms, with the same gradients."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from helpers import examples
from relfrog.nn import products
from relfrog.nn.products import Linear, add_product, linear

pytestmark = pytest.mark.skipif(products._one_dnn() is None, reason="no AVX-512 or no oneDNN")


@pytest.fixture(autouse=True, scope="module")
def everything_is_large():
    """Take the detour, however few rows there are, in several blocks."""
    before = products.LARGE, products.BLOCK
    products.LARGE, products.BLOCK = 1, 16
    yield
    products.LARGE, products.BLOCK = before


@examples(40)
@given(
    st.integers(1, 70), st.integers(16, 40), st.integers(16, 40), st.booleans(),
    st.sampled_from(["plain", "sliced", "transposed"]),
)  # fmt: skip
def test_products_and_gradients_are_those_of_pytorch(
    n: int, inputs: int, outputs: int, biased: bool, layout: str
) -> None:
    """Whatever part of which matrix the weight is."""
    torch.manual_seed(n)
    shape = (inputs, outputs) if layout == "transposed" else (outputs, 2 * inputs)
    held = torch.randn(shape, requires_grad=True)
    weight = held.T if layout == "transposed" else held[:, :inputs]
    if layout == "plain":
        weight = weight.contiguous()
    x = torch.randn(n, inputs, requires_grad=True)
    bias = torch.randn(outputs, requires_grad=True) if biased else None
    leaves = [x, held, *([bias] if bias is not None else [])]
    along = torch.randn(n, outputs)
    found, expected = linear(x, weight, bias), torch.nn.functional.linear(x, weight, bias)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for one, two in zip(
        torch.autograd.grad(found, leaves, along, retain_graph=True),
        torch.autograd.grad(expected, leaves, along),
        strict=True,
    ):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def test_a_gradient_that_is_one_number_for_all_rows() -> None:
    """Sums have such: a single number in memory, seen as a matrix."""
    layer, x = Linear(16, 20), torch.randn(9, 16)
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    expected = x.sum(0).expand(20, 16)
    torch.testing.assert_close(layer.weight.grad, expected, rtol=1e-4, atol=1e-4)


def test_a_product_is_added_in_place() -> None:
    total, x, weight = torch.randn(9, 20), torch.randn(9, 16), torch.randn(20, 16)
    expected = total + x @ weight.T
    assert add_product(total, x, weight) is total
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)


def test_double_precision_stays_double() -> None:
    x, weight = torch.randn(9, 16).double(), torch.randn(20, 16).double()
    assert torch.equal(linear(x, weight), torch.nn.functional.linear(x, weight))


@pytest.mark.parametrize("rows", [0, 3, products.PIECE, 2 * products.PIECE + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_gradients_rows_are_multiplied_in_pieces(rows: int, dtype: torch.dtype) -> None:
    made = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(shape, generator=made, dtype=dtype) for shape in ((rows, 20), (7, 20), (7,))
    )
    total = torch.ones(rows, 7, dtype=dtype)
    with torch.no_grad():
        torch.testing.assert_close(
            linear(x, weight, bias), torch.nn.functional.linear(x, weight, bias)
        )
        assert add_product(total, x, weight) is total
        torch.testing.assert_close(total, 1 + torch.nn.functional.linear(x, weight))


@pytest.mark.parametrize("shape", [(20,), (products.PIECE, 20), (products.PIECE, 3, 20)])
def test_a_layer_takes_what_that_of_pytorch_takes(shape: tuple[int, ...]) -> None:
    layer, x = Linear(20, 7), torch.randn(shape)
    with torch.no_grad():
        expected = torch.nn.functional.linear(x, layer.weight, layer.bias)
        torch.testing.assert_close(layer(x), expected)
