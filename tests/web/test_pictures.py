"""The pictures of the documentation: made by a browser here, and never stale.

`make pictures` makes them again. Otherwise each page is looked at anew and held against what its
picture was taken of: the outline of its text, which must be the same, and roughly its looks, which
may differ by as much as another version of the browser or other fonts bring along.
"""

import base64
import difflib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from playwright.sync_api import Page
from pytest_django.live_server_helper import LiveServer

from tests.servers import ROOT
from tests.web.conftest import Screen
from tests.web.picture_portal import NOW, fill_picture_portal
from tests.web.test_browser import draw_all

pytestmark = pytest.mark.long

FOLDER = ROOT / "docs" / "pictures"
OUTLINES = FOLDER / "pictures.json"
REMAKE = os.environ.get("GPUPORTAL_MAKE_PICTURES") == "1"
MOST_BYTES = 200_000
ADVICE = "look at the page, and if it is as it should be, run: make pictures"

# A grid of mean colours stands for the looks of a picture; so many cells of it may differ, each
# by this much of 255. Another font moves edges by a pixel, another design changes whole areas.
COLUMNS, ROWS = 36, 24
MOST_CELLS, MOST_DIFFERENCE = 0.08, 24
GRID = """async ([address, columns, rows]) => {
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const brush = canvas.getContext("2d");
  brush.imageSmoothingQuality = "high";
  brush.drawImage(image, 0, 0, columns, rows);
  return [image.width, image.height, [...brush.getImageData(0, 0, columns, rows).data]];
}"""


class Picture(Struct, frozen=True):
    """`height` in pixels is how much of the page is shown, from its top."""

    name: str
    address: str
    height: int
    phone: bool = False


PICTURES = (
    Picture("overview", "/?window=7d", 760),
    Picture("tier", "/capacity/tiers/exclusive-a100/?window=7d", 1050),
    Picture("explain", "/explain/?figure=idle_gpu_hours&tier=exclusive-a100&window=7d", 1050),
    Picture("data-health", "/admin/data-quality/?window=7d", 900),
    Picture("tier-catalog", "/capacity/tiers/", 900),
    Picture("overview-phone", "/?window=7d", 844, phone=True),
)


class Look(Struct, frozen=True):
    """A page as it is now; `grids` are [width, height, colours] of it and of the kept picture."""

    png: bytes
    outline: list[str]
    grids: tuple[list[Any], list[Any] | None]


@pytest.fixture
def pictured(
    transactional_db: None, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Return the address of a portal that is filled, and whose clock stands still."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    fill_picture_portal()
    return str(live_server.url)


def file_of(picture: Picture) -> Path:
    return FOLDER / f"{picture.name}.png"


def take(page: Page, picture: Picture) -> Look:
    """Look at a page until it stands still, then take its picture and its outline."""
    page.set_viewport_size({"width": page.viewport_size["width"], "height": picture.height})  # type: ignore[index]
    page.goto(picture.address)
    draw_all(page)
    page.evaluate("document.fonts.ready.then(() => scrollTo(0, 0))")
    page.wait_for_load_state("networkidle")
    outline = outline_of(page)
    png = page.screenshot(animations="disabled", caret="hide")
    kept = file_of(picture).read_bytes() if file_of(picture).exists() else None
    blank = page.context.new_page()
    grids = grid_of(blank, png), grid_of(blank, kept) if kept else None
    blank.close()
    return Look(png, outline, grids)


def outline_of(page: Page) -> list[str]:
    """Return the roles and texts of a page, a line each, without its addresses."""
    lines = page.locator("main").aria_snapshot().splitlines()
    return [line.strip() for line in lines if not line.lstrip().startswith("- /url:")]


def grid_of(page: Page, png: bytes) -> list[Any]:
    """Return width, height and the mean colours (RGBA, 0..255) of a grid over a picture."""
    address = "data:image/png;base64," + base64.b64encode(png).decode()
    grid: list[Any] = page.evaluate(GRID, [address, COLUMNS, ROWS])
    return grid


def looks(pictured: str, screen: Screen) -> Iterator[tuple[Picture, Look]]:
    """Yield every picture with the page as it is now."""
    taken: list[tuple[Picture, Look]] = []

    def visit(pictures: list[Picture], width: int, *, dark: bool) -> None:
        def steps(page: Page) -> None:
            taken.extend((picture, take(page, picture)) for picture in pictures)

        screen.visit(pictured, steps, person="morgan", width=width, dark=dark)

    visit([p for p in PICTURES if not p.phone], 1440, dark=False)
    visit([p for p in PICTURES if p.phone], 390, dark=True)
    yield from taken


def differences(picture: Picture, look: Look, outline: list[str]) -> Iterator[str]:
    """Yield what a reader would find different between the kept picture and the page."""
    if look.outline != outline:
        changed = difflib.unified_diff(outline, look.outline, "kept", "now", lineterm="", n=0)
        yield f"{picture.name}: its text changed\n" + "\n".join([*changed][:20])
    now, kept = look.grids
    if kept is None:
        yield f"{picture.name}: there is no picture"
    elif now[:2] != kept[:2]:
        yield f"{picture.name}: its size was {kept[:2]} and is {now[:2]}"
    elif (part := part_that_differs(now[2], kept[2])) > MOST_CELLS:
        yield f"{picture.name}: {part:.0%} of it look different"


def part_that_differs(one: list[int], other: list[int]) -> float:
    """Return which part, 0..1, of the colours of two grids are far from each other."""
    far = sum(abs(a - b) > MOST_DIFFERENCE for a, b in zip(one, other, strict=True))
    return far / len(one)


def keep(taken: list[tuple[Picture, Look]]) -> None:
    """Write the pictures and what they were taken of."""
    FOLDER.mkdir(exist_ok=True)
    for picture, look in taken:
        file_of(picture).write_bytes(look.png)
    outlines = {picture.name: look.outline for picture, look in taken}
    OUTLINES.write_text(json.dumps(outlines, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@pytest.mark.browser
def test_the_pictures_show_the_pages_as_they_are(pictured: str, screen: Screen) -> None:
    taken = list(looks(pictured, screen))
    if REMAKE:
        keep(taken)
    outlines = json.loads(OUTLINES.read_text(encoding="utf-8"))
    found = [
        difference
        for picture, look in taken
        for difference in differences(picture, look, outlines.get(picture.name, []))
    ]
    # What was just kept is the page itself, but the kept grid was read before it was written.
    assert REMAKE or not found, "\n".join([*found, ADVICE])


def test_every_picture_is_small_and_shown_in_a_document_with_words_for_it() -> None:
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    shown = {
        (document.parent / target).resolve()
        for document in documents
        for words, target in re.findall(
            r"!\[([^\]]*)\]\(([^)]+\.png)\)", document.read_text(encoding="utf-8")
        )
        if len(words) > 20
    }
    kept = set(FOLDER.glob("*.png"))
    assert kept == {file_of(picture) for picture in PICTURES}
    assert kept <= shown
    assert [path.name for path in kept if path.stat().st_size > MOST_BYTES] == []


@pytest.mark.parametrize(
    ("other", "part"),
    [
        pytest.param([200, 100, 50, 255], 0.0, id="the same"),
        pytest.param([190, 110, 60, 255], 0.0, id="another font"),
        pytest.param([20, 100, 50, 255], 0.25, id="another colour"),
        pytest.param([10, 20, 250, 255], 0.75, id="another design"),
    ],
)
def test_looks_are_compared_area_by_area(other: list[int], part: float) -> None:
    assert part_that_differs([200, 100, 50, 255], other) == part
