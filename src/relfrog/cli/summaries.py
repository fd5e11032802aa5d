"""What the commands say at their end, as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relfrog.cli.import_tables import alike, mapping_tables, split_line
from relfrog.cli.terminal import ROLE_STYLES, styled, table, wrapped
from relfrog.kinds import MODELS
from relfrog.support.text import counted, number, percent

if TYPE_CHECKING:
    from relfrog.analysis.explanation import Explanation
    from relfrog.datasets.checks import CheckReport
    from relfrog.datasets.new_task import AddedTask
    from relfrog.importing.mapping import Notice
    from relfrog.importing.result import ImportResult
    from relfrog.runs.population import Population

__all__ = [
    "check_lines", "explanation", "import_summary", "inspection", "member_note", "notice_lines",
    "population_words", "role_table", "run_summary", "score_table", "task_summary",
]  # fmt: skip

_HEADINGS = {
    "changed": "Changed",
    "left out": "Left out",
    "suggestion": "Suggested, not used",
    "leak": "May leak",
    "note": "Worth knowing",
}
#: Notices of one kind that are shown; all of them are in import.json.
_MOST = 25
#: The places that one line names.
_MOST_PLACES = 12


def notice_lines(notices: Sequence[Notice]) -> Iterator[str]:
    """Notices under their headings."""
    for kind, heading in _HEADINGS.items():
        found: dict[str, list[Notice]] = {}  # many tables often have the same thing said of them
        for notice in notices:
            if notice.kind == kind:
                found.setdefault(notice.text, []).append(notice)
        if not found:
            continue
        yield styled(f"{heading}:", "bold yellow" if kind in ("changed", "leak") else "bold")
        lines = list(alike(list(found.values())) if kind != "suggestion" else found.values())
        for group in lines[:_MOST]:
            places = [notice.place for notice in group]
            shown = ", ".join(places[:_MOST_PLACES])
            if len(places) > _MOST_PLACES:
                shown += f" and {len(places) - _MOST_PLACES} more"
            text = group[0].text
            if any(notice.text != text for notice in group):
                text = f"{text} (and alike)"
            yield wrapped(f"{shown}: {text}".removeprefix(": "), "  ")
        if len(lines) > _MOST:
            yield f"  and {len(lines) - _MOST} more, all in import.json"


def import_summary(result: ImportResult, tasks: Mapping[str, str] | None = None) -> str:
    """The end of an import: tables, keys, notices, times, and the next command.

    Args:
        result: What was imported.
        tasks: The tasks that were kept, each with what is wrong with it now.
    """
    mapping = result.mapping
    total = sum(t.rows for t in result.tables)
    lines = [
        f"Imported {counted(len(result.tables), 'table')}, {counted(total, 'row')} from "
        f"{mapping.source}",
        "",
        mapping_tables(mapping, {t.source: t.rows for t in result.tables}),
    ]
    lines += _inherited_lines(result)
    lines += notice_lines(result.notices)
    if result.notices:
        lines.append("")
    if result.span is not None:
        lines.append(f"Time span: {result.span[0]} to {result.span[1]}")
    lines.append(split_line(mapping))
    broken = {name: text for name, text in (tasks or {}).items() if text}
    if tasks:
        works = [name for name in tasks if name not in broken]
        if works:
            lines.append(wrapped(f"Tasks kept, with labels made anew: {', '.join(works)}"))
        for name, text in broken.items():
            said = wrapped(f"Task {name} no longer works: {text}")
            lines.append(styled(said, "yellow"))
    folder = shlex.quote(str(result.folder))
    lines += ["", f"Written to {result.folder}. Next:", f"  relfrog check {folder}"]
    return "\n".join(lines)


def _inherited_lines(result: ImportResult) -> list[str]:
    """Which tables inherit times, and along which foreign keys."""
    heirs = [t for t in result.tables if t.inherited_from]
    if not heirs:
        return []
    lines = ["Without a time of their own, rows are known from the latest of the rows they name:"]
    for heir in heirs:
        sources = ", ".join(f"{heir.fkeys[column]} ({column})" for column in heir.inherited_from)
        given = result.mapping.tables[heir.source]
        some = f" where {given.time} is NULL" if given.time else ""
        lines.append(f"  {heir.name}: from {sources}{some}")
    which = heirs[0].source
    parent = heirs[0].fkeys[heirs[0].inherited_from[0]]
    lines.append(
        wrapped(
            f"Change it with --time TABLE.COLUMN, --time TABLE=PARENT (such as {which}={parent}) "
            f"or --time TABLE=none (always visible)."
        )
    )
    return [*lines, ""]


def inspection(found: dict[str, Any]) -> str:
    """A dataset for the eye."""
    total = sum(t["rows"] for t in found["tables"])
    lines = [
        f"{found['name']}: {counted(len(found['tables']), 'table')}, {counted(total, 'row')}; "
        f"validation from {found['val_timestamp'][:10]}, test from {found['test_timestamp'][:10]}",
        "",
        table(
            ["table", "rows", "primary key", "time column", "from", "to", "features"],
            [
                [
                    t["name"],
                    number(t["rows"]),
                    t["primary_key"] or "",
                    _time_column(t),
                    (t["first_time"] or "")[:10],
                    (t["last_time"] or "")[:10],
                    ", ".join(f"{count} {kind}" for kind, count in sorted(t["features"].items())),
                ]
                for t in found["tables"]
            ],
            right=[1],
        ),
        "",
    ]
    if found["foreign_keys"]:
        lines += [
            table(
                ["foreign key", "NULL"],
                [
                    [f"{k['table']}.{k['column']} -> {k['parent']}", percent(k["null_share"])]
                    for k in found["foreign_keys"]
                ],
                right=[1],
            ),
            "",
        ]
    routes = found["routes"]
    lines.append(
        f"{len(found['foreign_keys'])} foreign keys, {routes['co_occurrence']} co-occurrence "
        f"routes, {routes['completion']} completion routes"
    )
    lines.append(_keys_in_sql(found["keys_in_sql"]))
    if found["tasks"]:
        lines += ["", _task_table(found["tasks"])]
        own = [
            f"{t['name']} has splits of its own: validation from {t['val_timestamp'][:10]}, test "
            f"from {t['test_timestamp'][:10]}"
            for t in found["tasks"]
            if "val_timestamp" in t
        ]
        lines += ["", *own] if own else []
    else:
        lines += ["", "No tasks yet. Add one: relfrog task DATASET NAME --sql FILE"]
    return "\n".join(lines)


def _time_column(described: Mapping[str, Any]) -> str:
    """A table's time column, and where its times come from if they are not its own."""
    parents = dict.fromkeys(key["parent"] for key in described["time_inherited_from"])
    name = described["time_column"] or ""
    return f"{name} (of {', '.join(parents)})" if parents else name


def _task_table(tasks: list[dict[str, Any]]) -> str:
    rows = []
    for task in tasks:
        if "error" in task:
            rows.append([task["name"], "", "", "", "", "", task["error"]])
            continue
        ends = task.get("entity_table") or (
            f"{task.get('src_entity_table')} -> {task.get('dst_entity_table')}"
        )
        splits = task.get("splits", {})
        counts = [
            number(splits[s]["rows"]) if s in splits else "" for s in ("train", "val", "test")
        ]
        label = _label(splits["train"]["label"]) if "train" in splits else ""
        rows.append([task["name"], task["task_type"], ends, *counts, label])
    headers = ["task", "type", "for", "train", "val", "test", "label in train"]
    return table(headers, rows, right=[3, 4, 5])


def _label(label: dict[str, float]) -> str:
    if "positive" in label:
        return f"{percent(label['positive'])} positive"
    if "targets" in label:
        return f"{label['targets']:.2f} targets each"
    return ", ".join(f"{name} {number(value)}" for name, value in label.items())


def check_lines(report: CheckReport) -> str:
    """Findings and what holds."""
    lines = []
    for finding in report.findings:
        said = wrapped(f"{finding.level}: {finding.place}: {finding.text}")
        colour = "bold red" if finding.level == "error" else "bold yellow"
        lines.append(styled(finding.level, colour) + said.removeprefix(finding.level))
        lines.append(wrapped(finding.remedy, "  "))
    lines += [f"{styled('ok', 'green')}: {text}" for text in report.passed]
    errors = sum(f.level == "error" for f in report.findings)
    warnings = len(report.findings) - errors
    lines.append(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}")
    return "\n".join(lines)


def _keys_in_sql(about: dict[str, Any]) -> str:
    """Which values one writes for keys in label SQL."""
    if about["values"] == "rows":
        return "Keys in label SQL are row numbers: 0, 1, 2, ..."
    shown = [
        " AND ".join(f"{table}.{column} = {value!r}" for column, value in key.items())
        for table, key in list(about["examples"].items())[:3]
    ]
    examples = f", such as {'; '.join(shown)}" if shown else ""
    return f"Keys in label SQL are those of the source{examples}"


def task_summary(dataset: str, added: AddedTask) -> str:
    """A task that was added: its labels, and the next command."""
    rows = [
        [
            split,
            number(stats.rows),
            number(stats.seed_times),
            number(stats.entities),
            _label(stats.label),
        ]
        for split, stats in added.stats.items()
    ]
    manifest = added.manifest
    how = f"{manifest.timedelta} ahead"
    if manifest.kind == "autocomplete":
        how = f"fills in {manifest.entity_table}.{manifest.target_col}"
    return "\n".join(
        [
            f"Added task {manifest.name} ({manifest.task_type}, {how}) in {added.folder}",
            "",
            table(["split", "rows", "seed times", "entities", "label"], rows, right=[1, 2, 3]),
            "",
            *(wrapped(f"note: {text}") for text in added.notes),
            *(
                styled("warning", "bold yellow") + wrapped(f"warning: {text}")[len("warning") :]
                for text in added.warnings
            ),
            *([""] if added.notes or added.warnings else []),
            "Next:",
            f"  relfrog check {shlex.quote(str(dataset))} {shlex.quote(added.manifest.name)}",
        ]
    )


def population_words(found: Population) -> str:
    """Whom predictions are for, and how many others there are."""
    text = f"For {found.words}."
    if found.others:
        text += f" {found.others:,} other{'' if found.others == 1 else 's'} exist: add --all."
    return wrapped(text)


def score_table(metrics: Mapping[str, float]) -> str:
    """Metrics by name."""
    return table(["metric", "value"], [[k, f"{v:.4f}"] for k, v in metrics.items()], right=[1])


def run_summary(run: Any) -> str:
    """A run's scores, with split and regime, what stands beside them, and what to do next."""
    metrics = run.metrics
    names = list(metrics["test"]["rolling"])
    rows = [
        [split, regime, *(f"{metrics[split][regime][name]:.4f}" for name in names)]
        for split in metrics
        for regime in metrics[split]
    ]
    about = run.about
    where = shlex.quote(str(run.folder))
    network = MODELS[run.config.model].network
    epochs = f"{about['epochs']} epochs " if network else ""
    lines = [
        f"{about['task']} on {about['dataset']}, model {run.config.model}, seed "
        f"{run.config.seed}, {epochs}in {about['seconds']:.0f} s",
        "",
        table(["split", "regime", *names], rows, right=list(range(2, 2 + len(names)))),
        "",
    ]
    lines += _decision_words(run)
    if run.config.refit:
        text = (
            "Validation scores are those of the model before it learned from validation labels; it "
            f"would have had a test {names[0]} of "
        )
        before = run.metrics_before_refit
        scores = [f"{before[regime][names[0]]:.4f} ({regime})" for regime in before]
        lines += [wrapped(f"{text}{', '.join(scores)}."), ""]
    metric = run.kind.metric
    if run.config.model == "auto":
        lines += [_member_table(run.blend, metric), ""]
    if run.baselines:
        found = {run.config.model: metrics} | run.baselines
        lines += [f"Beside quick baselines, {metric}:", "", _beside(found, metric), ""]
    from relfrog.analysis.verdict import verdict

    lines += [wrapped(sentence) for sentence in verdict(run)]
    lines.append("")
    lines.append(f"The run is {where}. Try next:")
    if network or run.network_member is not None:
        lines.append(f"  relfrog roles {where}")
    lines.append(f"  relfrog report {where}")
    lines.append(f"  relfrog predict {where} --out predictions.csv")
    return "\n".join(lines)


def _decision_words(run: Any) -> list[str]:
    """From which probability on a decision is yes, and whether that is ever right."""
    thresholds = run.postprocessing.thresholds
    if len(thresholds) != 1:
        return []
    evidence = run.postprocessing.evidence["threshold"]
    why = f"as {evidence['problem']}" if "problem" in evidence else evidence["words"]
    text = f"Decisions are yes from a probability of {thresholds[0]:.3f} on ({why})."
    if not run.metrics["test"]["rolling"]["f1"]:
        text += (
            " On test none of these is right: F1 is 0. Try another rule: --set threshold=cost:5, "
            "or --set threshold=top:10%."
        )
    return [wrapped(text), ""]


def _beside(models: Mapping[str, Any], metric: str) -> str:
    """One metric of several models, by split and regime."""
    places = [(split, regime) for split in ("val", "test") for regime in ("frozen", "rolling")]
    rows = [
        [name, *(_score(found[split][regime].get(metric)) for split, regime in places)]
        for name, found in models.items()
    ]
    return table(["model", *map(" ".join, places)], rows, right=[1, 2, 3, 4])


def _member_table(blend: Mapping[str, Any], metric: str) -> str:
    """The members of a blend, with validation scores and weights."""
    regime = blend["regime"]
    rows = [
        [
            name,
            _score(found["val"][regime].get(metric)),
            f"{blend['weights'][name]:.2f}" if name in blend["weights"] else "",
            f"{found['seconds']:.0f} s",
        ]
        for name, found in blend["members"].items()
    ]
    rows += [[name, "left out", "", ""] for name in blend["skipped"]]
    return table(["member", f"val {regime} {metric}", "weight", ""], rows, right=[1, 2, 3])


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _effect(value: float) -> str:
    """A difference with its sign; small ones keep a digit that is not 0."""
    return f"{value:+.4f}" if abs(value) >= 5e-4 or not value else f"{value:+.0e}"


def explanation(found: Explanation, most: int = 15) -> str:
    """One prediction: tables with the newest time used, features, the rows that carried most."""
    from relfrog.analysis.explained import MEASURED

    tables = [
        [s.table, number(s.rows), "" if s.newest is None else str(s.newest),
         "" if s.effect is None else _effect(s.effect)]
        for s in found.tables
    ]  # fmt: skip
    rows = [
        [r.table, r.key, "" if r.time is None else str(r.time), _effect(r.effect),
         ", ".join(f"{name} {value}" for name, value in r.cells.items())]
        for r in found.rows[:most]
    ]  # fmt: skip
    said = f"{found.table} {found.key} at {found.time}: {found.answer} {found.prediction:.4f}"
    if found.calibrated is not None:
        said += f", calibrated {found.calibrated:.4f}"
    lines = [said, ""]
    if found.members:
        parts = [f"{m.weight:.2f} x {m.prediction:.4f} ({m.name})" for m in found.members]
        lines += [f"{' + '.join(parts)} = {found.prediction:.4f}", ""]
    lines += [table(["table", "rows seen", "newest time used", "effect"], tables, right=[1, 3]), ""]
    if found.features:
        lines += [_feature_table(found, most), ""]
    if rows:
        lines += [table(["row of", "key", "time", "effect", "values"], rows, right=[3]), ""]
    return "\n".join([*lines, wrapped(f"effect: {MEASURED[found.measured]}")])


def _feature_table(found: Explanation, most: int) -> str:
    """The largest contributions, and the sum of the others."""
    shown, rest = found.features[:most], found.features[most:]
    several = len(found.members) > 1
    rows = [
        [f.feature, "" if f.value is None else number(f.value), number(f.rows), _effect(f.effect),
         f.member]
        for f in shown
    ]  # fmt: skip
    if rest:
        words = f"{len(rest)} other{'' if len(rest) == 1 else 's'}"
        rows.append([words, "", "", _effect(sum(f.effect for f in rest)), ""])
    if found.base is not None:
        rows.append(["base: without any feature", "", "", f"{found.base:.4f}", ""])
    headers = ["feature", "value", "rows", "effect", "member"]
    if not several:
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    return table(headers, rows, right=[1, 2, 3])


def member_note(run: Any) -> str:
    """Whose roles those of a blend are."""
    weight = run.roles_weight
    if weight:
        return f"Roles of the member frog, whose weight in the blend is {weight:.2f}:"
    return "Roles of the member frog. Its weight in the blend is 0: predictions do not use them."


def role_table(frame: Any) -> str:
    """Routes with their gates, the strongest edges first."""
    if not len(frame):
        return "This model has no routes: every table is a node."
    ordered = frame.sort_values("gate", ascending=False, kind="stable")
    rows = [[r.route, r.paradigm, f"{r.gate:.3f}", r.role] for r in ordered.itertuples()]
    return table(["route", "paradigm", "gate", "role"], rows, right=[2], styles={3: ROLE_STYLES})
