"""The page of a report: one HTML file with inline style and script."""

from __future__ import annotations

from relfrog._version import __version__
from relfrog.reporting.html import asset, model_name, tag, theme
from relfrog.reporting.kind_parts import KIND_PARTS
from relfrog.reporting.material import Material
from relfrog.reporting.question import question
from relfrog.reporting.sections.dependencies import dependencies
from relfrog.reporting.sections.explanations import explanations
from relfrog.reporting.sections.predictions import predictions
from relfrog.reporting.sections.provenance import provenance
from relfrog.reporting.sections.schema import schema
from relfrog.reporting.sections.scores import scores
from relfrog.reporting.sections.table_importance import table_importance
from relfrog.reporting.sections.training import training

__all__ = ["page"]

#: Content security policy: nothing is fetched, and only inline style and script apply.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(m: Material, other: Material | None = None) -> str:
    """The whole report as HTML.

    Args:
        m: the material of the run.
        other: the material of a run to compare with.
    """
    sections = [
        ("answer", "The answer", scores(m)),
        ("schema", "Your schema as the model sees it", schema(m, other)),
        ("training", "How training went", training(m)),
        ("dependencies", "What the functional dependencies learned", dependencies(m)),
        ("predictions", "Predictions", predictions(m)),
        ("worth", "Which tables matter", table_importance(m)),
        ("explained", "One prediction explained", explanations(m)),
        ("made", "How it was made", provenance(m)),
    ]
    title = f"{m.run.about['task']} · RelFrog report"
    short = {"schema": "Schema", "training": "Training", "dependencies": "Dependencies",
             "worth": "Tables", "explained": "Explained", "made": "Made"}  # fmt: skip
    links = [tag("a", short.get(name, words), href=f"#{name}") for name, words, _ in sections]
    name = (m.database or {}).get("name") or m.run.about["dataset"]
    header = tag(
        "header",
        tag("p", f"{name} · {m.run.about['task']} · {model_name(m.run.config.model)}",
            class_="kicker"),
        tag("h1", question(m.run.about, m.database, KIND_PARTS[m.kind].question)),
    )  # fmt: skip
    body = [
        tag("nav", tag("div", *links,
            tag("button", "Light or dark", type="button", id="theme"),
            class_="inner"), aria_label="Sections"),
        tag("main", header, *(tag("section", tag("h2", words), content, id=name)
                              for name, words, content in sections)),
        tag("footer", f"Made by RelFrog {__version__} from {m.run.folder}. Nothing was fetched to "
            "show this page."),
        tag("div", id="tip", role="tooltip", hidden=True),
        tag("script", asset("page.js")),
    ]  # fmt: skip
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", theme(), asset("page.css"), asset("schema.css")),
    ]
    whole = tag("html", tag("head", *head), tag("body", *body), lang="en")
    return f"<!doctype html>\n{whole}\n"
