"""Progress of a training, for people: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from relfrog.support.text import duration
from relfrog.training.callbacks import Callback

__all__ = ["TrainingProgress", "in_notebook", "is_watched"]


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    if "ipykernel" not in sys.modules or "IPython" not in sys.modules:
        return False
    return sys.modules["IPython"].get_ipython() is not None


def is_watched() -> bool:
    """Whether somebody is likely to look on: at a terminal, or in a notebook."""
    return _on_terminal() or in_notebook()


def _on_terminal() -> bool:
    """Whether standard error is a terminal; a program without a console has none."""
    return sys.stderr is not None and sys.stderr.isatty()


class TrainingProgress(Callback):
    """Training's progress: a bar on a terminal, one line per epoch elsewhere."""

    #: Steps that are timed before the first estimate; the very first is left out if there are more.
    TIMED = 4
    #: Time to validate a seed, in parts of that to learn from it: no way back, and one phase.
    VALIDATE = 1 / 3

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._live = _on_terminal()
        # Notebooks show standard error as if something had failed.
        self._out = sys.stdout if in_notebook() else sys.stderr
        self._first = self._epoch = 0.0
        self._steps = 0
        self._told = False
        self._last = ""

    def __enter__(self) -> TrainingProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def on_start(self, trainer: Any) -> None:
        """Say what will be trained."""
        weights = sum(p.numel() for p in trainer.network.parameters())
        most = "at most " if trainer.last is None else ""
        self._say(
            f"{len(trainer.train_seeds):,} training seeds, {weights:,} weights, "
            f"{len(trainer.prepared.routes)} routes, {most}{trainer.epochs} epochs of "
            f"{trainer.steps_per_epoch} steps"
        )
        self._steps, self._told = 0, False
        self._last = ""
        self._first = self._epoch = time.monotonic()
        if self._live:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[what]}"),
                TimeRemainingColumn(), console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._bar.start()
            steps = trainer.epochs * trainer.steps_per_epoch
            self._task = self._bar.add_task(f"epoch {trainer.at.epoch}", total=steps, what="")

    def on_step(self, trainer: Any, loss: float) -> None:
        """Move the bar; after a few steps say how long it will take."""
        self._steps += 1
        here = trainer.steps_per_epoch - trainer.at.step + self._steps  # in the first epoch
        if self._steps == 1 and here > 1:
            self._first = time.monotonic()
        if not self._told and self._steps == min(1 + self.TIMED, here):
            self._told = True
            step = (time.monotonic() - self._first) / max(self._steps - 1, 1)
            val = len(trainer.val_seeds) / trainer.config.batch_size * self.VALIDATE
            epoch = step * (trainer.steps_per_epoch + (val if trainer.last is None else 0))
            whole, left = epoch * trainer.epochs, trainer.budget.left
            limit = ""
            if left < whole:
                limit = f", but only {duration(max(left, 0.0))} of the time budget is left"
            stops = (
                f"; training stops early after {trainer.config.patience} epochs without a better "
                "validation score"
            )
            self._say(
                f"an epoch takes about {duration(epoch)}, all {trainer.epochs} about "
                f"{duration(whole)}{limit}{stops if trainer.last is None else ''}"
            )
        if self._bar is not None:
            speed = trainer.at.sums[0] / max(time.monotonic() - self._first, 1e-9)
            self._bar.update(
                self._task, description=f"epoch {trainer.at.epoch}",
                completed=trainer.at.epoch * trainer.steps_per_epoch + trainer.at.step,
                what=f"loss {loss:.4f}  {self._last}  {speed:,.0f} seeds/s",
            )  # fmt: skip

    def on_epoch(self, trainer: Any, record: Any) -> None:
        """One line per epoch."""
        now = time.monotonic()
        took, self._epoch, self._first = now - self._epoch, now, now  # with its validation
        most = ""
        if trainer.last is None:
            most = "at most "
            metric = trainer.kind.metric
            self._last = f"val {metric} {record.val[metric]:.4f}"
        # An epoch that was resumed took less; then its training alone is the better guess.
        left = (trainer.epochs - record.epoch - 1) * max(took, record.seconds)
        left = max(min(left, trainer.budget.left), 0.0)
        mark = " *" if record.best and most else "  "
        self._say(
            f"epoch {record.epoch:>3}  loss {record.loss:.4f}  {self._last}{mark}  "
            f"{record.seeds_per_second:,.0f} seeds/s  {most}{duration(left)} left"
        )

    def on_end(self, trainer: Any) -> None:
        """Say which epoch is kept."""
        self._stop()
        if trainer.last is None:
            score = f"{trainer.kind.metric} {trainer.at.best:.4f}"
            self._say(f"keeping epoch {trainer.at.best_epoch}, val {score}")

    def on_message(self, text: str) -> None:
        """Say it."""
        self._say(text)

    def _say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._out, flush=True)

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
