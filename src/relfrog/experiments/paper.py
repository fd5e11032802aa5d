"""What the paper reports: its 23 tasks, the scores in its tables, and its search space."""

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
        kind: RelBench's name of its task type.
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
        """Where RelBench hosts its dataset: a repository and a folder in it."""
        from relbench.hf import RELBENCH_HF

        return f"{RELBENCH_HF}/{self.dataset}"


@cache
def _published() -> dict[str, Any]:
    text = (resources.files("relfrog.experiments") / "paper.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def citation() -> str:
    """The source of the published scores, and how to read them."""
    return str(_published()["citation"])


def paper_tasks(study: str = "main") -> tuple[PaperTask, ...]:
    """The tasks with published scores in a study; `main` has all tasks."""
    kinds = _published()["tasks"]
    found = []
    for name in _published()[study]:
        dataset, _, task = name.partition("/")
        found.append(PaperTask(dataset, task, kinds[name]))
    return tuple(found)


def published_scores(study: str) -> dict[str, dict[str, tuple[float, float | None]]]:
    """The published mean and standard deviation (if given) by task and variant of a study."""
    return {
        task: {variant: (figure[0], figure[1]) for variant, figure in row.items()}
        for task, row in _published().get(study, {}).items()
    }


def search_space() -> dict[str, list[Any]]:
    """The paper's search space: values per setting."""
    return {name: list(values) for name, values in _published()["search_space"].items()}
