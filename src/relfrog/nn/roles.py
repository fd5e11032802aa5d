"""Roles: for each route, how much the table in the middle acts as an edge rather than a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from relfrog.graph.routes import Route
from relfrog.nn.products import add_product, linear

__all__ = ["UNDECIDED", "GateOptions", "GateSums", "RoleMode", "Roles", "role_of", "saturated"]


class RoleMode(str, Enum):
    """Where the roles come from."""

    LEARNED = "learned"
    NODE = "node"
    EDGE = "edge"
    RANDOM = "random"
    FIXED = "fixed"


@dataclass(frozen=True)
class GateOptions:
    """What the paper leaves open about gates.

    Attributes:
        normalise: whether h^N and h^E are scaled to mean 0 and variance 1, row by row, before the
            gate's MLP. Sums over hundreds of rows saturate it otherwise.
        all_rows: whether all rows enter the average gate, not only those with a match.
        row_wise: whether each row has its own gate in evaluation, too, as in training: g of
            Eq. (7) instead of the average.
        uniform: whether random gates are drawn from U(0, 1), not from {0, 1}.
    """

    normalise: bool = False
    all_rows: bool = False
    row_wise: bool = False
    uniform: bool = False


class Roles(nn.Module):
    """The gates of all routes and their running averages, shared by the layers.

    Eq. (6): g~ = sigmoid(MLP([h^N || h^E])) per row w; Eq. (7): g = (1 - alpha) g~ + alpha gbar,
    gbar <- mean(g). The gate is the weight of the edge role. Training uses g, so that the MLP
    receives gradients; evaluation uses the exponential moving average gbar. Roles that are not
    learned are a constant gbar.

    Shapes: h^N, h^E [n, c] -> [n, 1], or [] where all rows share one gate.
    """

    average: Tensor
    #: How low each average can be by now: it starts at 0.5 and loses at most a share of 1 - alpha
    #: per step. 1 minus that is how high it can be.
    bound: Tensor

    def __init__(
        self,
        routes: Sequence[Route],
        channels: int,
        mode: RoleMode = RoleMode.LEARNED,
        alpha: float = 0.99,
        fixed: Mapping[str, float] | None = None,
        generator: torch.Generator | None = None,
        options: GateOptions | None = None,
    ) -> None:
        super().__init__()
        self.options = options = options or GateOptions()
        #: Whether the averages follow the gates in training.
        self.moving = True
        #: Where gates are added up, if the averages move later: see `settle`.
        self.held: GateSums | None = None
        self.number = {route: number for number, route in enumerate(routes)}
        self.mode = mode
        self.alpha = alpha
        start = torch.full((len(routes),), 0.5)
        if mode is RoleMode.EDGE:
            start.fill_(1.0)
        elif mode is RoleMode.NODE:
            start.zero_()
        elif mode is RoleMode.RANDOM:
            start = (
                torch.rand(len(routes), generator=generator)
                if options.uniform
                else torch.randint(0, 2, (len(routes),), generator=generator).float()
            )
        elif mode is RoleMode.FIXED:
            start = torch.tensor([(fixed or {})[str(route)] for route in routes])
        self.register_buffer("average", start)
        self.register_buffer("bound", torch.full((len(routes),), 0.5))
        learned = routes if mode is RoleMode.LEARNED else ()
        self.first = nn.ModuleList(nn.Linear(2 * channels, channels) for _ in learned)
        self.last = nn.ModuleList(nn.Linear(channels, 1) for _ in learned)

    def forward(self, route: Route, node: Tensor, edge: Tensor, matched: Tensor) -> Tensor:
        """The gate of a route for each row, from both of its messages.

        Args:
            route: the route.
            node: h^N. Shape [n, c].
            edge: h^E. Shape [n, c].
            matched: mask of the rows that have a match; only these enter the average. Shape [n].
        """
        number = self.number[route]
        if self.mode is not RoleMode.LEARNED or not (self.training or self.options.row_wise):
            return self.average[number]
        if self.options.normalise:
            node, edge = (layer_norm(x, x.shape[1:]) for x in (node, edge))
        first, last = self.first[number], self.last[number]
        assert isinstance(first, nn.Linear)
        # Eq. (6), without concatenating [h^N || h^E].
        width = node.shape[1]
        hidden = linear(node, first.weight[:, :width], first.bias)
        hidden = add_product(hidden, edge, first.weight[:, width:]).relu_()
        said = torch.sigmoid(last(hidden))
        gate = (1 - self.alpha) * said + self.alpha * self.average[number]  # Eq. (7)
        if self.training and self.moving:
            if self.held is not None:
                self.held.add(number, said.detach().squeeze(1), self._rows(matched))
            else:
                self._move(number, gate.detach().squeeze(1), matched)
        return gate

    def constant(self, route: Route) -> float | None:
        """The gate of a route that is not learned, which is the same for all rows."""
        if self.mode is RoleMode.LEARNED:
            return None
        return float(self.average[self.number[route]])

    def _rows(self, matched: Tensor) -> Tensor:
        """Mask of the rows that enter the average. Shape [n]."""
        return torch.ones_like(matched) if self.options.all_rows else matched

    @torch.no_grad()
    def settle(self, sums: Tensor) -> None:
        """Move the averages to the mean gates of all rows of a step, layer by layer: Eq. (7).

        Args:
            sums: the sum of what `GateSums` hold of the parts of the step. Shape [layers, routes,
                2].
        """
        for layer in sums:
            total, count = layer.unbind(1)
            there, mean = count > 0, total / count.clamp(min=1)
            moved = (1 - self.alpha) * mean + self.alpha * self.average.double()
            self.average.copy_(torch.where(there, moved, self.average.double()))
            self.bound.copy_(torch.where(there, self.bound * self.alpha, self.bound))

    @torch.no_grad()
    def _move(self, number: int, gate: Tensor, matched: Tensor) -> None:
        """The average moves to the mean of the gates, unless there is nothing to average."""
        count = len(gate) if self.options.all_rows else matched.sum()
        if count > 0:
            total = gate.sum() if self.options.all_rows else (gate * matched).sum()
            self.average[number] = total / count
            self.bound[number] *= self.alpha

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        # Runs saved before there was a bound: nothing is known about it, and nothing is at it.
        state.setdefault(f"{prefix}bound", torch.zeros_like(self.bound))
        super()._load_from_state_dict(state, prefix, *rest)


class GateSums:
    """What the gates' MLPs say, summed over rows that are computed in several forward passes.

    The averages that these see stay as they are meanwhile, whatever the order of the passes.

    Attributes:
        sums: per layer and route, the sum and the number of rows. float64, shape [layers, routes,
            2].
    """

    def __init__(self, layers: int, roles: Roles) -> None:
        self.sums = roles.average.new_zeros((layers, len(roles.number), 2), dtype=torch.float64)
        self._layer = [0] * len(roles.number)

    def begin(self) -> None:
        """Begin a forward pass."""
        self._layer = [0] * len(self._layer)

    def add(self, number: int, gate: Tensor, rows: Tensor) -> None:
        """Add the gates of a route in its next layer.

        Args:
            number: the route.
            gate: what the MLP says. Shape [n].
            rows: mask of the rows that count. Shape [n].
        """
        here = self.sums[self._layer[number], number]
        here[0] += (gate.double() * rows).sum()
        here[1] += rows.sum()
        # A layer computes no more rows than the one before it, so that no layer is left out.
        self._layer[number] += 1


#: Gates between these say nothing: another seed may put them on the other side of 0.5.
UNDECIDED = (0.45, 0.55)
#: A gate whose MLP said less than this, or more than 1 minus this, from the first step on was never
#: learned: it followed the clock of its average to the bound.
SATURATED = 0.01


def saturated(gate: float, bound: float) -> bool:
    """Whether an average gate is at its bound: it says how long training was, not what is best.

    What is left of the average without its start value is the mean of what the MLP said.

    Args:
        gate: the average gate.
        bound: the lowest that it could be by now; 1 minus that is the highest.
    """
    if not 0 < bound < 0.5:
        return False
    said = (gate - bound) / (1 - 2 * bound)
    return said < SATURATED or said > 1 - SATURATED


def role_of(gate: float, bound: float = 0.0) -> str:
    """The role that a gate stands for: "edge" above 0.55, "node" below 0.45, else "undecided".

    Args:
        gate: the average gate.
        bound: the lowest that it could be by now, if it was learned: see `saturated`.
    """
    if saturated(gate, bound):
        return "undecided"
    return "edge" if gate > UNDECIDED[1] else "node" if gate < UNDECIDED[0] else "undecided"
