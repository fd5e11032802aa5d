"""What the paper reports: its 23 tasks, the figures in its tables, and its search space."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["PaperTask", "citation", "paper_tasks", "published_scores", "search_space"]


@dataclass(frozen=True)
class PaperTask:
    """A task of the paper.

    Attributes:
        dataset: the name of its dataset, by which RelBench loads it.
        task: its name.
        kind: its type.
    """

    dataset: str
    task: str
    kind: str

    @property
    def name(self) -> str:
        """Dataset and task."""
        return f"{self.dataset}/{self.task}"

    @property
    def address(self) -> str:
        """Where RelBench hosts its dataset: a repository of datasets and a folder in it."""
        from relbench.hf import RELBENCH_HF

        return f"{RELBENCH_HF}/{self.dataset}"


@cache
def _published() -> dict[str, Any]:
    text = (resources.files("relfrog.experiments") / "paper.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def citation() -> str:
    """Whose figures they are, and how they are to be read."""
    return str(_published()["citation"])


def paper_tasks(study: str = "main") -> tuple[PaperTask, ...]:
    """The tasks that the paper has figures of, in a study; those of `main` are all of them."""
    kinds = _published()["tasks"]
    found = []
    for name in _published()[study]:
        dataset, _, task = name.partition("/")
        found.append(PaperTask(dataset, task, kinds[name]))
    return tuple(found)


def published_scores(study: str) -> dict[str, dict[str, tuple[float, float | None]]]:
    """Per task and variant of a study the mean and, where it is given, the deviation."""
    return {
        task: {variant: (figure[0], figure[1]) for variant, figure in row.items()}
        for task, row in _published().get(study, {}).items()
    }


def search_space() -> dict[str, list[Any]]:
    """Per setting the values that the paper chose from."""
    return {name: list(values) for name, values in _published()["search_space"].items()}
