"""Workers that are threads of one process and take turns: the quickest group to test with."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor

from relfrog.training.collective import Collective


class _Table:
    """Where workers put what they say; only one of them runs at a time."""

    def __init__(self, size: int) -> None:
        self.turn = threading.Condition()
        self.size, self.round = size, 0
        self.given: dict[int, Any] = {}
        self.taken: list[Any] = []
        self.failed: BaseException | None = None


class Lockstep(Collective):
    """One of several workers in one process.

    Random numbers are those of the whole process: a worker goes on until it has to wait for the
    others, and whoever runs next finds them in whatever state they are.
    """

    def __init__(self, rank: int, table: _Table) -> None:
        self.rank, self.size, self._table = rank, table.size, table

    def collect(self, thing: Any) -> list[Any]:
        # Copies: workers of other processes have no tensors in common either.
        table = self._table
        table.given[self.rank] = copy.deepcopy(thing)
        if len(table.given) == self.size:
            table.taken = [table.given[rank] for rank in range(self.size)]
            table.given, table.round = {}, table.round + 1
            table.turn.notify_all()
            return copy.deepcopy(table.taken)
        here = table.round
        while table.round == here and table.failed is None:
            table.turn.wait()
        if table.failed is not None:
            raise table.failed
        return copy.deepcopy(table.taken)

    def share(self, thing: Any) -> Any:
        return self.collect(thing)[0]

    def add(self, values: Tensor) -> None:
        found = self.collect(values.clone())
        values.copy_(sum(found[1:], found[0]))


def together(size: int, work: Callable[[Collective], Any]) -> list[Any]:
    """What each of so many workers returns."""
    table = _Table(size)
    done: dict[int, Any] = {}

    def run(rank: int) -> None:
        with table.turn:
            try:
                done[rank] = work(Lockstep(rank, table))
            except BaseException as error:
                table.failed = table.failed or error
            table.turn.notify_all()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if table.failed is not None:
        raise table.failed
    return [done[rank] for rank in range(size)]
