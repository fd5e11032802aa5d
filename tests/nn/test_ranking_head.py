"""Recommendations: scores against loops, lists that keep their word, and no look ahead."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import relfrog
from relfrog import load_run
from relfrog.config import resolve
from relfrog.datasets import source_keys
from relfrog.datasets.label_history import known_labels
from relfrog.datasets.metrics import compute_metrics
from relfrog.datasets.tasks import load_task
from relfrog.errors import RunError, TaskError, UsageError
from relfrog.graph.popularity import ListRequest, Popularity
from relfrog.kinds import MODELS
from relfrog.nn.ranking import draw_rows
from relfrog.nn.ranking_head import RankingHead
from relfrog.runs.train import RunInterrupted
from relfrog.support.files import write_json
from relfrog.training.opened_task import OpenedTask
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds
from small_store import QUICK, TEST, VAL, change, fit, truncate, weights

RANKERS = [m.name for m in MODELS.values() if m.baseline and "recommendation" in m.homes]
PARTS = ("both", "sampled", "towers")


@pytest.fixture(scope="module")
def runs(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, relfrog.Run]:
    """A run of each kind, that tests only look at."""
    folder = tmp_path_factory.mktemp("runs")
    found = {parts: fit(shop, folder / parts, "list", ranking=parts, epochs=2) for parts in PARTS}
    found["sage"] = fit(shop, folder / "sage", "list", model="sage", epochs=2)
    for name in RANKERS:
        found[name] = relfrog.train(shop, "list", folder / name, model=name)
    return found


def prepared_for(shop: Path, **given: Any) -> Prepared:
    dataset = relfrog.open_dataset(shop)
    task = load_task(dataset, "list")
    chosen = resolve(100, settings={"model": "frog", **QUICK, **given}, kind="recommendation")
    return OpenedTask(dataset, task).prepare(chosen)


def stirred(prepared: Prepared) -> tuple[Any, RankingHead]:
    """A network whose weights are all at work."""
    torch.manual_seed(3)
    assert prepared.train_seeds is not None
    network = prepared.network(prepared.describe_labels(prepared.train_seeds))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    assert isinstance(network.head, RankingHead)
    return network.eval(), network.head


# Scores.


def slow_scores(prepared: Prepared, seeds: Seeds) -> tuple[np.ndarray, np.ndarray, Any]:
    """The score of every target for every seed, seed by seed; -inf where it does not exist."""
    network, head = stirred(prepared)
    count = prepared.graph.num_rows[head.target]
    found = np.full((len(seeds), count), -np.inf)
    sampled = np.zeros((len(seeds), count), bool)
    with torch.no_grad():
        for number in range(len(seeds)):
            one = Seeds(seeds.rows[[number]], seeds.times[[number]], None)
            (plan,) = list(prepared.loader(one))
            answers = network(plan, prepared.features).seeds
            tick = int(prepared.graph.ticks(one.times)[0])
            standing = head.popularity.at(tick)
            own = dict(zip(answers.row.tolist(), answers.sampled.tolist(), strict=True))
            for row in range(count):
                if not standing.visible[row]:
                    continue
                score = 0.0 if head.parts != "sampled" or row in own else -np.inf
                if head.parts != "sampled":
                    content = head.columns_of_target(
                        prepared.features[head.target], torch.tensor([row])
                    )
                    vector, bias = head._vectors(content, standing.counts[[row]])
                    score += float((head.seed_tower(answers.seeds) * vector).sum() + bias)
                if head.parts != "towers" and row in own:
                    score += own[row]
                    sampled[number, row] = True
                found[number, row] = score
    return found, sampled, (network, head)


@pytest.mark.parametrize("parts", PARTS)
def test_lists_are_the_best_of_all_targets(parts: str, shop: Path) -> None:
    prepared = prepared_for(shop, ranking=parts)
    seeds = prepared.seeds("test")
    scores, sampled, (network, head) = slow_scores(prepared, seeds)
    (plan,) = list(prepared.loader(seeds))
    with torch.no_grad():
        found = head.batch_predict(
            network(plan, prepared.features).seeds, plan, prepared.features, ListRequest(5)
        ).numpy()
    for number, row in enumerate(found):
        chosen = row[:, 0].astype(int)
        assert len(set(chosen.tolist())) == 5  # distinct, and as many as were asked for
        known = scores[number][np.isfinite(scores[number])]
        best = np.sort(known)[::-1][:5]
        np.testing.assert_allclose(row[: len(best), 1], best, rtol=1e-4, atol=1e-4)
        assert (row[len(best) :, 1] < -1e5).all()  # filled up by what most get
        if parts != "towers":
            assert sampled[number].any()


@pytest.mark.parametrize("parts", PARTS)
def test_lists_from_a_part_of_many_targets(
    parts: str, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of too many targets those asked for most, and those sampled around the seeds."""
    prepared = prepared_for(shop, ranking=parts, neighbors=1)
    every = prepared.seeds("test")
    seeds = Seeds(every.rows[:1], every.times[:1], None)
    scores, _, (network, head) = slow_scores(prepared, seeds)
    (plan,) = list(prepared.loader(seeds))
    monkeypatch.setattr(head, "MAX_TARGETS", 3)
    monkeypatch.setattr(head, "CHUNK_SCORES", 5)
    allowed = np.ones(scores.shape[1], bool)
    banned = int(head.popularity.at(int(prepared.graph.ticks(seeds.times)[0])).order[0])
    allowed[banned] = False
    with torch.no_grad():
        answers = network(plan, prepared.features).seeds
        found = head.batch_predict(
            answers, plan, prepared.features, ListRequest(3, allowed)
        ).numpy()
    near = set(answers.row.tolist())
    for number, tick in enumerate(prepared.graph.ticks(seeds.times).tolist()):
        standing = head.popularity.at(tick)
        top = [row for row in standing.order.tolist() if allowed[row]]
        pool = {*top[:3], *(row for row in top[3:] if row in near)}
        assert len(pool) < len(top), "nothing was left out"
        chosen = found[number, :, 0].astype(int).tolist()
        assert len(set(chosen)) == 3
        assert set(chosen) <= pool
        known = sorted((s for row in pool if np.isfinite(s := scores[number, row])), reverse=True)
        count = min(3, len(known))
        np.testing.assert_allclose(found[number, :count, 1], known[:count], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("most", [3, 1_000_000])
@pytest.mark.parametrize("parts", PARTS)
def test_vectors_that_are_kept_give_the_same_lists(
    parts: str, most: int, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch by batch, whether vectors are computed once for all batches or for each anew."""
    prepared = prepared_for(shop, ranking=parts, neighbors=2, batch_size=2)
    seeds = prepared.seeds("test")
    network, head = stirred(prepared)
    monkeypatch.setattr(head, "MAX_TARGETS", most)
    network.eval()

    def lists() -> list[Any]:
        with torch.no_grad():
            return [
                head.batch_predict(network(plan, prepared.features).seeds, plan, prepared.features)
                for plan in prepared.loader(seeds)
            ]

    alone = lists()
    with head.unchanged():
        kept = lists()
        assert len(head._pools or {}) >= 1
    assert head._pools is None
    assert len(alone) > 1
    assert all(torch.equal(a, b) for a, b in zip(alone, kept, strict=True))


def test_rows_are_drawn_once_from_few_and_from_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relfrog.nn.ranking.MOST_LISTED", 50)
    for rows, number in ((5, 5), (50, 10), (10_000, 300)):
        drawn = draw_rows(rows, number)
        assert len(drawn.unique()) == len(drawn) == number
        assert 0 <= int(drawn.min()) <= int(drawn.max()) < rows


@pytest.mark.parametrize("parts", ["both", "sampled"])
def test_a_seed_carries_a_vector_of_its_own(parts: str, shop: Path) -> None:
    """The mark of ID-GNN: the scores of what is sampled around a seed depend on it."""
    prepared = prepared_for(shop, ranking=parts)
    network, _ = stirred(prepared)
    (plan,) = list(prepared.loader(prepared.seeds("val")))
    network.zero_grad()
    answers = network(plan, prepared.features).seeds
    answers.sampled.square().sum().backward()
    gradient = network.seed_encoder.mark.grad
    assert gradient is not None
    assert float(gradient.abs().max()) > 1e-6
    with torch.no_grad():
        network.seed_encoder.mark.add_(1.0)
        other = network(plan, prepared.features).seeds
    assert not torch.allclose(answers.sampled, other.sampled, atol=1e-3)


@pytest.mark.parametrize("parts", ["both", "towers"])
def test_the_loss_is_a_softmax_over_all_targets(parts: str, shop: Path) -> None:
    prepared = prepared_for(shop, ranking=parts)
    every = prepared.seeds("val")
    scores, _, (network, head) = slow_scores(prepared, every)
    (plan,) = list(prepared.loader(every))
    with torch.no_grad():
        loss = head.batch_loss(
            network(plan, prepared.features).seeds, plan, head.targets(every.labels),
            prepared.features,
        )  # fmt: skip
    expected = []
    for number, labels in enumerate(every.labels):
        own = scores[number]
        total = np.log(np.exp(own[np.isfinite(own)]).sum())
        expected.append(np.mean([total - own[label] for label in labels]))
    assert float(loss) == pytest.approx(float(np.mean(expected)), rel=1e-4)


def test_the_paper_s_loss_is_on_sampled_targets(shop: Path) -> None:
    prepared = prepared_for(shop, ranking="sampled")
    every = prepared.seeds("val")
    scores, sampled, (network, head) = slow_scores(prepared, every)
    (plan,) = list(prepared.loader(every))
    with torch.no_grad():
        loss = head.batch_loss(
            network(plan, prepared.features).seeds, plan, head.targets(every.labels),
            prepared.features,
        )  # fmt: skip
    each = []
    for number, labels in enumerate(every.labels):
        for row in np.flatnonzero(sampled[number]):
            share = 1 / (1 + np.exp(-scores[number, row]))
            each.append(-np.log(share if row in labels else 1 - share))
    assert float(loss) == pytest.approx(float(np.mean(each)), rel=1e-4)


def test_a_sample_of_targets_stands_for_all(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer drawn than there are the loss is an estimate, about the same on average."""
    prepared = prepared_for(shop, ranking="both")
    every = prepared.seeds("val")
    network, head = stirred(prepared)
    (plan,) = list(prepared.loader(every))
    with torch.no_grad():
        answers = network(plan, prepared.features).seeds

        def loss() -> float:
            targets = head.targets(every.labels)
            return float(head.batch_loss(answers, plan, targets, prepared.features))

        whole = loss()
        monkeypatch.setattr(head, "NEGATIVES", 4)
        some = [loss() for _ in range(200)]
    assert np.std(some) > 0
    assert np.mean(some) == pytest.approx(whole, abs=0.25)


def test_metrics_are_those_of_relbench(shop: Path) -> None:
    task = load_task(relfrog.open_dataset(shop), "list")
    table = task.get_table("test", mask_input_cols=False)
    rng = np.random.default_rng(0)
    lists = np.stack([rng.permutation(8)[:3] for _ in range(len(table.df))])
    predicted = np.stack([lists, np.zeros_like(lists)], 2).astype(float)
    ours = compute_metrics("recommendation", table.df[task.target_col].to_numpy(), predicted)
    theirs = task.evaluate(lists, table)
    assert ours["map"] == pytest.approx(theirs["map"])


# Baselines.


def labels_before(shop: Path, time: pd.Timestamp) -> pd.DataFrame:
    """Lists whose windows had closed by then, one row for each entry."""
    dataset = relfrog.open_dataset(shop)
    task = load_task(dataset, "list")
    frame = known_labels(dataset, task, dataset.get_db(upto_test_timestamp=False))
    frame = frame.explode(task.target_col)
    return frame[frame[task.time_col] + task.timedelta <= time]


@pytest.mark.slow
@pytest.mark.parametrize(("split", "time"), [("val", VAL), ("test", TEST)])
def test_past_visits_are_counted(
    split: str, time: pd.Timestamp, shop: Path, runs: dict[str, relfrog.Run]
) -> None:
    run = runs["past-visit"]
    task = run.prepared.task
    seeds = OpenedTask(task.dataset, task).seeds(split)
    found = run.predict_seeds(seeds, None)[:, :, 0]
    before = labels_before(shop, time)
    for row, chosen in zip(seeds.rows, found, strict=True):
        own = Counter(before[before[task.entity_col] == row][task.target_col].tolist())
        best = sorted(own, key=lambda target: (-own[target], target))[:3]
        assert chosen[: len(best)].tolist() == best


@pytest.mark.slow
def test_popularity_is_the_same_for_all(shop: Path, runs: dict[str, relfrog.Run]) -> None:
    """The targets with most labels whose windows had closed, as the paper counts them."""
    run = runs["popularity"]
    found = run.predict_seeds(run.prepared.seeds("test"), None)[:, :, 0]
    assert (found == found[0]).all()
    labels = labels_before(shop, TEST)[run.prepared.task.target_col]
    counts = Counter(labels.tolist())
    best = sorted(counts.values(), reverse=True)[: found.shape[1]]
    assert [counts[int(target)] for target in found[0]] == best


def test_counts_are_kept_within_bounds(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as many times as there are, but as much memory as is given."""
    graph = prepared_for(shop).graph
    popularity = Popularity(graph, "things", 86_400.0)
    size = sum(part.nbytes for part in popularity.at(0))
    monkeypatch.setattr(Popularity, "CACHE_BYTES", 3 * size)
    first = int(graph.ticks(pd.Series([VAL]))[0])
    for tick in range(first, first + 10):
        popularity.at(tick)
    assert 1 <= len(popularity._cache) <= 3


@pytest.mark.slow
def test_a_ranker_bears_many_candidates(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: dict[str, relfrog.Run]
) -> None:
    """Of more than LightGBM can take those that are asked for most."""
    ranker = MODELS["lightgbm"].load("recommendation")
    monkeypatch.setattr(ranker, "POPULAR", 0)
    prepared = prepared_for(shop, model="lightgbm", history="on")
    seeds = prepared.seeds("test")
    assert prepared.train_seeds is not None
    one = ranker(prepared, prepared.describe_labels(prepared.train_seeds))
    limits = prepared.graph.ticks(seeds.times)
    who, rows = one._candidates(np.asarray(seeds.rows), limits)
    assert np.bincount(who).max() > 2
    monkeypatch.setattr(ranker, "OWN", 2)
    few, kept = one._candidates(np.asarray(seeds.rows), limits)
    for number in range(len(seeds)):
        named = one.popularity.at(int(limits[number])).named.numpy()
        own = np.sort(named[rows[who == number]])[::-1][:2]
        assert np.sort(named[kept[few == number]])[::-1].tolist() == own.tolist()


def told_otherwise(monkeypatch: pytest.MonkeyPatch, change: Callable[..., Any]) -> None:
    """Change what LightGBM's ranker learns from: features, labels, candidates per seed."""
    ranker = MODELS["lightgbm"].load("recommendation")
    real = ranker._data
    monkeypatch.setattr(ranker, "_data", lambda self, seeds: change(seeds, *real(self, seeds)))


def test_a_ranker_needs_no_candidates_at_validation(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(seeds: Seeds, x: Any, y: Any, group: Any) -> Any:
        return (x[:0], y[:0], group[:0]) if seeds.times.max() == VAL else (x, y, group)

    told_otherwise(monkeypatch, none)
    run = relfrog.train(shop, "list", tmp_path / "run", model="lightgbm")
    assert np.isfinite(run.metrics["test"]["rolling"]["map"])


def test_what_lightgbm_refuses_is_said(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_otherwise(monkeypatch, lambda seeds, x, y, group: (x, y, group[:-1]))
    with pytest.raises(RunError, match="LightGBM cannot learn"):
        relfrog.train(shop, "list", tmp_path / "run", model="lightgbm")


def test_an_interrupted_ranker_goes_on(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: dict[str, relfrog.Run]
) -> None:
    def interrupt(*_: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MODELS["lightgbm"].load("recommendation"), "fit", interrupt)
        with pytest.raises(RunInterrupted, match="--resume"):
            relfrog.train(shop, "list", tmp_path / "run", model="lightgbm")
    run = relfrog.train(shop, "list", tmp_path / "run", resume=True)
    assert run.metrics == runs["lightgbm"].metrics


def test_all_baselines_stand_beside_a_list(shop: Path, tmp_path: Path) -> None:
    run = fit(shop, tmp_path / "run", "list", epochs=1, baselines=True)
    assert set(run.baselines) == set(RANKERS)
    assert set(run.baselines["lightgbm"]["test"]["frozen"]) == set(run.metrics["test"]["frozen"])


def test_baselines_are_for_recommendations(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="popularity is for recommendations"):
        relfrog.train(store, "buys", tmp_path / "run", model="popularity")
    assert not (tmp_path / "run").exists()


# Runs.


@pytest.mark.parametrize("name", [*PARTS, "sage", *RANKERS])
def test_a_run_keeps_its_word(name: str, shop: Path, runs: dict[str, relfrog.Run]) -> None:
    """Saved and loaded, same scores and lists; every list is complete and in order."""
    again = load_run(runs[name].folder)
    for split in ("val", "test"):
        # One seed time per split: the regimes are one.
        assert again.metrics[split]["frozen"] == again.metrics[split]["rolling"]
        assert again.evaluate(split, "frozen") == again.metrics[split]["frozen"]
    frame = again.predict()
    pd.testing.assert_frame_equal(frame, runs[name].predict())
    assert list(frame) == ["code", "time", "rank", "id", "score"]
    for _, own in frame.groupby("code"):
        assert own["rank"].tolist() == [1, 2, 3]
        assert own["id"].is_unique
        assert own["score"].is_monotonic_decreasing


@pytest.mark.parametrize("name", [*PARTS, *RANKERS])
def test_wishes_are_met(name: str, shop: Path, runs: dict[str, relfrog.Run]) -> None:
    run = runs[name]
    everyone = run.predict(TEST)["code"].unique()
    assert len(run.predict(TEST, k=1)) == len(everyone)
    # More than there are: all of them.
    assert len(run.predict(TEST, k=100)) == 8 * len(everyone)
    some = run.predict(TEST, ["P19", "P03", "P19"], k=2, targets=[7, 2, 5])
    assert some["code"].tolist() == ["P19", "P19", "P03", "P03", "P19", "P19"]
    assert set(some["id"]) <= {7, 2, 5}
    orders = pd.read_parquet(shop / "db" / "orders.parquet")
    orders = orders[orders["ordered_at"] <= TEST]
    people, things = (source_keys(shop, t) for t in ("people", "things"))
    known = {
        (people["code"][int(p)], things["id"][int(t)])
        for p, t in zip(orders["person"], orders["thing"], strict=True)
        if pd.notna(p) and pd.notna(t)
    }
    fresh = run.predict(TEST, k=8, exclude_known=True)
    shown = set(zip(fresh["code"], fresh["id"], strict=True))
    assert not shown & known
    assert len(shown | known) == 8 * len(everyone)


def test_wishes_that_cannot_be(store: Path, runs: dict[str, relfrog.Run], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="k must be 1 or more"):
        runs["both"].predict(k=0)
    with pytest.raises(TaskError, match="not in table things"):
        runs["both"].predict(targets=[99])
    with pytest.raises(UsageError, match="sharing must be separate"):
        resolve(10, settings={"sharing": "shared"}, kind="recommendation")
    run = fit(store, tmp_path / "run", epochs=1)
    with pytest.raises(UsageError, match="for recommendations only"):
        run.predict(k=3)


@pytest.mark.parametrize("name", ["both", "past-visit", "lightgbm"])
def test_lists_know_nothing_of_the_future(
    name: str, shop: Path, runs: dict[str, relfrog.Run], tmp_path: Path
) -> None:
    changed = Path(shutil.copytree(shop, tmp_path / "copy"))
    truncate(changed, TEST)
    out = Path(shutil.copytree(runs[name].folder, tmp_path / "run"))
    write_json(out / "run.json", {**runs[name].about, "dataset": str(changed)})
    here, there = runs[name].predict(TEST), load_run(out).predict(TEST)
    pd.testing.assert_frame_equal(here, there)


def test_same_seed_same_lists(shop: Path, tmp_path: Path) -> None:
    first, second = (fit(shop, tmp_path / name, "list", epochs=1) for name in "ab")
    assert weights(first.folder) == weights(second.folder)
    assert first.metrics == second.metrics


# Awkward data.


def test_before_any_order(shop: Path, runs: dict[str, relfrog.Run]) -> None:
    """Nobody has a history: what there is is recommended all the same."""
    for name in (*PARTS, *RANKERS):
        frame = runs[name].predict("2019-12-31")
        assert len(frame)
        assert (frame.groupby("code")["id"].nunique() == 3).all()


@pytest.mark.slow
def test_targets_that_do_not_exist_yet(shop: Path, tmp_path: Path) -> None:
    """With a time column of their own, things are recommended from then on, and not before."""
    changed = Path(shutil.copytree(shop, tmp_path / "copy"))
    born = pd.to_datetime(["2020-01-01"] * 4 + ["2020-09-15"] * 2 + ["2020-12-30"] * 2)
    change(changed, "things", lambda frame: frame.assign(born=born))
    path = changed / "manifest.yaml"
    text = path.read_text(encoding="utf-8")
    at = text.index("things:")
    place = text.index("time_col:", at)
    end = text.index("\n", place)
    path.write_text(text[:place] + "time_col: born" + text[end:], encoding="utf-8")
    for split in ("train", "val", "test"):  # nor are labels about what did not exist
        (changed / "tasks" / "list" / f"{split}.parquet").unlink()
    for name in ("both", "sampled", "popularity", "past-visit", "lightgbm"):
        given = {"model": name} if name in RANKERS else {"ranking": name, "epochs": 1}
        run = fit(changed, tmp_path / name, "list", **given)
        for time, most in ((TEST, 6), ("2020-06-01", 4), ("2019-06-01", 0)):
            frame = run.predict(time, k=8)
            keys = frame.groupby("code")["id"].nunique()
            assert set(frame["id"]) <= set(range(1, most + 1))
            assert (keys == most).all()


@pytest.mark.slow
def test_auto_recommends_with_the_best(shop: Path, tmp_path: Path) -> None:
    """A single member, that with the best validation; the rest are shown."""
    given = {**QUICK, "epochs": 1}
    run = relfrog.train(shop, "list", tmp_path / "auto", model="auto", settings=given)
    scores = {name: m["val"]["rolling"]["map"] for name, m in run.blend["members"].items()}
    assert set(scores) == {*RANKERS, "frog"}
    (best,) = run.blend["weights"]
    assert scores[best] == max(scores.values()) == run.metrics["val"]["rolling"]["map"]
    assert load_run(run.folder).predict(TEST, k=2).groupby("code").size().max() == 2
