"""Training: two phases per step, validation after each epoch, a run that can be taken up again.

`Trainer.fit` runs epochs, `run_epoch` steps, and a step two phases: `fit_model` with the
regulariser fixed (Eq. 17), `fit_regulariser` with the model fixed (Eq. 16), on embeddings of the
same forward pass. With `fd_every="epoch"` the second phase is a pass of its own after the first,
as in Algorithm 2 of the paper.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from relfrog.datasets.metrics import compute_metrics
from relfrog.errors import RelFrogWarning, RunError
from relfrog.graph.loader import Loader
from relfrog.kinds import task_kind
from relfrog.nn.batch_plan import Plan
from relfrog.nn.dependency import Pairs
from relfrog.nn.network import Network, dependency_pairs
from relfrog.support.files import append_line
from relfrog.training import checkpoint
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback, EpochRecord
from relfrog.training.collective import ALONE
from relfrog.training.inference import predict_seeds
from relfrog.training.micro_batches import micro_batches, within_memory
from relfrog.training.nonfinite import blame
from relfrog.training.optimizers import (
    learning_rate,
    make_dependencies,
    make_fd_optimizer,
    make_optimizer,
)
from relfrog.training.prepared import Prepared
from relfrog.training.weights import FILE, WeightAverage, load_weights, save_weights

__all__ = ["Callback", "EpochRecord", "Trainer"]

Found = TypeVar("Found")


class Trainer:
    """Trains one network.

    Args:
        prepared: the data.
        folder: the run folder.
        roles: gates by route, where they are fixed.
        device: where to compute.
        callbacks: notified of what happens.
        budget: training ends with the epoch in which its time is over, unless `last` is given.
        checkpoint_seconds: at least so long between two checkpoints inside an epoch.
        labels: as `Prepared.describe_labels` describes them; by default the training labels.
        last: epochs to train for when nothing is selected any more: validation labels may then be
            among those that are learned from, and the weights of the last epoch are kept.
    """

    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        *,
        roles: Mapping[str, float] | None = None,
        device: torch.device | None = None,
        callbacks: Sequence[Callback] = (),
        budget: Budget = UNLIMITED,
        checkpoint_seconds: float = 30.0,
        labels: dict[str, Any] | None = None,
        last: int | None = None,
    ) -> None:
        self.last, self.gates = last, roles
        self.prepared, self.folder, self.config = prepared, folder, prepared.config
        self.device = device or torch.device("cpu")
        self.callbacks, self.budget = tuple(callbacks), budget
        self.checkpoint_seconds = checkpoint_seconds
        config, task = self.config, prepared.task
        assert prepared.train_seeds is not None
        self.train_seeds = prepared.train_seeds
        everyone = prepared.seeds("val")
        self.val_seeds = everyone.sample(config.val_seeds) if config.val_seeds else everyone
        self.labels = labels or prepared.describe_labels(self.train_seeds)
        torch.manual_seed(config.seed)
        self.network = prepared.network(self.labels, roles).to(self.device)
        self.dependencies = make_dependencies(config, prepared.graph.foreign_keys)
        if self.dependencies is not None:
            self.dependencies = self.dependencies.to(self.device)
        self.optimizer = make_optimizer(config, self.network)
        self.fd_optimizer = make_fd_optimizer(config, self.dependencies)
        #: Workers that train together; see `ShardedTrainer`.
        self.collective = ALONE
        #: Pairs per foreign key, and seeds, that the losses of dependencies use.
        self.fd_pairs, self.fd_seeds = config.fd_pairs, config.fd_seeds
        self.average = WeightAverage(self.network, config.average) if config.average else None
        self.val_cutoff = prepared.cutoff("val", config.regime)
        #: What the weights that are kept predict for validation seeds, unless they were trained
        #: before this trainer resumed.
        self.validated: NDArray[Any] | None = None
        #: How long the last validation took, and how many times as long all scores will take: both
        #: regimes of validation and test.
        self.validation_seconds = 0.0
        scored = 2 * (len(everyone) + len(prepared.seeds("test")))
        self.scores_share = scored / max(len(self.val_seeds), 1)
        self.features = {name: f.to(self.device) for name, f in prepared.features.items()}
        assert self.train_seeds.labels is not None
        self.targets = self.network.head.targets(self.train_seeds.labels).to(self.device)
        self.loader = prepared.loader(
            self.train_seeds, staleness=config.staleness * task.timedelta.total_seconds()
        )
        #: Rows for the losses of functional dependencies, where they are not those of the batch.
        self.fd_loader = None
        if self.dependencies is not None and config.fd_final and config.fd_seeds:
            self.fd_loader = prepared.loader(
                self.train_seeds, every_row=True, batch_size=config.fd_seeds
            )
        self.kind = task_kind(prepared.kind, str(self.labels.get("loss", "l1")))
        self.at = checkpoint.TrainerState()

    @property
    def epochs(self) -> int:
        """At most so many."""
        return self.config.epochs if self.last is None else self.last

    @property
    def steps_per_epoch(self) -> int:
        """Steps from one validation to the next."""
        return min(len(self.loader), self.config.steps_per_epoch or len(self.loader))

    # The loop.

    def fit(self) -> None:
        """Train to the end: the last epoch, or no better validation metric for too long."""
        if self.config.precision == "mixed" and self.device.type != "cuda":
            text = f"precision mixed is for CUDA devices; on {self.device.type} it stays float32."
            warnings.warn(text, RelFrogWarning, stacklevel=2)
        for callback in self.callbacks:
            callback.on_start(self)
        while self.at.epoch < self.epochs and (self.last or self.at.waited < self.config.patience):
            self.run_epoch()
            self.end_epoch()
            if self._out_of_time():
                break
        if self.collective.first:
            self.network.load_state_dict(load_weights(self.folder))
        for callback in self.callbacks:
            callback.on_end(self)

    def run_epoch(self) -> None:
        """All steps of an epoch, from where it was left."""
        started = saved = time.monotonic()
        plans = self.batches(self.loader, self.at.step)
        try:
            for plan in plans:
                if self.at.step >= self.steps_per_epoch:
                    break
                if self.at.step and self._out_of_time():
                    break
                loss = self.train_step(plan)
                self.at.step += 1
                for callback in self.callbacks:
                    callback.on_step(self, loss)
                now = time.monotonic()
                if now - saved > self.checkpoint_seconds:
                    self.at.seconds += now - started
                    started = saved = now
                    self.save_checkpoint()
        finally:
            plans.close()  # type: ignore[attr-defined]
        self.at.seconds += time.monotonic() - started

    def batches(self, loader: Loader, start: int = 0) -> Iterator[Any]:
        """The batches of the epoch, as `train_step` takes them."""
        return loader.epoch(self.at.epoch, start)

    def train_step(self, plan: Plan) -> float:
        """One step: both phases on one forward pass."""
        self._set_learning_rate()
        loss, pairs, emb, pair = self.fit_model(plan.to(self.device))
        if self.config.fd_every == "step":
            self.fit_regulariser(pairs)
        self.end_step(len(plan.batch), loss, emb, pair)
        return loss

    def end_step(self, count: int, loss: float, emb: float, pair: float) -> None:
        """Move the average of the weights, and count the step with its seeds and losses."""
        if self.average is not None:
            self.average.update(self.at.steps)
        self.at.steps += 1
        for i, value in enumerate((count, loss * count, emb * count, pair * count)):
            self.at.sums[i] += value

    # The two phases.

    def fit_model(self, plan: Plan) -> tuple[float, dict[Any, Pairs], float, float]:
        """The model learns, with the regulariser fixed: L_task + L_FD, Eq. (17).

        A batch that does not fit into memory is split into micro-batches, whose gradients are added
        up: the same sum, but for what is drawn at random (dropout, pairs of rows), for rows that
        seeds of different micro-batches would have shared, and for gates, which move once for each.
        """
        found = self._within_memory(self._gradients, plan)
        largest = self.config.clip or float("inf")
        norm = float(nn.utils.clip_grad_norm_(self.network.parameters(), largest))
        if not np.isfinite(norm):
            self._stop(f"the gradient is {norm}", self._blame(plan))
        self.optimizer.step()
        return found

    def _gradients(self, plan: Plan) -> tuple[float, dict[Any, Pairs], float, float]:
        """The gradient of a batch, by micro-batches; the pairs of rows are those of the first."""
        config, count = self.config, len(plan.batch)
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        sums, first = np.zeros(3), None
        for part in micro_batches(plan, self.loader, self.at):
            part = part.to(self.device)
            share = len(part.batch) / count
            # Gates move once per step: with all rows where there are such.
            with self._precision(), self.network.gates_at_rest(self.fd_loader is not None):
                output = self.network(part, self.features)
                task = self.network.head.batch_loss(output.seeds, part, self.targets, self.features)
            total, pairs = task, {}
            emb = pair = 0.0
            if self.dependencies is not None:
                if self.fd_loader is not None:
                    part = self._some_seeds(part)
                    with self._precision():
                        output = self.network(part, self.features)
                keys = self.prepared.graph.foreign_keys
                pairs = dependency_pairs(output, part, keys, self.fd_pairs)
                self.dependencies.requires_grad_(False)
                losses = self.dependencies(pairs)
                total = task + config.beta * losses.emb + config.gamma * losses.pair
                emb, pair = float(losses.emb.detach()), float(losses.pair.detach())
            loss = float(task.detach())
            if not np.isfinite(loss):
                self._stop(f"the loss is {loss}", self._blame(part))
            (total if share == 1 else total * share).backward()
            sums += share * np.array([loss, emb, pair])
            first = pairs if first is None else first
        loss, emb, pair = sums.tolist()
        return loss, first or {}, emb, pair

    def _some_seeds(self, plan: Plan) -> Plan:
        """Neighbouring seeds of a batch, which share a subgraph, with all of their rows."""
        assert self.fd_loader is not None
        count, wanted = len(plan.batch), self.fd_seeds
        begin = int(torch.randint(max(1, count - wanted + 1), ()))
        chosen = np.arange(begin, min(count, begin + wanted))
        plan = self.fd_loader.part(plan.batch, chosen, self.at.epoch)
        return plan.to(self.device)

    def _within_memory(self, compute: Callable[[Plan], Found], plan: Plan) -> Found:
        roles = self.network.roles
        gates = torch.zeros(0) if roles is None else roles.average
        return within_memory(compute, plan, self.at, gates, self.config.neighbors)

    def _blame(self, plan: Plan) -> str:
        return blame(self.network, plan, self.features, self.prepared.columns.tables, self.targets)

    def _stop(self, what: str, why: str) -> None:
        """End training because of what is no number.

        Raises:
            RunError: Always.
        """
        if self.collective.first and (self.folder / FILE).exists():
            self.network.load_state_dict(load_weights(self.folder))
        raise RunError(
            f"{what} in epoch {self.at.epoch}, step {self.at.step}: {why}. The best weights so "
            "far are kept. Lower the learning rate: --set lr=0.0003"
        )

    def fit_regulariser(self, pairs: dict[Any, Pairs]) -> None:
        """P, s and the scorers learn, with the model fixed: L_FD, Eq. (16)."""
        if self.dependencies is None or self.fd_optimizer is None or not pairs:
            return
        self.dependencies.requires_grad_(True)
        losses = self.dependencies({key: some.detach() for key, some in pairs.items()})
        self.fd_optimizer.zero_grad(set_to_none=True)
        (self.config.beta * losses.emb + self.config.gamma * losses.pair).backward()
        self.fd_optimizer.step()

    def fit_regulariser_epoch(self) -> None:
        """The second phase as a pass of its own over the seeds.

        In training mode gates move in it, as they did in the first phase.
        """
        self.network.train(self.config.fd_training)
        plans = self.batches(self.fd_loader or self.loader)
        try:
            for _, plan in zip(range(self.steps_per_epoch), plans, strict=False):
                self.fit_regulariser(self._within_memory(self._pairs, plan))
        finally:
            plans.close()  # type: ignore[attr-defined]

    @torch.no_grad()
    def _pairs(self, plan: Plan) -> dict[Any, Pairs]:
        """The pairs of rows of a batch; of one that does not fit, those of its first part."""
        loader = self.fd_loader or self.loader
        part = next(micro_batches(plan, loader, self.at)).to(self.device)
        output = self.network(part, self.features)
        keys = self.prepared.graph.foreign_keys
        return dependency_pairs(output, part, keys, self.fd_pairs)

    # Validation and what is kept.

    def end_epoch(self) -> None:
        """The second phase if it waits for this, validation, and everything to disk."""
        if self.dependencies is not None and self.config.fd_every == "epoch":
            self.fit_regulariser_epoch()
        network = self.network if self.average is None else self.average.network
        predicted, scores = self.validate(network) if self.last is None else (None, {})
        score = scores.get(self.kind.metric)
        improved = score is None or self.kind.better(score, self.at.best)
        if improved:
            self.at.best, self.at.best_epoch, self.at.waited = score, self.at.epoch, 0
            self.validated = predicted
            if self.collective.first:
                save_weights(self.folder, network, self.dependencies)
        else:
            self.at.waited += 1
        count, *sums = self.at.sums
        loss, emb, pair = (value / max(count, 1) for value in sums)
        record = EpochRecord(
            self.at.epoch, loss, emb, pair, scores, improved, self.at.seconds,
            count / max(self.at.seconds, 1e-9), network.average_gates(),
        )  # fmt: skip
        if self.collective.first:
            append_line(self.folder / "history.jsonl", record.__dict__)
        self.at.epoch, self.at.step = self.at.epoch + 1, 0
        self.at.sums, self.at.seconds = [0.0] * 4, 0.0
        self.save_checkpoint()
        for callback in self.callbacks:
            callback.on_epoch(self, record)

    def validate(self, network: Network) -> tuple[NDArray[Any], dict[str, float]]:
        """Predictions of a network for validation, and metrics, in the regime that selects."""
        started = time.monotonic()
        seeds = self.val_seeds
        # In another batch, sums round otherwise: as `predict_sorted` does it.
        order = np.lexsort((seeds.rows, seeds.times))
        found = self.predict(
            network, self.prepared.loader(seeds.take(order), cutoff=self.val_cutoff)
        )
        predicted = np.empty_like(found)
        predicted[order] = found
        self.validation_seconds = time.monotonic() - started
        assert seeds.labels is not None
        truth = network.head.truth(self.labels, seeds.labels)
        return predicted, compute_metrics(
            self.kind.name, truth, predicted, self.labels.get("std"),
            quantile=self.labels.get("quantile"),
        )  # fmt: skip

    def predict(self, network: Network, loader: Loader) -> NDArray[Any]:
        """Predictions for the seeds of a loader."""
        return predict_seeds(network, loader, self.features, self.device)

    def _out_of_time(self) -> bool:
        """Whether what is left of the budget is needed for validation and the final scores."""
        if self.last is not None:
            return False
        # This epoch's validation, then all scores.
        return self.budget.over_in(self.validation_seconds * (1 + self.scores_share))

    # Interruption and resumption.

    def save_checkpoint(self) -> None:
        """Write all that is needed to go on as if nothing had happened."""
        if self.collective.first:
            checkpoint.save(self)

    def load_checkpoint(self) -> None:
        """Take up where `save_checkpoint` left off; from the beginning if it never did."""
        checkpoint.load(self)

    # Small things.

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """By name, those that there are."""
        found: dict[str, torch.optim.Optimizer] = {"optimizer": self.optimizer}
        if self.fd_optimizer is not None:
            found["fd_optimizer"] = self.fd_optimizer
        return found

    def _precision(self) -> Any:
        if self.config.precision == "mixed" and self.device.type == "cuda":
            return torch.autocast("cuda", torch.bfloat16)
        return nullcontext()

    def _set_learning_rate(self) -> None:
        rate = learning_rate(self.config, self.at.steps, self.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
