"""RelBench's tasks asked in words: the same labels as its own SQL.

    python benchmarks/relbench_questions.py --out benchmarks/relbench-questions.json
    python benchmarks/relbench_questions.py --wheel relbench-2.1.2-py3-none-any.whl --real DATA

For every task of the six databases of the paper this holds the question, or why there is none. The
question and RelBench's code, which is read from a wheel of RelBench (by default downloaded), label
the same rows: made-up ones in the schemas of the paper, and with --real those of a folder that
holds rel-f1 and travel-exchange, a database with rel-stack's tables. Seed times are as in RelBench:
several at once for training, validation and test alone. Labels of RelBench about entities that do
not exist yet at that time are set apart: a question never asks about them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from paper_databases import NAMES, read_schema, write
from relbench_sql import VERSION, PublishedTask, open_wheel, published_tasks
from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.labels import run_sql
from relfrog.datasets.tasks import load_task
from relfrog.queries.new_task import plan_query

#: How large each database is made, in parts of its size.
SCALES = {
    "rel-avito": 5e-3, "rel-event": 5e-2, "rel-f1": 1.0, "rel-hm": 5e-3, "rel-stack": 1e-2,
    "rel-trial": 2e-2,
}  # fmt: skip
#: Seed times of training that are compared: of rel-f1, which is small, many years of them.
TIMES = dict.fromkeys(SCALES, 6) | {"rel-f1": 120}
#: The question of each task; None where the language cannot say it.
QUESTIONS: dict[str, str | None] = {
    "rel-f1/driver-dnf": "PREDICT COUNT(results.* WHERE results.statusId != 1, 0, 30, days) > 0 "
    "FOR EACH drivers.driverId ASSUMING COUNT(results.*, 0, 30, days) > 0",
    "rel-f1/driver-top3": "PREDICT MIN(qualifying.position, 0, 30, days) <= 3 "
    "FOR EACH drivers.driverId",
    "rel-f1/driver-position": "PREDICT AVG(results.positionOrder, 0, 60, days) "
    "FOR EACH drivers.driverId",
    "rel-f1/driver-circuit-compete": "PREDICT LIST_DISTINCT(races.circuitId VIA results.raceId, "
    "0, 365, days) RANK TOP 10 FOR EACH drivers.driverId",
    "rel-hm/user-churn": "PREDICT COUNT(transactions.*, 0, 7, days) = 0 "
    "FOR EACH customer.customer_id WHERE COUNT(transactions.*, -7, 0, days) > 0",
    "rel-hm/item-sales": "PREDICT SUM(transactions.price, 0, 7, days) FOR EACH article.article_id",
    "rel-hm/user-item-purchase": "PREDICT LIST_DISTINCT(transactions.article_id, 0, 7, days) "
    "RANK TOP 12 FOR EACH customer.customer_id",
    "rel-stack/user-engagement": "PREDICT COUNT(posts.*, 0, 91, days) > 0 "
    "OR COUNT(votes.*, 0, 91, days) > 0 OR COUNT(comments.*, 0, 91, days) > 0 FOR EACH users.Id "
    "WHERE COUNT(posts.*, -INF, 0) > 0 OR COUNT(votes.*, -INF, 0) > 0 "
    "OR COUNT(comments.*, -INF, 0) > 0",
    "rel-stack/user-badge": "PREDICT COUNT(badges.*, 0, 91, days) > 0 FOR EACH users.Id",
    "rel-stack/post-votes": "PREDICT COUNT(votes.* WHERE votes.VoteTypeId = 2, 0, 91, days) "
    "FOR EACH posts.Id WHERE posts.OwnerUserId IS NOT NULL AND posts.PostTypeId = 1",
    "rel-stack/user-post-comment": "PREDICT LIST_DISTINCT(comments.PostId "
    "WHERE posts.OwnerUserId IS NOT NULL, 0, 91, days) RANK TOP 100 FOR EACH users.Id",
    "rel-stack/post-post-related": "PREDICT LIST_DISTINCT(postLinks.RelatedPostId, 0, 91, days) "
    "RANK TOP 100 FOR EACH posts.Id",
    "rel-avito/user-visits": "PREDICT COUNT_DISTINCT(VisitStream.AdID, 0, 4, days) > 1 "
    "FOR EACH UserInfo.UserID ASSUMING COUNT(VisitStream.*, 0, 4, days) > 0",
    "rel-avito/user-clicks": "PREDICT COUNT(SearchStream.AdID WHERE SearchStream.IsClick = 1, 0, "
    "4, days) > 1 FOR EACH UserInfo.UserID ASSUMING COUNT(SearchInfo.*, 0, 4, days) > 0",
    "rel-avito/ad-ctr": "PREDICT SUM(SearchStream.IsClick, 0, 4, days) / "
    "COUNT(SearchStream.SearchID, 0, 4, days) FOR EACH AdsInfo.AdID "
    "ASSUMING SUM(SearchStream.IsClick, 0, 4, days) > 0",
    "rel-avito/user-ad-visit": "PREDICT LIST_DISTINCT(VisitStream.AdID, 0, 4, days) RANK TOP 12 "
    "FOR EACH UserInfo.UserID",
    "rel-event/user-repeat": "PREDICT COUNT(event_attendees.* WHERE event_attendees.status "
    "IN ('yes', 'maybe'), 0, 7, days) > 0 FOR EACH users.user_id "
    "WHERE COUNT(event_attendees.* WHERE event_attendees.status IN ('yes', 'maybe'), -14, 0, days) "
    "> 0 ASSUMING COUNT(event_attendees.*, 0, 7, days) > 0",
    "rel-event/user-ignore": "PREDICT COUNT(event_attendees.* WHERE event_attendees.status = "
    "'invited', 0, 7, days) > 2 FOR EACH users.user_id "
    "ASSUMING COUNT(event_attendees.*, 0, 7, days) > 0",
    "rel-event/user-attendance": "PREDICT COUNT(event_attendees.* WHERE event_attendees.status "
    "IN ('yes', 'maybe'), 0, 7, days) FOR EACH users.user_id "
    "ASSUMING COUNT(event_attendees.*, 0, 7, days) > 0",
    "rel-trial/study-outcome": "PREDICT MIN(outcome_analyses.p_value WHERE "
    "outcome_analyses.p_value BETWEEN 0 AND 1 AND (outcome_analyses.p_value_modifier IS NULL OR "
    "outcome_analyses.p_value_modifier != '>') AND outcomes.outcome_type = 'Primary', 0, 365, "
    "days) <= 0.05 FOR EACH studies.nct_id",
    "rel-trial/study-adverse": "PREDICT SUM(reported_event_totals.subjects_affected "
    "WHERE reported_event_totals.event_type IN ('serious', 'deaths'), 0, 365, days) "
    "FOR EACH studies.nct_id ASSUMING COUNT(reported_event_totals.subjects_affected "
    "WHERE reported_event_totals.event_type IN ('serious', 'deaths'), 0, 365, days) > 0",
    "rel-trial/site-success": None,
    "rel-trial/condition-sponsor-run": "PREDICT LIST_DISTINCT(sponsors_studies.sponsor_id, 0, "
    "365, days) RANK TOP 10 FOR EACH conditions.condition_id",
    "rel-trial/site-sponsor-run": "PREDICT LIST_DISTINCT(sponsors_studies.sponsor_id, 0, 365, "
    "days) RANK TOP 10 FOR EACH facilities.facility_id",
}
#: Why there is no question, or not the same labels.
REASONS = {
    "rel-trial/site-success": "an average over trials of what is first aggregated per trial: "
    "aggregations cannot be nested",
    "rel-event/user-repeat": 'for training RelBench looks at "the last two seed times at which the '
    'user had any event", which depends on the grid of seed times; at validation and test, which '
    "have one time each, that is the last 14 days, as in the question",
}
#: Databases with real rows, and the one of the paper whose tables they have.
REAL = {"rel-f1": "rel-f1", "travel-exchange": "rel-stack"}

Labels = dict[tuple[pd.Timestamp, int], Any]


def compare(
    name: str, folder: Path, published: dict[str, PublishedTask] | None = None
) -> list[dict[str, Any]]:
    """Compare the questions about a database with SQL.

    Args:
        name: The database of the paper.
        folder: A dataset folder with its tables.
        published: RelBench's own tasks; without them, the SQL of the schema, which is ours.

    Returns:
        One record per task: the question, how many labels both have, and whether they agree.
    """
    dataset = open_dataset(folder)
    db = dataset.get_db(upto_test_timestamp=False)
    records = []
    for place in published if published is not None else _own_tasks(name):
        question = QUESTIONS[place]
        if question is None:
            records.append({"task": place, "question": None, "why": REASONS[place]})
            continue
        (compiled,), (horizon,) = (
            (plan := plan_query(dataset, question)).compiled, plan.horizons,
        )  # fmt: skip
        val, test = dataset.val_timestamp, dataset.test_timestamp
        splits = {"train": [val - n * horizon for n in range(TIMES[name], 0, -1)], "val": [val],
                  "test": [test]}  # fmt: skip
        differs = {}
        labels, values, early = 0, set(), 0
        for split, times in splits.items():
            if published is not None:
                theirs, same_horizon, table = _published_labels(published[place], db, times)
            else:
                theirs, same_horizon, table = _own_labels(dataset, place, db, times)
            assert same_horizon == horizon, place
            ours = _labels(run_sql(compiled.sql, db, times, horizon), "timestamp",
                           compiled.entity, compiled.label)  # fmt: skip
            born = _born(db, table)
            known = {k: v for k, v in theirs.items() if born is None or born[k[1]] <= k[0]}
            early += len(theirs) - len(known)
            labels += len(known)
            values |= set(known.values())
            found = {
                "only_relbench": len(known.keys() - ours.keys()),
                "only_question": len(ours.keys() - known.keys()),
                "different": sum(known[k] != ours[k] for k in known.keys() & ours.keys()),
            }
            if any(found.values()):
                differs[split] = found
        record = {
            "task": place, "question": question, "labels": labels, "not_there_yet": early,
            "different_labels": len(values), "same": not differs,
        }  # fmt: skip
        if differs:
            record |= {"differs": differs, "why": REASONS.get(place, "")}
        records.append(record)
    return records


def _own_tasks(name: str) -> list[str]:
    return [f"{name}/{task}" for task in read_schema(name).tasks]


def _published_labels(
    task: PublishedTask, db: Any, times: list[pd.Timestamp]
) -> tuple[Labels, pd.Timedelta, str]:
    frame = task.labels(db, times)
    return _labels(frame, task.time, task.entity, task.target), task.horizon, task.table


def _own_labels(
    dataset: Any, place: str, db: Any, times: list[pd.Timestamp]
) -> tuple[Labels, pd.Timedelta, str]:
    task = load_task(dataset, place.partition("/")[2], regenerate=True)
    frame = run_sql(str(task.sql), db, times, task.timedelta)
    labels = _labels(frame, task.time_col, task.entity_col, task.target_col)
    return labels, task.timedelta, str(task.entity_table)


def _labels(frame: pd.DataFrame, time: str, entity: str, label: str) -> Labels:
    """Labels by time and entity; NULL ones are none."""
    frame = frame.dropna(subset=[entity])
    values = [
        tuple(sorted(v)) if hasattr(v, "__len__") else round(float(v), 9) for v in frame[label]
    ]
    keys = zip(pd.to_datetime(frame[time]), frame[entity].astype(int), strict=True)
    return {k: v for k, v in zip(keys, values, strict=True) if v == v}


def _born(db: Any, table: str) -> dict[int, pd.Timestamp] | None:
    """When each row of a table came to be; None if it was always there."""
    found = db.table_dict[table]
    if found.time_col is None:
        return None
    return dict(
        zip(found.df[found.pkey_col], pd.to_datetime(found.df[found.time_col]), strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--wheel", type=Path, help=f"of RelBench, or its folder; {VERSION} is "
                        "downloaded by default")  # fmt: skip
    parser.add_argument("--real", type=Path, help=f"a folder with {' and '.join(REAL)}")
    options = parser.parse_args()
    records = []
    with open_wheel(options.wheel) as wheel, tempfile.TemporaryDirectory() as folder:
        (version,) = (p.stem.partition("-")[2] for p in wheel.glob("relbench-*.dist-info"))
        for name in [options.only] if options.only else NAMES:
            place = write(name, Path(folder) / name, SCALES[name])
            for record in compare(name, place, published_tasks(wheel, name)):
                records.append({**record, "rows": "made up"})
        for real, name in REAL.items() if options.real else ():
            if options.only in (None, name):
                tasks = published_tasks(wheel, name)
                for record in compare(name, options.real / real, tasks):
                    records.append({**record, "rows": real})
    for record in records:
        print(json.dumps({k: v for k, v in record.items() if k != "question"}))
    if options.out is not None:
        command = "python benchmarks/relbench_questions.py --out benchmarks/relbench-questions.json"
        command += " --real DATA" if options.real else ""
        result = {"command": command, "relbench": version, "tasks": records}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
