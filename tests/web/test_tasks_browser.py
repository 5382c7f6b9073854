"""The tasks that people come with, walked in a browser: clicks, pixels and words to the answer.

docs/tasks.md has the table. `make pictures` writes it from the measurement. Fonts differ between
machines, so its pixels and words are held against their limits alone, its clicks against the walk.
"""

import os
import re
from collections.abc import Callable, Iterator
from io import BytesIO
from urllib.request import urlopen
from zipfile import ZipFile

import pytest
from msgspec import Struct
from playwright.sync_api import Locator, Page, expect

from tests.servers import ROOT
from tests.shared_rows import shared
from tests.web.appearances import DESK
from tests.web.axe import settle
from tests.web.campus_portal import (
    ADMIN,
    FINANCE,
    LEAD,
    MEMBER,
    NOW,
    connect_cluster,
    fill_campus_portal,
    served_cluster,
)
from tests.web.conftest import Screen

# The portal of the demo takes half a minute to fill, for every page and for these walks alike.
pytestmark = [pytest.mark.browser, pytest.mark.long]

DOCUMENT = ROOT / "docs" / "tasks.md"
REMAKE = os.environ.get("GPUPORTAL_MAKE_PICTURES") == "1"
WORDS = "document.querySelector('main').innerText.split(/\\s+/).filter(Boolean).length"
SCREEN, TALLEST, MOST_WORDS = 900, 2000, 450


class Walk:
    """Somebody at a screen of 1440 × 900 who begins at home, and counts what it takes.

    A field that is filled or chosen counts as a click. `words` are those of `main` of every page
    on the way, `longest` those of the longest.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = self.pixels = self.words = self.longest = 0
        self._has_moved = False
        page.on("framenavigated", lambda _: setattr(self, "_has_moved", True))
        page.goto("/")
        self._read_on()

    def click(self, target: Locator) -> None:
        self._act(target, lambda: target.click())

    def fill(self, target: Locator, text: str) -> None:
        self._act(target, lambda: target.fill(text))

    def choose(self, target: Locator, option: str) -> None:
        self._act(target, lambda: target.select_option(option))

    def download(self, target: Locator) -> bytes:
        """Click what gives a file, and return the file."""
        with self.page.expect_download() as coming:
            self.click(target)
        return coming.value.path().read_bytes()

    def see(self, *answers: Locator) -> None:
        """Scroll to each part of the answer, which must be there."""
        for answer in answers:
            expect(answer).to_be_visible()
            self._scroll_to(answer)
            expect(answer).to_be_in_viewport()

    def _act(self, target: Locator, act: Callable[[], object]) -> None:
        expect(target).to_be_visible()
        self._scroll_to(target)
        self._has_moved = False
        act()
        self.clicks += 1
        if self._has_moved:
            self._read_on()

    def _scroll_to(self, target: Locator) -> None:
        before = self.page.evaluate("scrollY")
        target.scroll_into_view_if_needed()
        self.pixels += abs(round(self.page.evaluate("scrollY") - before))

    def _read_on(self) -> None:
        self.page.wait_for_load_state()
        settle(self.page)
        words = self.page.evaluate(WORDS)
        self.words += words
        self.longest = max(self.longest, words)


class Task(Struct, frozen=True):
    """A question, who has it, how they come to the answer, and what that may take at most.

    A page on the way may ask the cluster, which is served then (`asks_cluster`).
    """

    question: str
    person: str
    way: str
    walk: Callable[[Walk], None]
    clicks: int
    pixels: int = TALLEST - SCREEN
    words: int = MOST_WORDS
    asks_cluster: bool = False

    def breaches(self, taken: Walk) -> Iterator[str]:
        """Yield what the walk took more of than it may."""
        for what, found, most in (
            ("clicks", taken.clicks, self.clicks),
            ("px", taken.pixels, self.pixels),
            ("words on a page", taken.longest, self.words),
        ):
            if found > most:
                yield f"{self.question}: {found} {what}, at most {most}"


def figure(page: Page, label: str) -> Locator:
    """Return the key figure of a label."""
    return page.locator(".key-figure", has=page.get_by_text(label)).first


def read_team_figures(walk: Walk) -> None:
    labels = ("Allocated", "Utilization", "Pending", "Unused")
    walk.see(*(figure(walk.page, label) for label in labels))
    for label in labels:
        expect(figure(walk.page, label)).to_contain_text(re.compile(r"\d"))


def find_why_work_is_pending(walk: Walk) -> None:
    page = walk.page
    walk.click(figure(page, "Pending").get_by_role("link").first)
    group = page.locator(".pending-group").first
    walk.see(group)
    walk.click(group.locator("tbody a").first)
    walk.see(page.locator(".answer").first, page.get_by_text("How to fix").first)


def request_quota(walk: Walk) -> None:
    page = walk.page
    walk.click(page.get_by_role("link", name="Request change").first)
    expect(page.get_by_label("Reason")).not_to_have_value("")
    walk.click(page.get_by_role("button", name="Submit request"))
    walk.see(page.locator("#standing"))
    expect(page.locator("#standing")).to_contain_text("submitted")


def find_unfair_tier(walk: Walk) -> None:
    page = walk.page
    walk.see(page.get_by_role("columnheader", name="Overcommitment"))
    walk.click(page.locator("#heat-heading ~ div").get_by_role("link", name="Fairness"))
    walk.see(
        page.get_by_text("Unmet fair share").first,
        page.get_by_role("heading", name=re.compile("unused entitlement", re.IGNORECASE)).first,
    )


def approve_request(walk: Walk) -> None:
    page = walk.page
    walk.click(page.get_by_role("link", name="Approve:"))
    walk.click(page.get_by_role("button", name=re.compile("^Approve ?:")).first)
    walk.see(page.get_by_role("status").get_by_text("Approved; nothing is changed yet."))


def export_month_of_a_team(walk: Walk) -> None:
    page = walk.page
    walk.click(figure(page, "October").get_by_role("link"))
    walk.choose(page.get_by_label("Team").first, "speech")
    file = walk.download(page.get_by_role("button", name="Export month"))
    with ZipFile(BytesIO(file)) as book:
        sheets = b"".join(book.read(name) for name in book.namelist())
    assert b"speech" in sheets
    assert b"vision" not in sheets


def judge_data(walk: Walk) -> None:
    page = walk.page
    walk.click(page.locator("header").get_by_role("link", name="Data quality"))
    walk.see(page.locator("#verdict-title"))
    expect(page.locator("#verdict-title")).to_contain_text("checked")


def judge_workload(walk: Walk) -> None:
    page = walk.page
    walk.click(page.get_by_role("region", name="Top unused workloads").get_by_role("link").first)
    walk.see(page.get_by_text(re.compile(r"\d+ % unused")).first)


TASKS = (
    Task(
        "What do my teams hold, use, wait for and leave unused?",
        LEAD,
        "Home",
        read_team_figures,
        clicks=0,
        pixels=0,
        words=150,
    ),
    Task(
        "Why is my job pending, and how is it fixed?",
        MEMBER,
        "Home, Pending, the workload",
        find_why_work_is_pending,
        clicks=2,
    ),
    Task(
        "Request more quota.",
        LEAD,
        "Home, Request change, Submit request",
        request_quota,
        clicks=3,
        asks_cluster=True,
    ),
    Task(
        "Which tier is overcommitted or unfair, which team is short, which holds idle GPUs?",
        ADMIN,
        "Home, Fairness",
        find_unfair_tier,
        clicks=1,
    ),
    Task(
        "Approve a quota request.",
        ADMIN,
        "Home, Approvals, Approve",
        approve_request,
        clicks=2,
        asks_cluster=True,
    ),
    Task(
        "Download one team's charges of last month as XLSX.",
        FINANCE,
        "Home, October, Export month",
        export_month_of_a_team,
        clicks=3,
    ),
    Task(
        "Is the data right?",
        LEAD,
        "Home, Data quality",
        judge_data,
        clicks=1,
    ),
    Task(
        "Does my workload waste GPUs?",
        MEMBER,
        "Home, the workload",
        judge_workload,
        clicks=2,
    ),
)

_campus = shared(fill_campus_portal, early=True)


@pytest.fixture(scope="module")
def _cluster_url() -> Iterator[str]:
    with served_cluster() as url:
        # No page waits until its first state is computed.
        urlopen(f"{url}/api/v1/nodes").close()  # noqa: S310 - our own server
        yield url


@pytest.fixture
def campus(_campus: None, address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of the demo's portal, whose clock stands still."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    return address


def walked(task: Task, campus: str, screen: Screen) -> Walk:
    """Walk a task as its person; anything that goes wrong on a page fails."""
    walks: list[Walk] = []

    def steps(page: Page) -> None:
        walks.append(Walk(page))
        task.walk(walks[0])

    screen.visit(campus, steps, person=task.person, width=DESK)
    return walks[0]


def row_of(task: Task, taken: Walk) -> str:
    cells = (
        task.question,
        task.person,
        task.way,
        f"{taken.clicks} of {task.clicks}",
        f"{taken.pixels:,} of {task.pixels:,}",
        f"{taken.words:,}",
    )
    return f"| {' | '.join(cells)} |"


# A cluster takes seconds to begin with: it is asked first, where the portal was filled from it.
FIRST = [task for task in TASKS if task.asks_cluster]


@pytest.mark.parametrize(
    "task", dict.fromkeys([*FIRST, *TASKS]), ids=lambda task: task.walk.__name__
)
def test_the_answer_is_near(
    task: Task, campus: str, screen: Screen, request: pytest.FixtureRequest
) -> None:
    if task.asks_cluster:
        connect_cluster(request.getfixturevalue("_cluster_url"))
    taken = walked(task, campus, screen)
    row = row_of(task, taken)
    text = DOCUMENT.read_text(encoding="utf-8")
    beginning = f"| {task.question} |"
    (kept,) = [line for line in text.splitlines() if line.startswith(beginning)] or [""]
    if REMAKE:
        DOCUMENT.write_text(text.replace(kept, row), encoding="utf-8")
        kept = row
    assert not [*task.breaches(taken)]
    assert kept.split("|")[:5] == row.split("|")[:5], f"docs/tasks.md says otherwise: {row}"
