"""Draw the pictures of the documentation into docs/drawings, and the learned roles of a run.

    python docs/draw.py                          # the drawings; a test checks that they are current
    python docs/draw.py --roles RUN --out FILE   # README's picture, from a run folder

Each picture brings its own colours for light and dark pages.
"""

from __future__ import annotations

import argparse
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
_STYLE = (
    "text{fill:#1a202c}.dim{fill:#5a6472}.thin{stroke:#8a94a3}.head{fill:#8a94a3}"
    ".box{fill:#fff;stroke:#8a94a3}.node{fill:#dbe7f5;stroke:#2b6cb0}.edge{stroke:#c77f0a}"
    ".tip{fill:#c77f0a}.seed{fill:#d5efe4;stroke:#2f855a}.off{fill:#eef0f3;stroke:#c3c9d1}"
    ".line{fill:none;stroke-width:2}.soft{fill:#fbeccb;stroke:#c77f0a}.cold{fill:#2b6cb0}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f3f7}.dim{fill:#a9b3c1}.thin{stroke:#8a94a3}"
    ".box{fill:#1f2733;stroke:#8a94a3}.node{fill:#1d3a5c;stroke:#63a4e8}.edge{stroke:#f0b040}"
    ".tip{fill:#f0b040}.seed{fill:#17402f;stroke:#5cc99a}.off{fill:#252c37;stroke:#4a5465}"
    ".soft{fill:#4a3a14;stroke:#f0b040}.cold{fill:#63a4e8}}"
)


def picture(title: str, width: int, height: int, *parts: str) -> str:
    """A self-contained SVG with a title for those who do not see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="system-ui, sans-serif" font-size="14">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def text(
    x: float, y: float, words: str, kind: str = "", size: int = 14, anchor: str = "middle"
) -> str:
    """Words at a place, centered unless anchored otherwise."""
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(words)}</text>"
    )


def row(x: float, y: float, words: str, kind: str = "node", radius: int = 30) -> str:
    """A row of a table, as a node."""
    return f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{radius}" stroke-width="2"/>' + text(
        x, y + 5, words, size=13
    )


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    """A rectangle."""
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" '
        'stroke-width="1.5"/>'
    )


def arrow(x0: float, y0: float, x1: float, y1: float, kind: str = "thin", bend: float = 0) -> str:
    """An arrow between two places, straight or bent."""
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    across = (-(y1 - y0) / length, (x1 - x0) / length)
    mx, my = (x0 + x1) / 2 + across[0] * bend, (y0 + y1) / 2 + across[1] * bend
    size = ((x1 - mx) ** 2 + (y1 - my) ** 2) ** 0.5 or 1.0
    ux, uy = (x1 - mx) / size, (y1 - my) / size
    left = (x1 - 10 * ux - 5 * uy, y1 - 10 * uy + 5 * ux)
    right = (x1 - 10 * ux + 5 * uy, y1 - 10 * uy - 5 * ux)
    tip = "tip" if kind == "edge" else "head"
    return (
        f'<path class="line {kind}" d="M{x0:.1f},{y0:.1f} Q{mx:.1f},{my:.1f} '
        f'{x1 - 8 * ux:.1f},{y1 - 8 * uy:.1f}"/>'
        f'<path class="{tip}" d="M{x1:.1f},{y1:.1f} L{left[0]:.1f},{left[1]:.1f} '
        f'L{right[0]:.1f},{right[1]:.1f} Z"/>'
    )


def roles() -> str:
    """The same three rows, with the table in the middle as a node and as an edge."""
    return picture(
        "Table as node: a flight is a node between a plane and an airport. Table as edge: the "
        "flight is the edge from the plane to the airport.", 640, 190,
        text(160, 24, "flights as nodes"), row(50, 100, "plane"), row(160, 100, "flight"),
        row(270, 100, "airport"), arrow(80, 100, 130, 100), arrow(190, 100, 240, 100),
        text(160, 165, "two steps; the flight has a state", "dim", 13),
        text(480, 24, "flights as edges"), row(380, 100, "plane"), row(580, 100, "airport"),
        arrow(410, 100, 550, 100, "edge"), box(446, 84, 68, 32, "soft"), text(480, 105, "flight"),
        text(480, 165, "one step; the flight is what it carries", "dim", 13),
    )  # fmt: skip


def co_occurrence() -> str:
    """The row in the middle refers to both others."""
    return picture(
        "Co-occurrence, u <- v -> w: a flight refers to a plane and to an airport; the message "
        "goes from the plane, with the flight, to the airport.", 560, 200,
        row(80, 120, "plane"), row(280, 120, "flight"), row(480, 120, "airport"),
        arrow(250, 120, 110, 120), arrow(310, 120, 450, 120),
        text(180, 144, "foreign key", "dim", 12), text(380, 144, "foreign key", "dim", 12),
        arrow(92, 92, 468, 92, "edge", -75), text(280, 32, "message"),
        text(80, 180, "u"), text(280, 180, "v"), text(480, 180, "w"),
    )  # fmt: skip


def completion() -> str:
    """One row refers to the next, which refers to the third."""
    return picture(
        "Completion, u -> v -> w: a result refers to a race, which refers to a circuit; the "
        "message goes from the result, with the race, to the circuit.", 560, 200,
        row(80, 120, "result"), row(280, 120, "race"), row(480, 120, "circuit"),
        arrow(110, 120, 250, 120), arrow(310, 120, 450, 120),
        text(180, 144, "foreign key", "dim", 12), text(380, 144, "foreign key", "dim", 12),
        arrow(92, 92, 468, 92, "edge", -75), text(280, 32, "message"),
        text(80, 180, "u"), text(280, 180, "v"), text(480, 180, "w"),
    )  # fmt: skip


def gate() -> str:
    """Two messages and the number that mixes them."""
    return picture(
        "The gate mixes two messages to the same row: g times that of the edge role, 1 - g times "
        "that of the node role.", 620, 200,
        box(20, 30, 170, 44, "node"), text(105, 57, "message as a node"),
        box(20, 126, 170, 44, "soft"), text(105, 153, "message as an edge"),
        arrow(190, 52, 290, 88), arrow(190, 148, 290, 112, "edge"),
        text(250, 56, "1 - g", "dim", 13), text(252, 152, "g", "dim", 13),
        box(290, 76, 90, 48), text(335, 105, "gate g"),
        arrow(380, 100, 470, 100), row(505, 100, "w", "seed", 32),
        text(335, 158, "0: node", "dim", 13), text(335, 176, "1: edge", "dim", 13),
        text(505, 158, "the row that is updated", "dim", 13),
    )  # fmt: skip


def dependency() -> str:
    """Differences between parents and children of one foreign key."""
    pairs = [((70, 70), (150, 50)), ((60, 130), (142, 112)), ((95, 170), (176, 153))]
    parts = [text(130, 24, "embeddings")]
    for (x0, y0), (x1, y1) in pairs:
        parts += [row(x0, y0, "", "node", 9), row(x1, y1, "", "seed", 9)]
        parts.append(arrow(x0 + 9, y0 - 2, x1 - 9, y1 + 3, "edge"))
    parts += [text(56, 200, "children", "dim", 13), text(186, 200, "parents", "dim", 13)]
    parts += [text(400, 24, "their differences"), box(290, 44, 220, 140)]
    for x, y in ((420, 84), (428, 92), (415, 95), (424, 78), (434, 86)):
        parts.append(f'<circle class="soft" cx="{x}" cy="{y}" r="6"/>')
    for x, y in ((330, 70), (350, 150), (470, 160), (385, 165), (320, 120), (490, 110)):
        parts.append(f'<circle class="off" cx="{x}" cy="{y}" r="6"/>')
    parts += [text(430, 64, "true pairs", "dim", 13), text(345, 138, "wrong pairs", "dim", 13)]
    return picture(
        "Functional dependency: for one foreign key the difference between parent and child is "
        "alike for all true pairs, and tells them from wrong ones.", 560, 215, *parts,
    )  # fmt: skip


def time() -> str:
    """What a seed sees: a prefix of its children in order of time."""
    parts = [row(70, 70, "plane", "seed"), text(70, 125, "the seed", "dim", 13)]
    for i in range(8):
        kind = "node" if i < 5 else "off"
        parts.append(row(170 + 55 * i, 70, "", kind, 18))
    parts += [
        arrow(140, 120, 600, 120), text(600, 142, "time", "dim", 13),
        '<path class="line edge" stroke-dasharray="5 4" d="M417,25 V150"/>',
        text(417, 172, "t, the moment of the question"),
        text(280, 38, "visible: a prefix", "dim", 13), text(510, 38, "label window", "dim", 13),
    ]  # fmt: skip
    return picture(
        "Time: the flights of a plane in order of time; those up to t are visible, a prefix found "
        "by binary search; the label comes from those after t.", 640, 190, *parts,
    )  # fmt: skip


#: The folders of src/relfrog, from the first layer to the last.
LAYERS = {
    "support": "text, files, threads, jit",
    "io": "read databases, write results",
    "importing": "source to dataset folder",
    "store": "what was made of files",
    "graph": "row pointers, the sampler",
    "datasets": "tasks, labels, entities, checks",
    "queries": "questions to label SQL",
    "features": "columns as tensors",
    "nn": "the network",
    "training": "prepared tasks, the trainer",
    "cluster": "other processes and machines",
    "models": "fit, save, load, predict",
    "runs": "make runs and open them",
    "analysis": "explain, certify",
    "reporting": "one HTML file",
    "experiments": "the paper's studies",
    "cli": "the commands",
}
#: The modules beside the folders, by the folder that they come before.
MODULES = {"support": "errors", "io": "kinds, config"}
#: What flows through them: name, folder, column, and whether it is the user's, a file or in memory.
FLOW = (
    ("database", "io", 0, "seed"), ("dataset folder", "importing", 0, "soft"),
    ("graph", "graph", 0, "box"), ("batch", "graph", 1, "box"), ("seeds", "datasets", 0, "box"),
    ("row vectors", "features", 1, "box"), ("role-gated layers", "nn", 1, "box"),
    ("prediction", "models", 1, "box"), ("run folder", "runs", 1, "soft"),
    ("certificate", "analysis", 0, "soft"), ("report", "reporting", 1, "soft"),
)  # fmt: skip


def architecture() -> str:
    """The folders as layers, and beside them what flows from one to the next."""
    line, y, columns, wide = 46, 44, (548, 728), 150
    at, between = {}, {}
    for name in LAYERS:
        if name in MODULES:
            between[MODULES[name]], y = y, y + line
        at[name], y = y, y + line
    parts = [
        text(195, 24, "src/relfrog: each layer imports only from those above", "dim", 13),
        text(638, 24, "what flows through them", "dim", 13),
    ]  # fmt: skip
    for words, place in between.items():
        parts += [box(16, place, 358, 34, "off"), text(30, place + 22, words, anchor="start")]
    for name, words in LAYERS.items():
        y = at[name]
        parts += [
            box(16, y, 358, 34, "node"),
            f'<g font-weight="600">{text(30, y + 22, name, anchor="start")}</g>',
            text(142, y + 22, words, "dim", 13, "start"),
        ]
    places = {what: (columns[column], at[folder] + 17) for what, folder, column, _ in FLOW}
    for x, y in places.values():
        # A dotted line from the folder to what it makes, under everything else.
        parts.append(f'<path class="line thin" stroke-dasharray="1 5" d="M380,{y} H{x}"/>')
    for what, _, _, kind in FLOW:
        x, y = places[what]
        parts += [box(x - wide / 2, y - 17, wide, 34, kind), text(x, y + 5, what, size=13)]
    y = at["cli"] + 9
    for x, kind, words in (
        (478, "seed", "yours"),
        (560, "soft", "on disk"),
        (656, "box", "in memory"),
    ):
        parts += [box(x, y, 16, 16, kind), text(x + 24, y + 13, words, "dim", 13, "start")]
    for first, last in (
        ("database", "dataset folder"), ("dataset folder", "graph"), ("batch", "row vectors"),
        ("row vectors", "role-gated layers"), ("role-gated layers", "prediction"),
        ("prediction", "run folder"), ("run folder", "report"),
    ):  # fmt: skip
        (x0, y0), (x1, y1) = places[first], places[last]
        parts.append(arrow(x0, y0 + 17, x1, y1 - 17))
    (x0, y0), (x1, _) = places["graph"], places["batch"]
    parts.append(arrow(x0 + wide / 2, y0, x1 - wide / 2, y0))
    x0, y0 = places["seeds"]
    parts.append(arrow(x0 + wide / 2, y0 - 6, x1 - wide / 4, places["batch"][1] + 17))
    # The dataset folder holds the tasks, too: around the graph to the seeds.
    y1 = places["dataset folder"][1]
    parts.append(arrow(x0 - wide / 2, y1, x0 - wide / 2, y0, bend=45))
    (x0, y0), (x1, y1) = places["run folder"], places["certificate"]
    parts.append(arrow(x0 - wide / 4, y0 + 17, x1 + wide / 2, y1 - 6))
    return picture(
        "Architecture: folders in layers, each importing only from those above it, and "
        "the data that flow through them: database, dataset folder, graph, batch of seeds, row "
        "vectors, role-gated layers, prediction, run folder, report.",
        830, at["cli"] + line + 4, *parts,
    )  # fmt: skip


DRAWINGS = {
    "roles.svg": roles, "co-occurrence.svg": co_occurrence, "completion.svg": completion,
    "gate.svg": gate, "dependency.svg": dependency, "time.svg": time,
    "architecture.svg": architecture,
}  # fmt: skip


def learned(run: str) -> str:
    """The learned roles of a run: per route its three tables and its gate, as length and colour."""
    import relfrog

    found = relfrog.load_run(run)
    frame = found.roles().sort_values("gate", ascending=False, kind="stable")
    line, left = 38, 360
    parts = [
        text(175, 24, "route", "dim", 13), text(left + 10, 24, "node", "dim", 13),
        text(left + 260, 24, "edge", "dim", 13),
    ]  # fmt: skip
    for number, entry in enumerate(frame.itertuples()):
        y = 44 + number * line
        u, arrow_in, v, arrow_out, w = _words(str(entry.route))
        share = float(entry.gate)
        kind = "edge" if share > 0.5 else "node"
        parts.append(f"<g><title>{escape(str(entry.route))}: gate {share:.3f}</title>")
        for place, name in ((54, u), (175, v), (296, w)):
            middle = "soft" if kind == "edge" else "node"
            parts.append(box(place - 40, y, 80, 26, middle if place == 175 else "box"))
            parts.append(text(place, y + 18, name if len(name) < 12 else f"{name[:10]}…", size=13))
        # The keys point from child to parent; a column is named where several lead to a table.
        for first, last, mark in ((94, 135, arrow_in), (215, 256, arrow_out)):
            ends = (first, last) if mark.endswith(">") else (last, first)
            parts.append(arrow(ends[0], y + 17, ends[1], y + 17))
            column = mark.strip("<->")
            parts.append(text((first + last) / 2, y + 9, column.strip("[]"), "dim", 10))
        parts.append(box(left, y + 7, 250, 12, "off"))
        parts.append(box(left, y + 7, max(250 * share, 2), 12, "tip" if kind == "edge" else "cold"))
        parts.append(text(left + 278, y + 18, f"{share:.2f}", size=13) + "</g>")
    about = found.about
    return picture(
        f"Learned roles of {about['task']}: {len(frame)} routes with their gates, from node to "
        "edge", 680, 54 + line * len(frame), *parts,
    )  # fmt: skip


def _words(route: str) -> tuple[str, str, str, str, str]:
    """A route's three tables and the two arrows between them."""
    import re

    found = re.fullmatch(r"(.*?) (<-\S*|-\S*>) (.*?) (<-\S*|-\S*>) (.*)", route)
    if found is None:
        raise SystemExit(f"{route!r} is no route")
    u, first, v, second, w = found.groups()
    return u, first, v, second, w


def main() -> None:
    """Write the drawings, or the picture of a run."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the documentation.")
    parser.add_argument("--roles", metavar="RUN", help="draw the learned roles of this run")
    parser.add_argument("--out", type=Path, default=HERE / "roles.svg", help="where to")
    given = parser.parse_args()
    if given.roles:
        given.out.write_text(learned(given.roles), encoding="utf-8")
        return
    for name, make in DRAWINGS.items():
        (HERE / "drawings" / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
