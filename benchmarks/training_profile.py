"""Where the time of a training step goes, by part of the network.

Used by `training.py`. Parts are marked from outside, while the profiler runs; batches are sampled
when they are asked for, so that sampling is seen, too. Backward time is traced to the part whose
forward operation it belongs to.
"""

from __future__ import annotations

import copy
import functools
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from relfrog import training
from relfrog.graph.sampler import TemporalSampler
from relfrog.models import prepared as preparing
from relfrog.nn import network as model
from relfrog.nn.dependency import Dependencies
from relfrog.nn.encoders import RowEncoder, SeedEncoder, TimeEncoder
from relfrog.nn.heads import Head
from relfrog.nn.messages import CompletionMessage, CoOccurrenceMessage, NodeMessage
from relfrog.nn.role_layer import RoleLayer
from relfrog.nn.roles import Roles
from relfrog.training.trainer import Trainer

__all__ = ["profile"]

MARK, EVALUATE, SECOND = "part: ", "autograd::engine::evaluate_function", "FD, second phase"
#: Where each part is computed: the owner and the name of a function.
PARTS: list[tuple[Any, str, str]] = [
    (TemporalSampler, "sample_checked", "sampling"),
    (preparing, "make_plan", "links"),
    (model.Network, "encode", "gathering rows"),
    (RowEncoder, "forward", "encode"),
    (TimeEncoder, "forward", "time encoding"),
    (SeedEncoder, "forward", "time encoding"),
    (model, "age_parts", "time encoding"),
    (NodeMessage, "forward", "node messages"),
    (NodeMessage, "add_neighbors", "node messages"),
    (CoOccurrenceMessage, "forward", "routes"),
    (CompletionMessage, "forward", "routes"),
    (Roles, "forward", "gates"),
    (RoleLayer, "forward", "fusion"),
    (Head, "forward", "head"),
    (training, "dependency_pairs", "FD"),
    (Dependencies, "forward", "FD"),
    (Trainer, "fit_regulariser", SECOND),
    (torch.Tensor, "backward", "backward"),
    (torch.nn.utils, "clip_grad_norm_", "optimiser"),
    (torch.optim.AdamW, "step", "optimiser"),
    (torch.optim.Adam, "step", "optimiser"),
    (Trainer, "train_step", "rest of the step"),
]


@contextmanager
def marked() -> Iterator[None]:
    """Let the profiler know when each part begins and ends."""
    kept = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in PARTS]
    for owner, name, part in PARTS:
        setattr(owner, name, _marking(getattr(owner, name), part))
    try:
        yield
    finally:
        for owner, name, function in kept:
            if function is None:
                delattr(owner, name)
            else:
                setattr(owner, name, function)


def _marking(function: Callable[..., Any], part: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with record_function(MARK + part):
            return function(*args, **kwargs)

    return wrapped


def profile(trainer: Trainer, warmup: int, steps: int) -> dict[str, Any]:
    """Milliseconds per step of each part, of the backward pass of each part, and of operators."""
    loader = copy.copy(trainer.loader)
    object.__setattr__(loader, "workers", 0)
    batches = (batch for number in itertools.count() for batch in loader.epoch(number))

    def run(number: int) -> float:
        began = time.perf_counter()
        for _ in range(number):
            trainer.train_step(next(batches))
        return 1e3 * (time.perf_counter() - began) / number

    run(warmup)
    plain = run(steps)
    with marked(), torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profiler:
        profiled = run(steps)
    parts, backward = attribute(list(profiler.events()))
    averages = sorted(
        (entry for entry in profiler.key_averages() if not entry.key.startswith(MARK)),
        key=lambda entry: -entry.self_cpu_time_total,
    )
    operators = [
        {
            "operator": entry.key,
            "calls": round(entry.count / steps, 1),
            "ms": round(entry.self_cpu_time_total / 1e3 / steps, 2),
        }
        for entry in averages[:20]
    ]
    found: dict[str, Any] = {
        "steps": steps,
        "ms_per_step": round(plain, 1),
        "ms_per_step_while_profiled": round(profiled, 1),
        "parts_ms": _per_step(parts, steps),
        "backward_ms": _per_step(backward, steps),
        "operators": operators,
    }
    found["next"] = lever(found)
    found["table"] = table(found)
    return found


def attribute(events: list[Any]) -> tuple[Counter[str], Counter[str]]:
    """Microseconds of each part, without the parts inside it, and of its backward pass."""
    events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    parts: Counter[str] = Counter()
    backward: Counter[str] = Counter()
    made_in: dict[int, str] = {}  # the part of the forward operation with this number
    open_marks: list[tuple[float, str]] = []  # end and part
    for event in events:
        start, end = event.time_range.start, event.time_range.end
        while open_marks and open_marks[-1][0] <= start:
            open_marks.pop()
        inside = open_marks[-1][1] if open_marks else None
        if event.name.startswith(MARK):
            part = event.name.removeprefix(MARK)
            if inside == SECOND:  # whatever it does belongs to it
                part = SECOND
            parts[part] += end - start
            if inside is not None:
                parts[inside] -= end - start
            open_marks.append((end, part))
        elif inside == "backward":
            if event.name.startswith(EVALUATE):
                # Weights, whose gradients are only added up, are made in no part.
                backward[made_in.get(event.sequence_nr, "other")] += end - start
        elif inside is not None and event.sequence_nr >= 0:
            made_in[event.sequence_nr] = inside  # the last operation of a number made the node
    return parts, backward


def lever(found: dict[str, Any]) -> str:
    """Which part takes most, in a sentence."""
    forward, backward = found["parts_ms"], found["backward_ms"]
    total = sum(forward.values())
    both = {part: forward[part] + backward.get(part, 0.0) for part in forward if part != "backward"}
    part = max(both, key=lambda name: both[name])
    top = found["operators"][0]
    return (
        f"Next lever: {part}, {both[part] / total:.0%} of a step "
        f"({forward[part]:.1f} ms forward, {backward.get(part, 0.0):.1f} ms backward); the "
        f"operator with most time of its own is {top['operator']}, {top['ms']:.1f} ms in "
        f"{top['calls']:g} calls."
    )


def table(found: dict[str, Any]) -> str:
    """Parts with their backward passes, for people."""
    forward, backward = found["parts_ms"], found["backward_ms"]
    lines = [f"{'ms per step':20} {'forward':>8} {'backward':>8}"]
    for part in sorted({*forward, *backward} - {"backward"}, key=lambda p: -forward.get(p, 0)):
        lines.append(f"{part:20} {forward.get(part, 0.0):8.1f} {backward.get(part, 0.0):8.1f}")
    there, back = sum(forward.values()) - forward["backward"], forward["backward"]
    lines.append(f"{'sum':20} {there:8.1f} {back:8.1f}")
    lines += ["", f"{'operators':56} {'calls':>8} {'own ms':>8}"]
    lines += [f"{o['operator']:56} {o['calls']:8g} {o['ms']:8.1f}" for o in found["operators"]]
    return "\n".join(lines)


def _per_step(times: Counter[str], steps: int) -> dict[str, float]:
    return {part: round(us / 1e3 / steps, 2) for part, us in times.most_common()}
