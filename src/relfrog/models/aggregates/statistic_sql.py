"""Statistics of a stream's measures as SQL over cumulative sums; see `Aggregator`."""

from __future__ import annotations

from relfrog.models.aggregates.streams import FADING, LAGS, Measure

__all__ = ["statistic_sql"]


def statistic_sql(stat: str, number: int, measure: Measure) -> str:
    """SQL for a statistic, from the cumulative sums of the latest row and of a prefix."""
    center = repr(0.0 if measure.level >= 0 else _center(measure))

    def over(low: str | None) -> tuple[str, str]:
        if low is None:
            return f"h.n{number}", f"h.s{number}"
        return tuple(f"(h.{c}{number} - coalesce({low}.{c}{number}, 0))" for c in "ns")  # type: ignore[return-value]

    def mean(low: str | None) -> str:
        n, s = over(low)
        return f"(CASE WHEN {n} > 0 THEN {s} / {n} + {center} END)"

    lows = {
        "mean": None, "mean of last 3": "b3", "mean of last 10": "b10", "mean in 1": "w1",
        "mean in 3": "w2", "mean in 12": "w3",
    }  # fmt: skip
    if stat in lows:
        return mean(lows[stat])
    if stat in ("last", "min", "max"):
        return f"h.{'v' if stat == 'last' else stat}{number} + {center}"
    if stat in ("sum", "sum in 3"):
        n, s = over("w2" if stat == "sum in 3" else None)
        return f"CASE WHEN {n} > 0 THEN {s} + {n} * {center} END"
    if stat == "trend":
        return f"{mean('b3')} - {mean('b10')}"
    if stat == "recent trend":
        return f"{mean('w2')} - {mean('w3')}"
    if stat in LAGS:
        return f"b{LAGS.index(stat) + 1}.v{number} + {center}"
    if stat in FADING:
        return f"h.{stat.split()[0]}_{number} + {center}"
    if stat == "streak":
        return f"h.streak{number}"
    assert stat == "std", stat
    n, s = over(None)
    return (
        f"CASE WHEN {n} > 1 THEN sqrt(greatest(h.q{number} / {n} - ({s} / {n}) * ({s} / {n}), 0)) "
        "END"
    )


def _center(measure: Measure) -> float:
    """The centre of a measure; moments and siblings are relative already."""
    relative = measure.encoded.kind == "moment" or measure.beside is not None
    return 0.0 if relative else measure.encoded.center
