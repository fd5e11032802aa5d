"""The moving average of the weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from relfrog.training.weights import WeightAverage

DECAY = 0.9


def test_the_average_is_that_of_torch_bit_for_bit() -> None:
    """On a network with a buffer of whole numbers, which are copied."""

    def move(averaged: Any, weights: Any, steps: Any) -> None:
        if averaged[0].is_floating_point():
            keep = min(DECAY, (1 + int(steps)) / (10 + int(steps)))
            torch._foreach_lerp_(averaged, weights, 1 - keep)
        else:
            torch._foreach_copy_(averaged, weights)

    torch.manual_seed(0)
    network: Any = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    ours = WeightAverage(network, DECAY)
    expected = AveragedModel(network, multi_avg_fn=move, use_buffers=True)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.001)
    for step in range(120):  # the decay is reached after 80
        optimizer.zero_grad()
        network(torch.randn(8, 3)).square().sum().backward()
        optimizer.step()
        ours.update(step)
        expected.update_parameters(network)
        state = expected.module.state_dict()
        assert all(torch.equal(value, state[k]) for k, value in ours.network.state_dict().items())
        if step:
            assert not torch.equal(ours.network[0].weight, network[0].weight)
    assert int(state["1.num_batches_tracked"]) == 120
