"""Every page of the demo's portal, with its tabs: short, wide enough, and easy to hit.

`make pictures` also takes every page in four looks to `screenshots` in the var folder, as
`<page>-<width>-<theme>.png`, with an `index.html` of all, for people to look at.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec import Struct, field
from playwright.sync_api import Page, ViewportSize
from pytest_django import Settings

from apps.accounts.domain.structs import replace
from tests.servers import ROOT
from tests.shared_rows import shared
from tests.web.appearances import DESK, PHONE, is_exhaustive
from tests.web.axe import settle, violations
from tests.web.campus_portal import (
    ADMIN,
    FINANCE,
    LEAD,
    MEMBER,
    NOW,
    OF_A_ROW,
    campus_pages,
    fill_campus_portal,
)
from tests.web.conftest import Screen
from tests.web.test_browser import draw_all

pytestmark = [pytest.mark.browser, pytest.mark.long]

REMAKE = os.environ.get("GPUPORTAL_MAKE_PICTURES") == "1"
# Not in `VAR_DIR`, which goes with the tests.
FOLDER = ROOT / "var" / "screenshots"
# Of a long list its beginning tells how it looks.
TALLEST_PICTURE = 6000
SCREEN = 900
MOST_PIXELS, MOST_WORDS = 2000, 450
NOT_SHOWN = (403, 404)
A4 = 595, 842
"""In points."""

MEASURE = """() => {
  const main = document.querySelector("main");
  const seen = element => element.checkVisibility() && element.getClientRects().length > 0;
  const columns = {};
  for (const table of [...main.querySelectorAll("table")].filter(seen)) {
    const rows = [...table.querySelectorAll("tbody tr")].filter(seen);
    [...table.querySelectorAll("thead tr:last-child > *")].forEach((head, place) => {
      const cells = rows.map(row => row.children[place]?.innerText.trim() ?? "");
      if (new Set(cells).size < 3 || !cells.some(cell => /\\d/.test(cell))) return;
      const key = head.innerText.trim() + ": " + cells.sort().join(", ");
      columns[key] = (columns[key] ?? 0) + 1;
    });
  }
  return {
    height: document.documentElement.scrollHeight,
    words: main.innerText.split(/\\s+/).filter(Boolean).length,
    repeated: Object.keys(columns).filter(key => columns[key] > 1),
  };
}"""
SMALL_TARGETS = """least => {
  const targets = "a[href], button, input, select, textarea, summary";
  const box = element => element.getBoundingClientRect();
  const inSentence = element => {
    if (getComputedStyle(element).display !== "inline") return false;
    const block = element.closest("p, li, dd, dt, td, th, div, summary, h1, h2, h3, label");
    return block.innerText.trim().length > element.textContent.trim().length + 1;
  };
  const isSmall = element => [element, ...(element.labels ?? [])].every(
    one => Math.min(box(one).width, box(one).height) < least - 0.5);
  return [...document.querySelectorAll(targets)]
    .filter(one => one.checkVisibility({visibilityProperty: true, opacityProperty: true}))
    .filter(one => Math.min(box(one).width, box(one).height) > 1)
    .filter(one => isSmall(one) && !inSentence(one))
    .map(one => one.outerHTML.slice(0, 90));
}"""
TABS = """() => [...document.querySelectorAll("nav.tabs a.tab:not([aria-current])")].map(
  link => [link.id.replace("tab-", ""), link.getAttribute("href")])"""
LEAST_TARGET = 24
"""CSS pixels, as WCAG 2.2 has it (2.5.8)."""


# Charts follow the width some frames later.
WIDE = """() => new Promise(done => {
  const width = () => document.documentElement.scrollWidth - innerWidth;
  const isWide = one => one.getBoundingClientRect().right > innerWidth + 1;
  const wide = () => width() <= 0 ? [] : [`${width()} px`,
    ...[...document.querySelectorAll("main *")].filter(isWide).map(one => one.outerHTML)];
  const look = left => width() <= 0 || !left
    ? done(wide().map(text => text.slice(0, 90)))
    : requestAnimationFrame(() => look(left - 1));
  look(180);
})"""


class Limits(Struct, frozen=True):
    """What a page may have at most: pixels at 1440, words, and pixels at 390."""

    pixels: int = MOST_PIXELS
    words: int = MOST_WORDS
    on_phone: int = MOST_PIXELS


USUAL = Limits()
OWN = {
    MEMBER: ("home",),
    LEAD: ("home", "quotas", "team", "new-request", "edit-request"),
    FINANCE: ("home", "costs", "budgets", "bill", "requests"),
}
"""Pages that somebody sees otherwise than an administrator."""
HOME = Limits(pixels=SCREEN, words=150)


class Measured(Struct, frozen=True):
    """A page as somebody sees it first: at 1440 px, and height, targets and width at 390 px."""

    height: int
    on_phone: int
    words: int
    repeated: list[str]
    wide: list[str]
    small: list[str]
    inaccessible: list[str] = field(default_factory=list)

    def breaches(self, limits: Limits) -> Iterator[str]:
        """Yield what the page has too much of."""
        if self.height > limits.pixels:
            yield f"{self.height:,} px, at most {limits.pixels:,}"
        if self.on_phone > limits.on_phone:
            yield f"{self.on_phone:,} px on a phone, at most {limits.on_phone:,}"
        if self.words > limits.words:
            yield f"{self.words:,} words, at most {limits.words}"
        if self.wide:
            yield f"wider than a phone: {', '.join(self.wide[:4])}"
        if self.repeated:
            yield f"{len(self.repeated)} columns twice: {self.repeated[0][:80]}"
        if self.inaccessible:
            yield f"{len(self.inaccessible)} violations: {self.inaccessible[0]}"
        if self.small:
            yield f"{len(self.small)} targets under {LEAST_TARGET} px: {self.small[0]}"


def measured(page: Page) -> Measured:
    """Measure a page that is open; it is left as wide as it was."""
    before: ViewportSize | None = page.viewport_size
    found: dict[str, Any] = page.evaluate(MEASURE)
    page.set_viewport_size({"width": PHONE, "height": SCREEN})
    wide = page.evaluate(WIDE)
    small = page.evaluate(SMALL_TARGETS, LEAST_TARGET)
    on_phone = page.evaluate("document.documentElement.scrollHeight")
    if before is not None:
        page.set_viewport_size(before)
    return Measured(wide=wide, small=small, on_phone=on_phone, **found)


_campus = shared(fill_campus_portal, early=True)


@pytest.fixture
def campus(_campus: None, address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of the demo's portal, whose clock stands still."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    return address


def visit(
    campus: str, screen: Screen, person: str, steps: Callable[[Page], None], **look: Any
) -> None:
    """Take steps as a person. Pages that are not theirs answer so, which is no error here."""
    screen.visit(campus, steps, person=person, provoked=("403", "404"), **look)


def pages_of(person: str) -> dict[str, str]:
    """Return the pages to measure: an administrator's all, and of others what is theirs.

    Of most pages others see what an administrator sees, or less: check-full measures these too.
    """
    pages = campus_pages()
    pages.pop("styleguide")  # it is long by its nature, and there with DEBUG alone
    if is_exhaustive() or person == ADMIN:
        return pages
    return {name: pages[name] for name in OWN[person]}


def measure_all(page: Page, pages: Mapping[str, str], *, tabs: bool = False) -> dict[str, Measured]:
    """Measure pages and, on demand, each tab that they link to: `team cost`."""
    found: dict[str, Measured] = {}
    left, seen = list(pages.items()), set[tuple[str, str]]()
    while left:
        name, address = left.pop(0)
        if (place := _place_of(address)) in seen:
            continue
        response = page.goto(address)
        assert response is not None
        if response.status in NOT_SHOWN:
            continue
        settle(page)
        found[name] = measured(page)
        # Of other pages test_examined holds it, in all looks.
        if name in OF_A_ROW or name.startswith("bill"):
            found[name] = replace(found[name], inaccessible=violations(page))
        seen.add(place)
        if tabs and name in pages:
            links: list[tuple[str, str]] = page.evaluate(TABS)
            left += [(f"{name} {key}", href) for key, href in links]
    return found


def _place_of(address: str) -> tuple[str, str]:
    """Return the path and the tab of an address: one tab is linked to by several pages."""
    parts = urlsplit(address)
    (tab,) = parse_qs(parts.query).get("tab", [""])
    return parts.path, tab


@pytest.mark.parametrize("person", [ADMIN, LEAD, MEMBER, FINANCE])
def test_a_page_is_short_and_easy_to_hit(person: str, campus: str, screen: Screen) -> None:
    pages = pages_of(person)
    found: dict[str, Measured] = {}
    steps = lambda page: found.update(  # noqa: E731
        measure_all(page, pages, tabs=person == ADMIN)
    )
    visit(campus, screen, person, steps, width=DESK)
    breaches = {
        name: "; ".join(one.breaches(HOME if name == "home" else USUAL))
        for name, one in found.items()
    }
    assert not any(breaches.values()), "\n".join(
        f"{n}: {text}" for n, text in breaches.items() if text
    )


@pytest.mark.parametrize(
    ("person", "path"),
    [
        *((person, "/") for person in (ADMIN, LEAD, FINANCE)),
        (LEAD, "/capacity/teams/speech/statement/"),
        (FINANCE, "/costs/report/2026-10/"),
    ],
    ids=["home of an admin", "home of a lead", "home of finance", "statement", "report"],
)
def test_home_and_statement_print_on_one_page(
    person: str, path: str, campus: str, screen: Screen
) -> None:
    papers: list[bytes] = []

    def steps(page: Page) -> None:
        page.goto(path)
        settle(page)
        papers.append(page.pdf(format="A4", prefer_css_page_size=True))

    visit(campus, screen, person, steps, width=DESK)
    assert len(re.findall(rb"/Type /Page\b", papers[0])) == 1
    for box in re.findall(rb"/MediaBox \[([^\]]+)\]", papers[0]):
        assert sorted(map(float, box.split()))[2:] == pytest.approx(A4, abs=1)


@pytest.mark.skipif(not REMAKE, reason="make pictures takes them")
@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_is_pictured(
    dark: bool, width: int, campus: str, screen: Screen, settings: Settings
) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    look = f"{width}-{'dark' if dark else 'light'}"
    steps = partial(take_pictures, pages=campus_pages(), look=look, settings=settings)
    visit(campus, screen, ADMIN, steps, width=width, dark=dark)
    files = sorted(file.name for file in FOLDER.glob("*.png"))
    images = "".join(f'<h2>{name}</h2><img src="{name}" alt="">\n' for name in files)
    (FOLDER / "index.html").write_text(f"<!doctype html>\n{images}", encoding="utf-8")


def take_pictures(page: Page, *, pages: Mapping[str, str], look: str, settings: Settings) -> None:
    """Take a picture of every page, as wide as it is: what sticks out is seen."""
    for name, address in pages.items():
        settings.DEBUG = name == "styleguide"
        page.goto(address)
        settle(page)
        draw_all(page)
        page.evaluate("document.fonts.ready.then(() => scrollTo(0, 0))")
        wide, height = page.evaluate(
            "(root => [root.scrollWidth, root.scrollHeight])(document.documentElement)"
        )
        page.screenshot(
            path=FOLDER / f"{name}-{look}.png",
            clip={"x": 0, "y": 0, "width": wide, "height": min(height, TALLEST_PICTURE)},
            full_page=True,
            animations="disabled",
        )
