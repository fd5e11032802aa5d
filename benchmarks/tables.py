"""Write README's tables of numbers from the JSON files under benchmarks/.

    python benchmarks/tables.py

A test fails when README does not show what the files say.
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
BEGIN, END = "<!-- numbers: made by benchmarks/tables.py -->", "<!-- /numbers -->"


def numbers() -> str:
    """The section between the marks."""
    return f"{BEGIN}\n\n{importing()}\n\n{sampling()}\n\n{END}"


def importing() -> str:
    found = json.loads((HERE / "importing.json").read_text(encoding="utf-8"))
    ours, theirs = found["relfrog_import"], found["pandas_read_sql_to_parquet"]
    return (
        f"Importing {found['rows']:,} rows from SQLite, two cores (`{found['command']}`):\n\n"
        "| | seconds | peak memory |\n|---|--:|--:|\n"
        f"| `relfrog import`: keys checked, rows in order of time | {ours['seconds']:.1f} | "
        f"{ours['peak_mb']:,.0f} MB |\n"
        f"| `pandas.read_sql`, then `to_parquet` | {theirs['seconds']:.1f} | "
        f"{theirs['peak_mb']:,.0f} MB |"
    )


def sampling() -> str:
    found = json.loads((HERE / "sampling.json").read_text(encoding="utf-8"))
    lines = [
        f"Sampling, in thousands of seeds a second, two cores (`{found['command']}`); pyg-lib's "
        "figures are reported ones from another two-core machine, not of this run:",
        "",
        "| | separate, 1 / 2 threads | shared, 1 / 2 threads | pyg-lib |",
        "|---|--:|--:|--:|",
    ]
    rows: dict[tuple[str, str, str], dict[tuple[str, int], float]] = {}
    reference: dict[tuple[str, str, str], float | None] = {}
    for entry in found["sampling"]:
        fanouts = "/".join(map(str, entry["fanouts"]))
        name = (f"{entry['dataset']} {entry['task']}", fanouts, str(entry["batch"]))
        rows.setdefault(name, {})[entry["mode"], entry["workers"]] = entry["seeds_per_s"]
        reference[name] = entry["pyg_lib_seeds_per_s"]
    for (task, fanouts, size), speed in rows.items():
        cells = [
            " / ".join(f"{speed[mode, workers] / 1000:.1f}" for workers in (1, 2))
            for mode in ("separate", "shared")
        ]
        label = f"{task}, {fanouts} neighbours, batch {size}"
        known = reference[task, fanouts, size]
        cells.append(f"{known / 1000:g}" if known else "")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    build = found["build"][-1]
    growth = [g for g in found["growth"] if len(g["fanouts"]) == 2]
    costs = ", ".join(f"{g['us_per_seed']:.0f} µs at {g['rows']:,} rows" for g in growth)
    lines += [
        "",
        f"A seed with 128/64 neighbours on scaled copies of rel-f1, separate, one thread: {costs} "
        f"(the same {growth[0]['rows_per_seed']:.0f} rows each time; why it grows was not "
        "profiled).",
        "",
        f"Building the graph of {build['rows']:,} rows with two foreign keys takes "
        f"{build['build_s']:.1f} s and {build['bytes_per_fact']:.1f} bytes a row.",
    ]
    return "\n".join(lines)


def updated(readme: str) -> str:
    """README with the section made anew."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + numbers() + tail


if __name__ == "__main__":
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
