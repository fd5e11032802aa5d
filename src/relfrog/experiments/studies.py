"""The paper's studies as data: the variants of settings to compare, and the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relfrog.config import Config
from relfrog.errors import UsageError, unknown
from relfrog.experiments.paper import paper_tasks
from relfrog.kinds import MODELS

__all__ = ["STUDIES", "Study", "Variant", "find_study"]


@dataclass(frozen=True)
class Variant:
    """A variant of the settings.

    Attributes:
        name: its name in tables.
        settings: the settings it changes.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model that it trains."""
        return str(self.settings.get("model", Config.model))

    @property
    def draws(self) -> bool:
        """Whether the result depends on the random seed."""
        return MODELS[self.model].learns


@dataclass(frozen=True)
class Study:
    """A study of the paper.

    Attributes:
        name: its name for `relfrog experiment`.
        title: its title.
        paper: the tables or figures of the paper that it reproduces.
        variants: the variants to compare.
        seeds: default number of random seeds.
        published: key of its tasks and published scores in `paper.json`; "" for the tasks of
            `main` and no scores.
        datasets: the paper's datasets that it uses; empty for all.
    """

    name: str
    title: str
    paper: str
    variants: tuple[Variant, ...]
    seeds: int = 5
    published: str = ""
    datasets: tuple[str, ...] = ()

    def default_tasks(self) -> list[str]:
        """The tasks that the paper uses in this study."""
        return [
            task.name
            for task in paper_tasks(self.published or "main")
            if not self.datasets or task.dataset in self.datasets
        ]


_LEARNED = Variant("learned")
#: LightGBM as in the paper and in RelBench: only the columns of the entity.
_OWN_COLUMNS = Variant("lightgbm-own", {"model": "lightgbm", "features": "own"})
#: Weights around those of the paper; 0 disables the loss.
BETAS = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
GAMMAS = (0.0, 0.001, 0.01, 0.1, 1.0, 10.0)

STUDIES = {
    study.name: study
    for study in (
        Study(
            "main", "All models on all tasks", "Tables 1-3, Appendix: full results",
            (*(Variant(model, {"model": model}) for model in MODELS), _OWN_COLUMNS),
            published="main",
        ),
        Study(
            "roles", "Tables as nodes, as edges, at random, and learned",
            "Table: roles of table modeling; Fig.: Table-as-Node or -Edge",
            (*(Variant(role, {"roles": role}) for role in ("node", "edge", "random")), _LEARNED),
            published="roles",
        ),
        Study(
            "fd", "Without the losses of functional dependencies", "Table: removing L_emb, L_pair",
            (
                Variant("full"), Variant("no L_emb", {"beta": 0.0}),
                Variant("no L_pair", {"gamma": 0.0}),
                Variant("neither", {"beta": 0.0, "gamma": 0.0}),
            ),
            published="fd",
        ),
        Study(
            "sensitivity", "Weights of L_emb and L_pair", "Fig.: sensitivity of beta, gamma",
            (
                *(Variant(f"beta={value:g}", {"beta": value}) for value in BETAS),
                *(Variant(f"gamma={value:g}", {"gamma": value}) for value in GAMMAS),
            ),
        ),
        Study(
            "structure", "Roles that are learned", "Section 5.5; Fig.: statistical analysis",
            (_LEARNED,),
        ),
        Study(
            "transfer", "Tasks trained with the frozen structure of another task",
            "Tables: different learned structures", (_LEARNED,), published="transfer",
        ),
        Study(
            "fd-space", "Differences of foreign-key pairs, with L_FD and without",
            "Section 5.4; Fig.: relational patterns",
            (Variant("with L_FD"), Variant("without L_FD", {"beta": 0.0, "gamma": 0.0})),
            datasets=("rel-event", "rel-avito"),
        ),
        Study(
            "tune", "Search for settings by validation", "Table: hyper-parameter search space",
            (Variant("frog"),), seeds=1,
        ),
    )
}  # fmt: skip


def find_study(name: str) -> Study:
    """Look up a study by name.

    Raises:
        UsageError: There is no such study.
    """
    if name not in STUDIES:
        raise UsageError(str(unknown("experiment", name, list(STUDIES))))
    return STUDIES[name]
