"""Ways along foreign keys, from the rows that are counted to the entity that they belong to."""

from __future__ import annotations

from dataclasses import dataclass

from relfrog.queries.schema import ForeignKey, QuerySchema

__all__ = ["Step", "find_paths", "parent_paths"]

#: The longest way, in foreign keys.
LONGEST = 4


@dataclass(frozen=True)
class Step:
    """One foreign key on the way: up to the row that is named, or down to rows that name one."""

    key: ForeignKey
    up: bool = True

    @property
    def source(self) -> str:
        """The table it leaves."""
        return self.key.table if self.up else self.key.parent

    @property
    def goal(self) -> str:
        """The table it leads to."""
        return self.key.parent if self.up else self.key.table


Path = tuple[Step, ...]


def parent_paths(
    schema: QuerySchema, start: str, goal: str, through: tuple[ForeignKey, ...] = ()
) -> list[Path]:
    """The shortest ways up from a table to one that its rows name, each row at most one row.

    Args:
        schema: The tables.
        start: Where to begin.
        goal: Where to end; if it is the same table, by a key of it to itself.
        through: Keys that the way must use.

    Returns:
        All ways of the least length; none if there is no way.
    """
    return _shortest(schema, start, goal, through, downs=0)


def find_paths(
    schema: QuerySchema,
    start: str,
    goal: str,
    through: tuple[ForeignKey, ...] = (),
    without: str | None = None,
) -> list[Path]:
    """The shortest ways from a table to another: up, or if there is none, with one step down.

    One step down leads through a table that joins both: a row may then belong to several entities.

    Args:
        schema: The tables.
        start: The table whose rows are counted.
        goal: The table of the entities.
        through: Keys that the way must use.
        without: A column of the first table that the way must not begin with.
    """
    for downs in (0, 1):
        found = _shortest(schema, start, goal, through, downs, without)
        if found:
            return found
    return []


def _shortest(
    schema: QuerySchema,
    start: str,
    goal: str,
    through: tuple[ForeignKey, ...],
    downs: int,
    without: str | None = None,
) -> list[Path]:
    """All ways of the least length that use so many steps down, and the given keys."""
    children: dict[str, list[ForeignKey]] = {}
    for table in schema.tables.values():
        for key in table.fkeys.values():
            children.setdefault(key.parent, []).append(key)
    reached: list[Path] = [()]
    for _ in range(LONGEST):
        longer: list[Path] = []
        for path in reached:
            at = path[-1].goal if path else start
            left = downs - sum(not step.up for step in path)
            steps = [Step(key) for key in schema.tables[at].fkeys.values()]
            if left:
                steps += [Step(key, False) for key in children.get(at, ())]
            for step in steps:
                if any(step.key == other.key for other in path):
                    continue
                if not path and step.key.column == without:
                    continue
                longer.append((*path, step))
        found = [
            path
            for path in longer
            if path[-1].goal == goal
            and sum(not step.up for step in path) == downs
            and all(any(step.key == key for step in path) for key in through)
        ]
        if found:
            return found
        reached = longer[:5_000]
    return []
