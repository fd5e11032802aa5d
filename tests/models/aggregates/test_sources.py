"""Where features come from: the rows behind a feature give its value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relfrog import Run
from relfrog.models.aggregates.features import FeatureMaker
from relfrog.models.aggregates.sources import CALENDAR, feature_sources
from relfrog.models.aggregates.streams import WINDOWS
from relfrog.models.boosting import BoostedTrees
from small_store import fit


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(store, tmp_path_factory.mktemp("sources") / "run", model="lightgbm", trials=1)


def test_the_rows_of_a_feature_give_its_value(run: Run) -> None:
    """Counts, means, sums and the like, computed again from the rows that are named."""
    model = run.model
    assert isinstance(model, BoostedTrees)
    maker = FeatureMaker(model.prepared, model.labels, tried=True)
    assert {"streaks", "peers", "windows"} <= {*maker.families}
    seeds = run.prepared.seeds("test")
    limits = model.limits(seeds, None)
    x = maker.make(seeds.rows, limits, seeds.times)
    again = {
        "last": lambda v: v[-1], "mean": np.nanmean, "sum": np.nansum, "min": np.nanmin,
        "max": np.nanmax, "second": lambda v: v[-1], "third": lambda v: v[-1],
    }  # fmt: skip
    checked = 0
    for number in range(0, len(seeds), 5):
        row, limit = int(seeds.rows[number]), int(limits[number])
        sources = feature_sources(maker, row, limit)
        assert len(sources) == len(maker.names)
        at = len(sources) - sum(len(a.features) for a in maker.plan.anchors)
        for stream in (stream for anchor in maker.plan.anchors for stream in anchor.streams):
            some = sources[at : at + len(stream.features)]
            values = x[number, at : at + len(stream.features)]
            at += len(stream.features)
            for place in range((1 + len(WINDOWS)) * stream.counted):
                assert len(some[place].rows) == values[place]
            for source in some:
                assert (maker.effective(stream.table)[source.rows] <= limit).all()
            place = (4 + len(WINDOWS)) * stream.counted + 2 * stream.ages
            for measure in stream.measures:
                numbers = dict(maker._arrays[measure.encoded.table])[measure.encoded]
                for stat in measure.stats:
                    source, value = some[place], values[place]
                    place += 1
                    plain = measure.via is None and measure.level < 0 and measure.beside is None
                    word = stat.split(" ")[0]
                    if not plain or word not in again or measure.encoded.kind == "moment":
                        continue
                    mine = numbers[source.rows] + measure.encoded.center
                    if not len(mine) or np.isnan(mine).all():
                        assert np.isnan(value), stat
                    else:
                        expected = again[word](mine)
                        assert value == pytest.approx(expected, rel=1e-4, abs=1e-4, nan_ok=True)
                        checked += 1
    assert checked > 300


def test_words_are_of_tables_and_columns(run: Run) -> None:
    model = run.model
    assert isinstance(model, BoostedTrees)
    maker = FeatureMaker(model.prepared, model.labels, tried=True)
    words = [source.words for source in feature_sources(maker, 3, 2**62)]
    assert len(set(words)) > 0.95 * len(words)
    wanted = {
        "people.age", "age of the row of people in days", "number of orders",
        "number of orders over the last horizon", "mean of orders.amount over the last 12 horizons",
        "latest orders.channel", "horizons since the latest orders", "sum of earlier labels",
        "latest earlier label", "mean of reviews.stars", "number of reviews of its orders",
        "number of different things of orders (thing)", "month of the prediction",
        "share of orders.channel = web", "mean of things.price of orders.thing",
        "second latest earlier label", "horizons since the third latest earlier label",
        "mean of orders.amount over the last 10 orders",
        "how often in a row orders.channel = web (if negative, how often not)",
        "trend of orders.amount (the last 3 horizons against the last 12)",
        "mean of earlier labels over the last 3 horizons of the people of the things of its latest "
        "orders (thing)",
    }  # fmt: skip
    assert wanted <= set(words)
    tables = {source.table for source in feature_sources(maker, 3, 2**62)}
    assert tables <= {*run.prepared.graph.num_rows, CALENDAR}
