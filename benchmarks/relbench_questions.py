"""RelBench's tasks asked in words: the same labels as their SQL, on made-up rows of its databases.

    python benchmarks/relbench_questions.py --out benchmarks/relbench-questions.json

For every task of the six databases of the paper this holds the question, or why there is none. Both
are run at some seed times on a small database of the same schema, and their labels compared. Rows
of RelBench about entities that do not exist yet at that time are set apart: a question never asks
about them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from paper_databases import NAMES, read_schema, write
from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.labels import run_sql
from relfrog.datasets.tasks import load_task
from relfrog.queries.new_task import plan_query

#: How large each database is made, in parts of its size.
SCALES = {
    "rel-avito": 5e-3, "rel-event": 2e-2, "rel-f1": 1.0, "rel-hm": 2e-3, "rel-stack": 5e-3,
    "rel-trial": 2e-2,
}  # fmt: skip
#: The question of each task; None where the language cannot say it.
QUESTIONS: dict[str, str | None] = {
    "rel-f1/driver-dnf": "PREDICT COUNT(results.* WHERE results.statusId != 1, 0, 30, days) > 0 "
    "FOR EACH drivers.driverId ASSUMING COUNT(results.*, 0, 30, days) > 0",
    "rel-f1/driver-top3": "PREDICT MIN(qualifying.position, 0, 30, days) <= 3 "
    "FOR EACH drivers.driverId",
    "rel-f1/driver-position": "PREDICT AVG(results.positionOrder, 0, 60, days) "
    "FOR EACH drivers.driverId",
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
#: Why there is no question.
REASONS = {
    "rel-trial/site-success": "an average over trials of what is first aggregated per trial: "
    "aggregations cannot be nested",
}


def compare(name: str, folder: Path) -> list[dict[str, Any]]:
    """Compare question and SQL of each task of a database.

    Returns:
        One record per task: the question, how many labels both have, and whether they agree.
    """
    dataset = open_dataset(folder)
    db = dataset.get_db(upto_test_timestamp=False)
    records = []
    for task_name in read_schema(name).tasks:
        place = f"{name}/{task_name}"
        question = QUESTIONS[place]
        if question is None:
            records.append({"task": place, "question": None, "why": REASONS[place]})
            continue
        task = load_task(dataset, task_name, regenerate=True)
        (compiled,), (horizon,) = (
            (plan := plan_query(dataset, question)).compiled, plan.horizons,
        )  # fmt: skip
        times = [dataset.val_timestamp - n * task.timedelta for n in range(4)]
        times.append(dataset.test_timestamp)
        theirs = _labels(run_sql(str(task.sql), db, times, task.timedelta), task.time_col,
                         task.entity_col, task.target_col)  # fmt: skip
        ours = _labels(run_sql(compiled.sql, db, times, task.timedelta), "timestamp",
                       compiled.entity, compiled.label)  # fmt: skip
        born = _born(db, task.entity_table)
        early = {key for key in theirs if born is not None and not born[key[1]] <= key[0]}
        known = {key: label for key, label in theirs.items() if key not in early}
        records.append(
            {
                "task": place, "question": question, "labels": len(known),
                "not_there_yet": len(early), "different_labels": len(set(known.values())),
                "same": ours == known and horizon == task.timedelta,
            }
        )  # fmt: skip
    return records


def _labels(frame: pd.DataFrame, time: str, entity: str, label: str) -> dict[Any, Any]:
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
    options = parser.parse_args()
    records = []
    for name in [options.only] if options.only else NAMES:
        with tempfile.TemporaryDirectory() as folder:
            write(name, Path(folder) / name, SCALES[name])
            records += compare(name, Path(folder) / name)
    for record in records:
        print(json.dumps({k: v for k, v in record.items() if k != "question"}))
    if options.out is not None:
        command = f"python benchmarks/relbench_questions.py --out {options.out}"
        options.out.write_text(json.dumps({"command": command, "tasks": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
