"""Training in shards: the same weights, however many workers share the work.

A batch is cut into pieces (`relfrog.training.shards`), of which each worker samples and computes
some. A step then takes two sums over all workers: of how many labels and pairs there are, which the
losses are divided by, and of everything else in one vector: the gradients of both phases, what the
gates say, the losses. From there on every worker does the same.
"""

from __future__ import annotations

import hashlib
import math
import socket
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relfrog.errors import RunError
from relfrog.graph.loader import Loader
from relfrog.graph.relational import ForeignKey
from relfrog.nn.batch_plan import Plan
from relfrog.nn.network import Network, count_pairs, dependency_pairs
from relfrog.store.parts import versions
from relfrog.store.versions import REMEDY, version_differences
from relfrog.training import checkpoint
from relfrog.training.collective import ALONE, Collective
from relfrog.training.inference import in_order, predict_batches
from relfrog.training.micro_batches import micro_batches, within_memory
from relfrog.training.prepared import Prepared
from relfrog.training.shards import FlatSum, cut_batch, pieces_of, seed_piece
from relfrog.training.trainer import Trainer

__all__ = ["ShardedTrainer"]

#: What random numbers of a piece are for: seeds of the losses of dependencies, a step, the
#: regulariser in a pass of its own.
CHOICE, STEP, PASS = range(3)
#: Numbers of a step beside the gradients: the loss of the task, L_emb and L_pair.
LOSSES = 3


class Piece(NamedTuple):
    """A piece of a batch.

    Attributes:
        plan: its seeds.
        pairs_plan: the seeds whose rows the losses of dependencies use.
        counts: labels, and pairs of each foreign key.
    """

    plan: Plan
    pairs_plan: Plan
    counts: list[int]


class ShardedTrainer(Trainer):
    """Trains one network in shards, together with others.

    Args:
        prepared: the data.
        folder: the run folder; only the first worker uses it.
        collective: the workers.
        options: see `Trainer`; callbacks are for the first worker.
    """

    def __init__(
        self, prepared: Prepared, folder: Path, *, collective: Collective = ALONE, **options: Any
    ) -> None:
        super().__init__(prepared, folder, **options)
        self.collective = collective
        shards = self.config.shards
        self.fd_pairs, self.fd_seeds = -(-self.fd_pairs // shards), -(-self.fd_seeds // shards)
        self.keys = prepared.graph.foreign_keys if self.dependencies is not None else ()
        roles = self.network.roles
        gates = 0 if roles is None else 2 * len(self.network.layers) * len(roles.number)
        every_step = self.config.fd_every == "step"
        regulariser = self.dependencies if every_step else None
        self.sum = FlatSum(self.network, regulariser, LOSSES + gates)
        self.fd_sum: FlatSum | None = None
        if self.dependencies is not None and not every_step:
            self.fd_sum = FlatSum(self.dependencies, None, gates)
        #: Whether an error was raised by all workers alike.
        self.agreed = False
        self._spoiled: Plan | None = None

    # The loop.

    def fit(self) -> None:
        """Train to the end, from where the first worker is."""
        self._compare_data()
        self.follow_first()
        super().fit()

    def end_epoch(self) -> None:
        """As alone; and whatever processors differ in goes no further than an epoch."""
        super().end_epoch()
        self.follow_first()

    def follow_first(self) -> None:
        """Take over the state of the first worker."""
        if self.collective.size == 1:
            return
        first = self.collective.first
        captured = self.collective.share(checkpoint.capture(self) if first else None)
        assert captured is not None
        if not first:
            tensors, text = captured
            split = self.at.micro_batches  # as the memory of this machine has it
            checkpoint.restore(self, "the first worker", tensors, checkpoint.parse_progress(text))
            self.at.micro_batches = max(split, self.at.micro_batches)

    def _compare_data(self) -> None:
        """Check that all workers have the same libraries, and have read the same.

        Raises:
            RunError: One has not.
        """
        if self.collective.size == 1:
            return
        found = self.collective.collect((socket.gethostname(), versions(), self._fingerprint()))
        first, expected, data = found[0]
        self.agreed = True
        for rank, (node, own, digest) in enumerate(found):
            if other := version_differences(own, expected):
                raise RunError(f"worker {rank} on {node} has {other}. {REMEDY}")
            if digest != data:
                raise RunError(
                    f"worker {rank} on {node} has other data than worker 0 on {first}: another "
                    "state of the dataset. Give all of them the same."
                )
        self.agreed = False

    def _fingerprint(self) -> str:
        """A hash of seeds, labels, rows and weights that training begins with."""
        seeds = self.train_seeds
        found = hashlib.blake2b(digest_size=16)
        found.update(np.ascontiguousarray(seeds.rows).data)
        found.update(np.ascontiguousarray(seeds.times.astype("datetime64[ns]")).view("i8").data)
        targets: Sequence[Tensor] = (
            (self.targets,) if isinstance(self.targets, Tensor) else self.targets
        )
        for part in targets:
            found.update(part.cpu().contiguous().numpy().data)
        shapes = {name: tuple(value.shape) for name, value in self.network.state_dict().items()}
        rows = {name: int(count) for name, count in self.prepared.graph.num_rows.items()}
        found.update(repr((shapes, rows, sorted(vars(self.config).items()))).encode())
        return found.hexdigest()

    def batches(self, loader: Loader, start: int = 0) -> Iterator[list[Plan]]:
        """The pieces of each batch that are this worker's."""

        def cut(times: NDArray[np.int64]) -> list[NDArray[np.int64]]:
            pieces = cut_batch(times, self.config.shards, loader.sampler.shares)
            mine = pieces_of(self.collective.rank, self.collective.size, len(pieces))
            return [pieces[number] for number in mine if len(pieces[number])]

        return loader.epoch(self.at.epoch, start, cut)

    # A step.

    def train_step(self, plans: Any) -> float:
        """One step: both phases of all pieces, and one sum over all workers."""
        self._set_learning_rate()
        pieces = [self._piece(plan.to(self.device)) for plan in plans]
        totals = self._totals(pieces)
        self.network.train()
        self.sum.clear()
        self._spoiled = None
        for piece in pieces:
            self._in_memory(partial(self._add_piece, piece, totals), piece.plan)
        self.collective.add(self.sum.values)
        loss, emb, pair = self.sum.numbers[:LOSSES].tolist()
        norm = self.sum.clip(self.config.clip or math.inf)
        self.sum.give_gradients()
        if not np.isfinite([loss, norm]).all():
            what = f"the gradient is {norm}" if np.isfinite(loss) else f"the loss is {loss}"
            self._stop(what, self._cause(pieces))
        self.optimizer.step()
        if self.fd_optimizer is not None and self.fd_sum is None and any(totals[1:]):
            self.fd_optimizer.step()
        self._settle(self.sum.numbers[LOSSES:])
        size, seeds = self.config.batch_size, len(self.train_seeds)
        self.end_step(min(size, seeds - self.at.step * size), loss, emb, pair)
        return loss

    def _piece(self, plan: Plan) -> Piece:
        rows = plan
        if self.fd_loader is not None:
            self._seed(plan, CHOICE)
            rows = self._some_seeds(plan)
        labels = self.network.head.loss_count(plan, self.targets)
        return Piece(plan, rows, [labels, *count_pairs(rows, self.keys, self.fd_pairs)])

    def _totals(self, pieces: Sequence[Piece]) -> list[float]:
        """Labels, and pairs of each foreign key, of the whole batch."""
        counts = [sum(some) for some in zip(*(piece.counts for piece in pieces), strict=True)]
        counts = counts or [0] * (1 + len(self.keys))
        totals = torch.tensor(counts, dtype=torch.float64, device=self.device)
        self.collective.add(totals)
        return totals.tolist()

    def _seed(self, plan: Plan, purpose: int, step: int | None = None) -> None:
        """Random numbers depend on the place in training and the piece: on its first seed."""
        place = (self.at.epoch, self.at.step if step is None else step)
        seed_piece(self.config.seed, *place, int(plan.batch.seed_ids[0]), purpose)

    def _in_memory(self, compute: Any, plan: Plan) -> Any:
        """What is computed, by as many micro-batches as it takes; gates do not move meanwhile."""
        nothing = torch.zeros(0)
        return within_memory(lambda plan: compute(), plan, self.at, nothing, self.config.neighbors)

    def _add_piece(self, piece: Piece, totals: Sequence[float]) -> None:
        """Add the gradients of a piece, what its gates say, and its losses."""
        config, head = self.config, self.network.head
        self._seed(piece.plan, STEP)
        losses = np.zeros(LOSSES)
        self.sum.forget()
        if self.dependencies is not None:
            # Where both phases are of one step, one gradient has both: that of the model with the
            # regulariser as it is, Eq. (17), and that of the regulariser with the model as it is,
            # Eq. (16).
            self.dependencies.requires_grad_(self.fd_sum is None)
        with self.network.gates_held() as held:
            for number, part in enumerate(micro_batches(piece.plan, self.loader, self.at)):
                part = part.to(self.device)
                labels = head.loss_count(part, self.targets)
                with self._precision(), self.network.gates_at_rest(self.fd_loader is not None):
                    output = self.network(part, self.features)
                    task = (
                        head.batch_loss(output.seeds, part, self.targets, self.features)
                        if labels
                        else _nothing(output.states)
                    )
                total = task * (labels / max(totals[0], 1.0))
                losses[0] += float(total.detach())
                if self.dependencies is not None and (self.fd_loader is None or number == 0):
                    share = len(part.batch) / len(piece.plan.batch)
                    if self.fd_loader is not None:
                        part, share = piece.pairs_plan, 1.0
                        with self._precision():
                            output = self.network(part, self.features)
                    pairs = dependency_pairs(output, part, self.keys, self.fd_pairs)
                    shares = self._shares(piece.counts[1:], totals[1:], share)
                    both = self.dependencies(pairs, shares=shares)
                    total = total + config.beta * both.emb + config.gamma * both.pair
                    losses[1:] += [float(both.emb.detach()), float(both.pair.detach())]
                total.backward()
        if not np.isfinite(losses[0]):
            self._spoiled = piece.plan
        self.sum.add_gradients()
        self.sum.numbers[:LOSSES] += torch.from_numpy(losses).to(self.device)
        if held is not None:
            self.sum.numbers[LOSSES:] += held.sums.flatten()

    def _shares(
        self, counts: Sequence[int], totals: Sequence[float], weight: float
    ) -> dict[ForeignKey, float]:
        """The weight of each foreign key in a piece: of its pairs among all, and of the keys."""
        present = sum(total > 0 for total in totals)
        return {
            key: weight * count / (present * total) if total else 0.0
            for key, count, total in zip(self.keys, counts, totals, strict=True)
        }

    def _settle(self, gates: Tensor) -> None:
        """Move the average gates, by what they said in all pieces."""
        roles = self.network.roles
        if roles is not None:
            roles.settle(gates.view(len(self.network.layers), len(roles.number), 2))

    def _stop(self, what: str, why: str) -> None:
        """End training, of all workers alike."""
        self.agreed = True
        super()._stop(what, why)

    def _cause(self, pieces: Sequence[Piece]) -> str:
        """Why a loss or a gradient is no number: what the worker says that had such a loss."""
        plan = self._spoiled or (pieces[0].plan if pieces else None)
        said = (self._spoiled is not None, "" if plan is None else self._blame(plan))
        found = self.collective.collect(said)
        return max(found, key=lambda one: (one[0], bool(one[1])))[1]

    # The second phase as a pass of its own.

    def fit_regulariser_epoch(self) -> None:
        """The second phase after an epoch: a step per batch, each with one sum."""
        self.network.train(self.config.fd_training)
        loader = self.fd_loader or self.loader
        steps = self.batches(loader)
        try:
            for step, plans in zip(range(self.steps_per_epoch), steps, strict=False):
                self._regulariser_step(step, [plan.to(self.device) for plan in plans])
        finally:
            steps.close()  # type: ignore[attr-defined]

    def _regulariser_step(self, step: int, plans: Sequence[Plan]) -> None:
        assert self.fd_sum is not None
        assert self.fd_optimizer is not None
        pieces = [
            Piece(plan, plan, [0, *count_pairs(plan, self.keys, self.fd_pairs)]) for plan in plans
        ]
        totals = self._totals(pieces)
        self.fd_sum.clear()
        for piece in pieces:
            self._in_memory(partial(self._add_regulariser, step, piece, totals), piece.plan)
        self.collective.add(self.fd_sum.values)
        if any(totals[1:]):
            self.fd_sum.give_gradients()
            self.fd_optimizer.step()
        self._settle(self.fd_sum.numbers)

    def _add_regulariser(self, step: int, piece: Piece, totals: Sequence[float]) -> None:
        """Add the gradients of the regulariser for a piece, and what its gates say."""
        assert self.fd_sum is not None
        assert self.dependencies is not None
        self.fd_sum.forget()
        self._seed(piece.plan, PASS, step)
        with self.network.gates_held() as held:
            pairs = self._pairs(piece.plan)
        self.dependencies.requires_grad_(True)
        if pairs:
            shares = self._shares(piece.counts[1:], totals[1:], 1.0)
            losses = self.dependencies(pairs, shares=shares)
            (self.config.beta * losses.emb + self.config.gamma * losses.pair).backward()
        self.fd_sum.add_gradients()
        if held is not None:
            self.fd_sum.numbers += held.sums.flatten()

    # Validation and time.

    def validate(self, network: Network) -> tuple[NDArray[Any], dict[str, float]]:
        """Predictions of all workers for validation, and metrics, which the first one computes."""
        predicted, scores = super().validate(network)
        return predicted, self.collective.share(scores)

    def predict(self, network: Network, loader: Loader) -> NDArray[Any]:
        """Predictions for the seeds of a loader: each worker makes those of some batches."""
        mine = range(self.collective.rank, len(loader), self.collective.size)
        found = predict_batches(network, loader, self.features, self.device, batches=mine)
        return in_order(self.collective.collect(found))

    def _out_of_time(self) -> bool:
        """Whether time is over for the first worker."""
        if math.isinf(self.budget.until):
            return False
        return self.collective.share(super()._out_of_time())


def _nothing(states: Sequence[Mapping[str, Tensor]]) -> Tensor:
    """Zero, with a gradient of zero. Shape []."""
    return sum((state.sum() for state in states[-1].values()), torch.zeros(())) * 0.0
