"""The report in a real browser: no error, no request, pictures that are there and answer clicks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relfrog.reporting import report
from relfrog.reporting.html import Markup
from relfrog.reporting.sections.schema import _beside
from report_cases import EVIL, evil_report, forty, moved
from small_store import fit

pytestmark = pytest.mark.slow  # a browser starts

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield opened
        opened.close()


class Page:
    """A page with all that it complained of and asked for."""

    def __init__(self, browser: Any, path: Path, width: int = 1200, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on(
            "request",
            lambda asked: asked.url.startswith("file:") or self.said.append(asked.url),
        )
        self.page.goto(f"file://{path}")

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.said == []


@pytest.fixture(scope="module")
def small(store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A report, and the routes in it."""
    folder = tmp_path_factory.mktemp("browser")
    run = fit(store, folder / "run", epochs=3)
    other = fit(store, folder / "other", "spends", epochs=1)
    path = report(run, compare=other)
    return path, list(run.roles()["route"])


EMPTY = """() => [...document.querySelectorAll('figure svg')].filter((svg) => {
  const box = svg.getBoundingClientRect();
  const open = !svg.closest('details:not([open])');
  return open && (box.width < 100 || box.height < 60 || svg.querySelectorAll('path,circle,line').length < 3);
}).length"""
WIDE = "() => document.documentElement.scrollWidth - innerWidth"
BACKGROUND = "() => getComputedStyle(document.body).backgroundColor"
TEXT = "() => getComputedStyle(document.querySelector('svg.chart text')).fill"


def brightness(colour: str) -> float:
    return sum(float(part) for part in colour.strip("rgb()").split(",")[:3]) / 3


def test_a_script_in_the_data_is_text(browser: Any, store: Path, tmp_path: Path) -> None:
    path = evil_report(store, tmp_path)
    with Page(browser, path) as page:
        dialogs: list[str] = []
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.reload()
        for summary in page.locator("summary").all():
            summary.click()
        page.wait_for_timeout(300)
        assert dialogs == []
        assert EVIL in page.inner_text("body")
        assert page.locator("img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_a_word(browser: Any, small: tuple[Path, list[str]], scheme: str) -> None:
    with Page(browser, small[0], scheme=scheme) as page:
        assert page.locator("section").count() == 8
        assert page.locator("svg.chart").count() >= 10
        assert page.evaluate(EMPTY) == 0
        assert page.evaluate(WIDE) <= 0
        dark = brightness(page.evaluate(BACKGROUND)) < 128
        assert dark == (scheme == "dark")
        assert (brightness(page.evaluate(TEXT)) > 128) == dark  # pictures go along
        page.locator("#theme").click()
        assert (brightness(page.evaluate(BACKGROUND)) < 128) != dark
        assert (brightness(page.evaluate(TEXT)) > 128) != dark


def test_tables_and_routes_answer_clicks(browser: Any, small: tuple[Path, list[str]]) -> None:
    path, routes = small
    with Page(browser, path) as page:
        graph = page.locator("#schema-0")
        assert graph.locator(".table").count() == 5
        drawn = graph.locator(".strand").evaluate_all("all => all.map(s => s.dataset.route)")
        assert set(drawn) == {str(i) for i in range(len(routes))}
        panel = page.locator("#panel-0")
        graph.locator('.table[data-table="orders"]').click()
        assert "orders.person refers to people" in panel.inner_text()
        assert "rows" in panel.inner_text()
        graph.locator('.table[data-table="orders"]').click()
        assert panel.inner_text() == ""
        for number in (0, len(routes) - 1):
            graph.locator(f'.strand[data-route="{number}"]').first.dispatch_event("click")
            assert routes[number] in panel.inner_text()
            assert "gate 0." in panel.inner_text()
            assert page.locator("tr.held").inner_text().startswith(routes[number])
        row = page.locator("#roles tbody tr:not(.held)").first
        route = row.locator("td").first.inner_text()
        row.click()
        assert route in panel.inner_text()
        assert page.locator("#panel-1").inner_text()  # the other run's numbers of the same route
        graph.locator(".table").first.hover()
        assert "rows" in page.locator("#tip").inner_text()


def test_the_table_of_roles_sorts_and_filters(browser: Any, small: tuple[Path, list[str]]) -> None:
    with Page(browser, small[0]) as page:
        rows = page.locator("#roles tbody tr")
        head = page.locator("#roles th", has_text="gate").first
        gates = "all => all.map(row => Number(row.cells[3].dataset.value))"
        head.locator("button").click()
        found = rows.evaluate_all(gates)
        assert found == sorted(found, reverse=True)
        head.locator("button").click()
        assert rows.evaluate_all(gates) == sorted(found)
        page.locator(".filter").fill("completion reviews")
        visible = rows.evaluate_all(
            "all => all.filter(row => !row.hidden).map(row => row.innerText)"
        )
        assert visible
        assert len(visible) < len(small[1])
        assert all("completion" in text and "reviews" in text for text in visible)


def test_a_phone_scrolls_down_only(browser: Any, small: tuple[Path, list[str]]) -> None:
    with Page(browser, small[0], width=390) as page:
        assert page.evaluate(WIDE) <= 0
        assert page.evaluate(EMPTY) == 0


def test_a_phone_shows_the_whole_schema_and_enlarges_it(
    browser: Any, small: tuple[Path, list[str]]
) -> None:
    with Page(browser, small[0], width=390) as page:
        picture, button = page.locator(".graph svg").first, page.locator(".enlarge").first
        assert picture.bounding_box()["width"] <= 390
        button.click()
        assert picture.bounding_box()["width"] > 800
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        button.click()
        assert picture.bounding_box()["width"] <= 390
    with Page(browser, small[0]) as page:
        assert not page.locator(".enlarge").first.is_visible()
        # Nor is anything cut off where a schema is wider than the page: see `crowded`.
        page.evaluate("document.querySelector('.graph').classList.add('crowded')")
        assert page.locator(".enlarge").first.is_visible()


def test_a_wide_schema_is_shown_whole_and_can_be_enlarged() -> None:
    picture = '<svg viewBox="0 0 {} 300"></svg>'
    assert "graph crowded" in str(_beside(Markup(picture.format(1800)), "", 0))
    assert "crowded" not in str(_beside(Markup(picture.format(1300)), "", 0))


def test_it_prints(browser: Any, small: tuple[Path, list[str]]) -> None:
    with Page(browser, small[0], scheme="dark") as page:
        page.emulate_media(media="print")
        assert brightness(page.evaluate(BACKGROUND)) > 250
        assert not page.locator("nav").is_visible()
        assert len(page.pdf()) > 50_000


def test_forty_tables_stay_legible(
    browser: Any, small: tuple[Path, list[str]], tmp_path: Path
) -> None:  # fmt: skip
    from relfrog import load_run

    database, roles = forty()
    place = moved(load_run(small[0].parent), tmp_path)
    (place / "database.json").write_text(json.dumps(database))
    (place / "roles.json").write_text(json.dumps(roles))
    with Page(browser, report(place), width=1280) as page:
        boxes = page.locator("#schema-0 .table rect").evaluate_all(
            "all => all.map(b => b.getBoundingClientRect()).map(r => [r.left, r.top, r.right, r.bottom])"
        )
        assert len(boxes) == 40
        for i, a in enumerate(boxes):
            for b in boxes[i + 1 :]:
                assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        section = page.locator("#schema").bounding_box()
        assert all(b[0] >= section["x"] for b in boxes)
        assert all(b[2] <= section["x"] + section["width"] for b in boxes)
        names = page.locator("#schema-0 .table .name").evaluate_all(
            "all => all.map(t => [t.getBoundingClientRect(), t.parentNode.querySelector('rect').getBoundingClientRect()])"
            ".map(([t, r]) => [t.height, t.left - r.left, r.right - t.right])"
        )
        assert all(height >= 9 and left > 0 and right > 0 for height, left, right in names)
        page.locator("#schema-0 .table").nth(20).click()
        assert page.locator("#schema-0 .strand.on, #schema-0 .table.on").count() > 0


def test_the_demo(browser: Any, demo: Path) -> None:
    with Page(browser, demo / "report.html") as page:
        assert page.locator("#schema-0 .table").count() == 6
        assert page.evaluate(EMPTY) == 0
        assert page.evaluate(WIDE) <= 0
