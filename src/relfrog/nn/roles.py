"""Roles: for each route, how much the table in the middle acts as an edge rather than a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import torch
from torch import Tensor, nn

from relfrog.graph.routes import Route
from relfrog.nn.aggregation import add_product

__all__ = ["RoleMode", "Roles", "role_of"]


class RoleMode(str, Enum):
    """Where the roles come from."""

    LEARNED = "learned"
    NODE = "node"
    EDGE = "edge"
    RANDOM = "random"
    FIXED = "fixed"


class Roles(nn.Module):
    """The gates of all routes and their running averages, shared by the layers.

    Eq. (6): g~ = sigmoid(MLP([h^N || h^E])) per row w; Eq. (7): g = (1 - alpha) g~ + alpha gbar,
    gbar <- mean(g). The gate is the weight of the edge role. Training uses g, so that the MLP
    receives gradients; evaluation uses the exponential moving average gbar. Roles that are not
    learned are a constant gbar.

    Shapes: h^N, h^E [n, c] -> [n, 1], or [] where all rows share one gate.
    """

    average: Tensor

    def __init__(
        self,
        routes: Sequence[Route],
        channels: int,
        mode: RoleMode = RoleMode.LEARNED,
        alpha: float = 0.99,
        fixed: Mapping[str, float] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.number = {route: number for number, route in enumerate(routes)}
        self.mode = mode
        self.alpha = alpha
        start = torch.full((len(routes),), 0.5)
        if mode is RoleMode.EDGE:
            start.fill_(1.0)
        elif mode is RoleMode.NODE:
            start.zero_()
        elif mode is RoleMode.RANDOM:
            start = torch.randint(0, 2, (len(routes),), generator=generator).float()
        elif mode is RoleMode.FIXED:
            start = torch.tensor([(fixed or {})[str(route)] for route in routes])
        self.register_buffer("average", start)
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
        if self.mode is not RoleMode.LEARNED or not self.training:
            return self.average[number]
        first, last = self.first[number], self.last[number]
        assert isinstance(first, nn.Linear)
        # Eq. (6), without concatenating [h^N || h^E].
        width = node.shape[1]
        hidden = torch.addmm(first.bias, node, first.weight[:, :width].T)
        hidden = add_product(hidden, edge, first.weight[:, width:]).relu_()
        gate = torch.sigmoid(last(hidden))
        gate = (1 - self.alpha) * gate + self.alpha * self.average[number]  # Eq. (7)
        with torch.no_grad():
            count = matched.sum()
            if count > 0:
                self.average[number] = (gate.squeeze(1) * matched).sum() / count
        return gate


def role_of(gate: float) -> str:
    """The role that a gate stands for: "edge" above 0.55, "node" below 0.45, else "undecided".

    Gates begin at 0.5 and move slowly: one that has hardly moved has not been decided.
    """
    return "edge" if gate > 0.55 else "node" if gate < 0.45 else "undecided"
