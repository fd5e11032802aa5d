"""Who runs jobs: processes of this machine, or the nodes of a Ray cluster, behind one interface."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from relfrog.cluster.guarded import Answer, Job, Work, guarded
from relfrog.cluster.processes import BRIEF, GRACE, run_jobs
from relfrog.cluster.ray_cluster import RayCluster, connect, node_name
from relfrog.errors import ClusterError
from relfrog.store.parts import versions
from relfrog.store.versions import REMEDY, version_differences

__all__ = ["LocalWorkers", "RayWorkers", "Workers", "hired"]

#: How often a job is given to another node after its node, or its process, has died.
RETRIES = 3


class Workers(Protocol):
    """Runs jobs elsewhere."""

    @property
    def elsewhere(self) -> bool:
        """Whether jobs may run on other machines."""

    @property
    def count(self) -> int:
        """How many jobs run at a time."""

    @property
    def threads(self) -> int:
        """Threads of each job."""

    def run(self, work: Work, jobs: Sequence[Job]) -> Iterator[tuple[int, Answer]]:
        """Run jobs; yield the index and the result of each as soon as it is done.

        A result with `error` says in words what went wrong. Closing the generator, or Ctrl-C,
        interrupts the running jobs.

        Args:
            work: runs a job; a module-level function of RelFrog.
            jobs: its arguments.
        """


@dataclass(frozen=True)
class LocalWorkers:
    """Processes on this machine.

    Attributes:
        count: how many at a time.
        log: file for what they print.
        threads: threads of each.
        grace: seconds that an interrupted job has to end.
    """

    count: int
    log: Path
    threads: int = 1
    grace: float = GRACE
    elsewhere = False

    def run(self, work: Work, jobs: Sequence[Job]) -> Iterator[tuple[int, Answer]]:
        """Run jobs, each in a process of its own; see `Workers.run`."""
        return run_jobs(work, jobs, self.count, self.threads, self.log, self.grace)


@dataclass(frozen=True)
class RayWorkers:
    """The nodes of a Ray cluster.

    Attributes:
        cluster: the cluster.
        log: file for what jobs print.
        threads: cores of each job.
        most: the most jobs at a time, if not as many as there is room for.
    """

    cluster: RayCluster
    log: Path
    threads: int = 1
    most: int | None = None
    elsewhere = True

    @property
    def count(self) -> int:
        """How many jobs fit on the nodes that are alive."""
        fit = sum(node.cpus // self.threads for node in self.cluster.nodes())
        return max(1, fit if self.most is None else min(fit, self.most))

    def run(self, work: Work, jobs: Sequence[Job]) -> Iterator[tuple[int, Answer]]:
        """Run jobs as tasks of Ray; see `Workers.run`.

        What its node takes with it when it dies is given to another one.

        Raises:
            ClusterError: No node has enough cores for a job.
        """
        ray = self.cluster.ray
        self._check_size()
        task = ray.remote(_on_node).options(
            num_cpus=self.threads, max_retries=RETRIES, scheduling_strategy="SPREAD",
            name=f"relfrog {work.__name__}",
        )  # fmt: skip
        here, function = ray.put(versions()), ray.put(work)
        waiting = iter(enumerate(jobs))
        running: dict[Any, int] = {}
        try:
            while True:
                # Nodes come and go: their number is asked each time.
                for number, job in itertools.islice(waiting, max(0, self.count - len(running))):
                    running[task.remote(function, job, self.threads, here)] = number
                if not running:
                    return
                done, _ = ray.wait(list(running), timeout=2.0)
                for reference in done:
                    yield running.pop(reference), self._answer(reference)
        finally:
            self._cancel(list(running))

    def _check_size(self) -> None:
        nodes = self.cluster.nodes()
        most = max((node.cpus for node in nodes), default=0)
        if most < self.threads:
            raise ClusterError(
                f"the largest of the cluster's {len(nodes)} nodes has {most} cores for Ray, and a "
                f"job wants {self.threads}. Take fewer: --set threads={max(1, most)}"
            )

    def _answer(self, reference: Any) -> Answer:
        try:
            answer: Answer = self.cluster.ray.get(reference)
        except self.cluster.ray.exceptions.RayError as error:
            words = " ".join(str(error).split())[:300]
            return {"error": f"a job was given up after {RETRIES + 1} attempts: {words}"}
        printed = answer.pop("printed", "")
        if printed:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write(f"--- {answer['node']}\n{printed}")
        return answer

    def _cancel(self, references: list[Any]) -> None:
        ray = self.cluster.ray
        if not references or not ray.is_initialized():
            return
        for reference in references:
            with contextlib.suppress(Exception):
                ray.cancel(reference)  # Ctrl-C in the job: it leaves something to resume
        with contextlib.suppress(Exception):
            ray.wait(references, num_returns=len(references), timeout=GRACE)


@contextlib.contextmanager
def hired(
    count: int,
    cluster: str | None,
    *,
    log: Path | None = None,
    threads: int = 1,
    most: int | None = None,
    grace: float = BRIEF,
) -> Iterator[Workers | None]:
    """Workers for a while.

    Args:
        count: how many processes on this machine; None are needed for one.
        cluster: the address of a Ray cluster to take instead; see `connect`.
        log: file for what they print; by default it is thrown away.
        threads: threads of each job.
        most: the most jobs at a time on a cluster; by default as many as it has room for.
        grace: seconds that an interrupted job has to end, on this machine; more than a moment is
            for jobs that save where they are.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    log = Path(os.devnull) if log is None else log
    if cluster is not None:
        with connect(cluster) as joined:
            yield RayWorkers(joined, log, threads, most)
    else:
        yield LocalWorkers(count, log, threads, grace) if count > 1 else None


def _on_node(work: Work, job: Job, threads: int, expected: dict[str, str]) -> Answer:
    """Run a job on a node."""
    from threadpoolctl import threadpool_limits

    held, name = io.StringIO(), node_name()
    with contextlib.redirect_stdout(held), contextlib.redirect_stderr(held):
        with threadpool_limits(threads):
            answer = guarded(_checked, {"work": work, "job": job, "expected": expected})
    if "error" in answer:
        answer["error"] = f"on {name}: {answer['error']}"
    return {**answer, "node": name, "printed": held.getvalue()}


def _checked(given: Job) -> Answer:
    """Run a job if this node has the same libraries as the machine that gave it."""
    other = version_differences(versions(), given["expected"])
    if other:
        raise ClusterError(f"it has {other}. {REMEDY}")
    answer: Answer = given["work"](given["job"])
    return answer
