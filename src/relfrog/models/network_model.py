"""Graph networks behind the interface of models: FROG, and the networks it is compared with."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from relfrog.errors import RunError
from relfrog.features.columns import Features
from relfrog.graph.popularity import ListRequest
from relfrog.models.model import Model, TableChange
from relfrog.models.run_forms import Epoch
from relfrog.nn.network import Network
from relfrog.nn.regression_head import MEAN_LOSSES
from relfrog.nn.roles import RoleMode
from relfrog.support.forms import read_json_lines
from relfrog.support.tensors import load_tensors, save_tensors
from relfrog.support.threads import thread_limit
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback, announce
from relfrog.training.inference import predict_sorted
from relfrog.training.layerwise import LayerwiseInference, is_layerwise
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds
from relfrog.training.sharded_trainer import ShardedTrainer
from relfrog.training.task_store import digest
from relfrog.training.trainer import Trainer
from relfrog.training.weights import FILE, named_part

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CANDIDATES", "FILE", "REFIT", "SELECTED", "NetworkModel"]

#: Subfolder of a refitted model's run with the model selected by validation.
SELECTED = "chosen"
#: Temporary subfolders during training: of candidates that validation decides between, and of the
#: refit.
CANDIDATES, REFIT = "candidate-", "refit"
#: With more training seeds than this, one loss is tried instead of all.
FEW_SEEDS = 20_000


class NetworkModel(Model):
    """A graph network, trained by `Trainer`; optionally refitted with validation labels."""

    encoded = True

    def __init__(self, prepared: Prepared, labels: dict[str, Any], **options: Any) -> None:
        super().__init__(prepared, labels, **options)
        #: Weights as saved: of the network and, for analysis, of the regulariser.
        self.weights: dict[str, Any] = {}
        self._folder = Path()

    def fit(
        self, folder: Path, budget: Budget = UNLIMITED, callbacks: Sequence[Callback] = (), *,
        resume: bool = False,
    ) -> None:  # fmt: skip
        """Train, with each candidate's settings if validation decides; then refit if set."""

        def train(
            part: str, prepared: Prepared, labels: dict[str, Any], budget: Budget,
            last: int | None = None,
        ) -> Trainer:  # fmt: skip
            (folder / part).mkdir(exist_ok=True)
            kind = ShardedTrainer if prepared.config.shards > 1 else Trainer
            trainer = kind(
                prepared, folder / part, roles=self.gates, device=torch.device(self.device),
                callbacks=callbacks, budget=budget, labels=labels, last=last,
            )  # fmt: skip
            if resume:
                trainer.load_checkpoint()
            if self.team is not None and isinstance(trainer, ShardedTrainer):
                job = self.team.job(trainer, self.device, with_validation=part == REFIT)
                self.team.fit(trainer, job)
            else:
                trainer.fit()
            return trainer

        candidates = self._candidates()
        trainers: dict[str, Trainer] = {}
        longest = 0.0
        for number, (part, words, prepared) in enumerate(candidates):
            if trainers and budget.over_in(longest):
                # One that is trained well says more than several that are not.
                announce(callbacks, f"{words} left out: there is no time for it")
                continue
            if words:
                announce(callbacks, f"{number + 1} of {len(candidates)}: {words}")
            labels = self.labels
            if prepared.config.loss != self.prepared.config.loss:
                assert prepared.train_seeds is not None
                labels = prepared.describe_labels(prepared.train_seeds)
            started = time.monotonic()
            trainers[words] = train(part, prepared, labels, budget)
            longest = max(longest, time.monotonic() - started)
        best, *others = trainers.values()
        for other in others:
            score = other.at.best
            if score is not None and self.kind.better(score, best.at.best):
                best = other
        self._take(best)
        self.trials = read_json_lines(best.folder / "history.jsonl", Epoch)
        self.facts = {
            "weights": sum(p.numel() for p in best.network.parameters()),
            "best_epoch": best.at.best_epoch, "epochs": best.at.epoch,
        }  # fmt: skip
        if len(trainers) > 1:
            self.facts["candidates"] = {words: one.at.best for words, one in trainers.items()}
        if not self._refits:
            return
        assert self.prepared.train_seeds is not None
        seeds = self.prepared.opened.with_validation(self.prepared.train_seeds)
        epochs = best.at.best_epoch + 1
        share = epochs / max(best.at.epoch, 1) * len(seeds) / max(len(self.prepared.train_seeds), 1)
        if budget.over_in(longest * share):
            announce(callbacks, "no refit on validation labels: there is no time for it")
            return
        announce(callbacks, "refit on training and validation labels ...")
        more = replace(self.prepared, train_seeds=seeds)
        final = train(REFIT, more, self.labels, budget, last=epochs)
        if budget.over and final.at.epoch < epochs:
            announce(callbacks, "the refit was not over in time, and is left out")
            return
        self.selected, known = self._copy(), self._known
        self.selected._known, self._known = known, {}
        self._take(final)
        self.facts["refit"] = {"labels": len(seeds), "epochs": final.at.epoch}

    @property
    def _refits(self) -> bool:
        """Whether to refit, if there is time."""
        setting = self.prepared.config.refit
        return setting == "on" or (setting == "auto" and self.refit_helps)

    def _candidates(self) -> list[tuple[str, str, Prepared]]:
        """The networks to train, with subfolders and what tells them apart; mostly just one."""
        config = self.prepared.config
        settings: list[dict[str, Any]] = [
            {"history": history, "loss": loss}
            for history in (("on", "off") if config.history == "auto" else (config.history,))
            for loss in self._losses()
        ]
        if len(settings) == 1:
            # The selected weights are kept apart from those of the refit.
            part = SELECTED if self._refits else ""
            return [(part, "", replace(self.prepared, config=replace(config, **settings[0])))]
        found = []
        for number, some in enumerate(settings):
            own = replace(config, **some)
            prepared = (
                replace(self.prepared, config=own)
                if own.history != "off" or config.history == "off"
                else self.prepared.opened.prepare(own)
            )
            words = [f"{n}={v}" for n, v in some.items() if v != getattr(config, n)]
            found.append((f"{CANDIDATES}{number}", ", ".join(words), prepared))
        return found

    def _losses(self) -> tuple[str, ...]:
        """The losses to try."""
        config, seeds = self.prepared.config, self.prepared.train_seeds
        if config.loss != "mean" or self.kind.name != "regression":
            return (config.loss,)
        if float(self.labels["low"]) < 0:
            return MEAN_LOSSES[:1]
        few = seeds is None or len(seeds) <= FEW_SEEDS
        # Poisson first: it is the only one if there is no time for others.
        return ("poisson", "tweedie", "squared") if few else MEAN_LOSSES[-1:]

    def _take(self, trainer: Trainer) -> None:
        """Take over the weights of a trainer."""
        self.prepared, self.labels = trainer.prepared, trainer.labels
        self.weights = load_tensors(trainer.folder / FILE)
        vars(self).pop("network", None)
        if trainer.validated is not None:
            self.remember(trainer.val_seeds, trainer.val_cutoff, trainer.validated)

    def save(self, folder: Path) -> None:
        """Write the weights as safetensors."""
        save_tensors(folder / FILE, self.weights)
        self._folder = folder

    def load(self, folder: Path) -> None:
        """Read the weights; the network is built on first use."""
        self.weights = load_tensors(folder / FILE)
        self._folder = folder
        vars(self).pop("network", None)

    def with_change(self, change: TableChange) -> NetworkModel | None:
        """The same network, unless its head depends on the graph, as that of a ranking does."""
        return self._on(change.opened) if self.prepared.target_table is None else None

    @cached_property
    def network(self) -> Network:
        """The network with its weights."""
        network = self.prepared.network(self.labels, self.gates)
        try:
            network.load_state_dict(named_part(self.weights, "network"))
        except RuntimeError as error:
            text = " ".join(str(error).split())[:300]
            raise RunError(
                f"{self._folder}: the weights do not fit the dataset as it is now ({text}). "
                "Its tables or keys have changed: train again."
            ) from None
        return network.to(self.device).eval()

    def content(self) -> str | None:
        """A hash of the weights."""
        found = hashlib.blake2b(digest_size=16)
        for name, tensor in sorted(self.weights.items()):
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
        for name, table in self.prepared.columns.tables.items():
            found.update(digest(name, table).encode())
        return found.hexdigest()

    @property
    def features(self) -> dict[str, Features]:
        """The columns as tensors, on the model's device."""
        device = torch.device(self.device)
        return {name: part.to(device) for name, part in self.prepared.features.items()}

    def predict(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, request: ListRequest | None = None
    ) -> NDArray[Any]:
        """Predict with the network; see `Model`."""
        with thread_limit(self.prepared.config.threads):
            return predict_sorted(
                self.network, self.prepared, seeds, self.features, torch.device(self.device),
                cutoff=cutoff, request=request,
            )  # fmt: skip

    def predict_alone(self, seeds: Seeds, request: ListRequest | None = None) -> NDArray[Any]:
        """Predict layer by layer, where that is the same for each seed alone; see `Model`."""
        loader = self.prepared.loader(seeds, alone=True)
        if request is not None or not is_layerwise(self.network, loader.sampler):
            return self.predict(seeds, None, request)
        inference = LayerwiseInference(
            self.network, loader.sampler, self.features, torch.device(self.device)
        )
        with thread_limit(self.prepared.config.threads):
            return inference.predict(np.asarray(loader.rows), loader.times)

    def roles(self) -> list[dict[str, Any]]:
        """The average gate of each route, and the lowest that it could be by now if learned."""
        roles = self.network.roles
        gates = roles.average.tolist() if roles else []
        learned = roles is not None and roles.mode is RoleMode.LEARNED
        bounds = roles.bound.tolist() if roles and learned else [0.0] * len(gates)
        return [
            {
                "route": str(route), "paradigm": route.paradigm.name,
                **dict(zip("uvw", route.tables, strict=True)), "gate": gate, "bound": bound,
            }
            for route, gate, bound in zip(
                self.prepared.routes if gates else (), gates, bounds, strict=True
            )
        ]  # fmt: skip
