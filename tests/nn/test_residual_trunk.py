"""The blocks of `ResNetEncoder`, some rows at a time, against its modules one after the other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from oracles.every_column import CUT, everything
from oracles.network_cases import fill
from relfrog.features.columns import fit_columns
from relfrog.nn import resnet_encoder
from relfrog.nn.dropout import Dropout, Mask, norm_dropped
from relfrog.nn.residual_trunk import PIECE, Stage, fits, trunk
from relfrog.nn.resnet_encoder import ResNetEncoder

SIZE = 16


def computed(
    encoder: ResNetEncoder, given: tuple, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Tensor]:
    """The rows, and the gradient of each parameter, with the same random numbers."""
    called = []

    def fits(*given: object) -> bool:
        called.append(fast)
        return fast

    monkeypatch.setattr(resnet_encoder, "fits", fits)
    encoder.zero_grad()
    torch.manual_seed(5)
    out = encoder(*given)
    assert called == [fast]
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    out.backward(upstream)
    found = {name: x.grad for name, x in encoder.named_parameters() if x.grad is not None}
    return {"rows": out.detach(), **found}


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("count", [1, 64, 65, PIECE, PIECE + 1, 2 * PIECE + 700])
def test_pieces_give_what_the_modules_give(
    count: int, dropout: float, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same masks, whatever piece a row falls into; gradients of all weights."""
    db = everything(60)
    columns = fit_columns(db, before=CUT, text_channels=3)
    name, some = next(iter(columns.tables.items()))
    features = columns.encode(db)[name]
    encoder = fill(ResNetEncoder(some, SIZE, depth, dropout)).double()
    rows = torch.randint(len(features), (count,), generator=torch.Generator().manual_seed(2))
    slow, fast = (computed(encoder, (features, rows), f, monkeypatch) for f in (False, True))
    assert slow.keys() == fast.keys()
    # Of weights that no row reads there is none; of all others there is a gradient.
    assert len(slow) > 4 * depth
    for key, expected in slow.items():
        torch.testing.assert_close(fast[key], expected, rtol=1e-7, atol=1e-7, msg=key)


def test_no_graph_is_kept_where_no_gradient_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    db = everything(60)
    columns = fit_columns(db, before=CUT, text_channels=3)
    name, some = next(iter(columns.tables.items()))
    features = columns.encode(db)[name]
    rows = torch.arange(30) % len(features)
    encoder = ResNetEncoder(some, SIZE, 2, 0.2)
    torch.manual_seed(1)
    with_graph = encoder(features, rows)
    torch.manual_seed(1)
    with torch.no_grad():
        without = encoder(features, rows)
    assert with_graph.requires_grad
    assert not without.requires_grad
    torch.testing.assert_close(with_graph.detach(), without)
    assert not torch.equal(encoder(features, rows), with_graph), "another mask each time"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_a_stage_is_layer_norm_relu_and_dropout(p: float, dtype: torch.dtype) -> None:
    """Also of some of the rows, which have their part of the mask."""
    torch.manual_seed(0)
    x = 3 + 2 * torch.randn(50, SIZE, dtype=dtype)
    norm = fill(nn.LayerNorm(SIZE)).to(dtype)
    torch.manual_seed(7)
    expected = Dropout(p, relu=True)(norm(x).detach())
    torch.manual_seed(7)
    mask = Mask.drawn(p)
    how = (norm.weight, norm.bias, norm.eps)
    torch.testing.assert_close(norm_dropped(x, how, mask, 0).out, expected)
    torch.testing.assert_close(norm_dropped(x[20:], how, mask, 20 * SIZE).out, expected[20:])


def test_what_is_no_number_stays_so() -> None:
    x = torch.full((4, SIZE), torch.nan)
    norm = nn.LayerNorm(SIZE)
    out = norm_dropped(x, (norm.weight, norm.bias, norm.eps), Mask(0, 0.0), 0).out
    assert out.isnan().all()


@pytest.mark.parametrize("width", [1, 3, 8])
def test_gradients_are_those_of_finite_differences(width: int) -> None:
    """Of odd widths, and of rows that lie apart in memory; once, or again while they are kept."""
    torch.manual_seed(0)
    norms = [fill(nn.LayerNorm(width), number).double() for number in range(3)]
    maps = [fill(nn.Linear(width, width), number).double() for number in range(2)]
    stages = [Stage(norms[0], maps[0], 0.3), Stage(norms[1], None, 0.3)]
    stages.append(Stage(norms[2], maps[1], 0.0))
    held = torch.randn(2 * width, 3, dtype=torch.float64, requires_grad=True)
    weights = [x for layer in (*norms, *maps) for x in layer.parameters()]

    def out(held: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(1)
        return trunk(held.T, stages)

    assert fits(held.T, stages)
    assert torch.autograd.gradcheck(out, (held, *weights))
    found = out(held).square().sum()
    once, again = (
        torch.autograd.grad(found, held, retain_graph=True, create_graph=more)[0]
        for more in (False, True)
    )
    assert torch.equal(once, again)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        again.sum().backward()
