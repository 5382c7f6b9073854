"""A portal with facts, people signed in, and a browser that looks at it."""

import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime, timedelta

import pytest
from django.conf import settings as project
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client
from msgspec import Struct, field
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response, sync_playwright
from pytest_django import Settings

from apps.accounts.domain.identity import read_rules
from apps.accounts.models import User
from apps.clusters.domain.pods.people import person_sources
from apps.clusters.domain.window import Window, day_start
from apps.clusters.models import Pod, PodPerson
from apps.web.accounts.single_sign_on import CONFIGURATIONS
from gpuportal.people import People
from gpuportal.single_sign_on import SingleSignOn
from tests import factories
from tests.costs.portal import Priced, make_priced
from tests.factories import Portal
from tests.programs import find
from tests.quota_requests import portal as quota_portal
from tests.shared_rows import copy_of, shared
from tests.sign_in_provider import CLIENT_ID, CLIENT_SECRET, Provider, running_provider
from tests.web.alerts import Board, make_board
from tests.web.axe import cookie_of
from tests.web.devices import make_devices
from tests.web.entitlements import make_promises
from tests.web.in_transaction import Gate, serving_in_transaction
from tests.web.pending import look, make_waiting
from tests.web.signing_in import ADA, RULES

# Four local days of Berlin; the 26th has 25 hours. Long past, so that no test waits for a clock.
FIRST, LAST = date(2025, 10, 24), date(2025, 10, 27)
HOURLY = "first=2025-10-25&last=2025-10-27"
DAILY = "first=2025-10-24&last=2025-10-27"
ERROR = "Prometheus at http://west.example:9090 answered 503: check that it runs."
FAILED = datetime(2025, 10, 25, 0, tzinfo=UTC)  # 02:00 in Berlin
MISSING = datetime(2025, 10, 25, 1, tzinfo=UTC)  # 03:00 in Berlin

LOOKED = datetime(2025, 10, 27, 22, 55, tzinfo=UTC)

ROLES = {"lead": "ada", "member": "ben", "outsider": "dan", "admin": "cleo", "finance": "finn"}
PERSONS = {
    "uid-train-0": "ben",
    "uid-train-1": "ben",
    "uid-train-2": "ben",
    "uid-serve-abc": "ada",
    "uid-notes-0": "d.king@campus.example",
    "uid-notes-east-0": "ghost",
    # A pod of another team may name anybody: whoever makes it writes the label.
    "uid-bare": "ben",
}
"""Pod → who is behind it, where the portal keeps that."""


def make_filled_portal() -> Portal:
    """Make the small portal with facts from FIRST to LAST; one hour failed, one is missing."""
    portal = factories.make_portal(since=datetime(2025, 10, 20, tzinfo=UTC))
    window = Window(day_start(FIRST, portal.zone), day_start(LAST + timedelta(days=1), portal.zone))
    hours = [h for h in factories.hours_of(window) if h not in {FAILED, MISSING}]
    factories.collect(hours, portal.node_gpus, portal.facts_of, zone=portal.zone)
    for cluster in portal.clusters:
        factories.note_collection(cluster, FAILED, state="failed", error=ERROR, attempts=3)
    make_devices(portal, LOOKED)
    make_waiting(portal, LOOKED)
    look(portal.clusters, LOOKED)
    make_promises(portal, now=LOOKED)
    return portal


_facts = shared(make_filled_portal)


@pytest.fixture
def portal(_facts: Portal, db: None) -> Portal:
    """Return the filled portal; what a test changes in the database is undone after it."""
    return _facts


def session_of(user: User) -> str:
    """Return the key of a session of somebody.

    It is written alone: signing in as people do takes fourteen statements, and has its own tests.
    """
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = project.AUTHENTICATION_BACKENDS[-1]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return str(session.session_key)


def client_of(session: str) -> Client:
    """Return a client with the key of a session."""
    client = Client()
    client.cookies[project.SESSION_COOKIE_NAME] = session
    return client


@pytest.fixture
def signed_in() -> Callable[[User], Client]:
    """Return a function that gives a client of somebody who is signed in."""
    return lambda user: client_of(session_of(user))


_priced = shared(make_priced)
# Its hours have prices; a test may change what it holds.
priced = copy_of("_priced")


@pytest.fixture
def finance(priced: Priced, signed_in: Callable[[User], Client]) -> Client:
    """Return a client of the finance person of the portal with prices."""
    return signed_in(priced.portal.finn)


@pytest.fixture
def ada(portal: Portal, signed_in: Callable[[User], Client]) -> Client:
    """Return a client of the lead of the portal's team."""
    return signed_in(portal.ada)


@pytest.fixture
def clients(portal: Portal, signed_in: Callable[[User], Client]) -> dict[str, Client]:
    """Return a client of a person of each role in the filled portal."""
    return {role: signed_in(getattr(portal, name)) for role, name in ROLES.items()}


@pytest.fixture
def named(portal: Portal, settings: Settings) -> Portal:
    """Return the filled portal, which keeps who is behind its pods."""
    settings.PEOPLE = People(person_sources(["created-by"]), days=36_500, cap_gpus=4.0)
    pods = dict(Pod.objects.values_list("uid", "pk"))
    PodPerson.objects.bulk_create(
        PodPerson(pod_id=pods[uid], person=person) for uid, person in PERSONS.items()
    )
    return portal


@pytest.fixture
def board(portal: Portal) -> Board:
    """Return what was said in the portal."""
    return make_board(portal)


@pytest.fixture
def quota() -> quota_portal.Portal:
    """Return a portal whose cluster nobody can ask."""
    return quota_portal.as_of_now(quota_portal.make_portal(None))


@pytest.fixture
def asked() -> Iterator[quota_portal.Portal]:
    """Return a portal whose cluster answers."""
    with quota_portal.served_portal() as served:
        yield quota_portal.as_of_now(served)


@pytest.fixture
def provider(db: None, settings: Settings) -> Iterator[Provider]:
    """Return a provider on the loopback by which people sign in."""
    CONFIGURATIONS.forget()  # an address may come back with another provider behind it
    with running_provider() as running:
        running.claims = dict(ADA)
        settings.SINGLE_SIGN_ON = SingleSignOn(
            issuer=running.url,
            client_id=CLIENT_ID,
            client_secret=CLIENT_SECRET,
            name="Example Login",
            rules=read_rules(RULES),
        )
        yield running


@pytest.fixture
def admin(portal: Portal, signed_in: Callable[[User], Client]) -> Client:
    """Return a client of an admin of the filled portal."""
    return signed_in(portal.cleo)


# ---------------------------------------------------------------- browser


# htmx says so when a page is left while it refreshes itself. A request that fails says more.
LEFT = ("htmx:sendAbort", "htmx:afterRequest")


class Visit(Struct, dict=True):
    """A page in the browser, and everything that went wrong on it so far."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)
    unanswered: list[Request] = field(default_factory=list)

    def note_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(LEFT):
            self.problems.append(f"console {message.type}: {message.text}")

    def note_request(self, request: Request) -> None:
        self.unanswered.append(request)
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.problems.append(f"a request leaves the host: {request.url}")

    def note_response(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.status} for {response.url}")

    def note_crash(self, error: object) -> None:
        self.problems.append(f"script error: {error}")

    def note_end(self, request: Request) -> None:
        if request in self.unanswered:  # one that began before the visit is not
            self.unanswered.remove(request)

    def state(self) -> str:
        """Return what the browser waits for, and where each thread of the server is."""
        frames = sys._current_frames().values()
        stacks = ["".join(traceback.format_stack(frame)[-4:]) for frame in frames]
        urls = [request.url for request in self.unanswered]
        return "\n".join([f"Unanswered: {urls}", *stacks])

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what goes wrong until the end of the block."""
        with ExitStack() as until_end:
            for event, note in (
                ("console", self.note_console),
                ("request", self.note_request),
                ("response", self.note_response),
                ("pageerror", self.note_crash),
                ("requestfinished", self.note_end),
                ("requestfailed", self.note_end),
            ):
                self.page.on(event, note)  # type: ignore[call-overload]
                until_end.callback(self.page.remove_listener, event, note)
            yield


PATIENCE = 120_000
"""Milliseconds. A machine that stands still for a while is no fault of a page: what hangs is."""
# A page that shows no document has no storage.
FORGET = "() => { try { localStorage.clear(); sessionStorage.clear(); } catch {} }"


class Screen:
    """A browser in a thread of its own.

    Playwright's sync interface keeps an event loop running in its thread, in which Django refuses
    to touch the database. Kept apart, neither has to be told to look away.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="browser")
        self._playwright = self._thread.submit(lambda: sync_playwright().start()).result()
        self._browser: Browser = self._thread.submit(self._launch).result()
        # (Address of the server, whether scripts run) → a window that nobody looks at.
        self._left: dict[tuple[str, bool], Page] = {}

    def _launch(self) -> Browser:
        return self._playwright.chromium.launch(
            executable_path=str(find("chromium")), args=["--no-sandbox"]
        )

    def close(self) -> None:
        self._thread.submit(self._browser.close).result()
        self._thread.submit(self._playwright.stop).result()
        self._thread.shutdown()

    def visit(
        self,
        url: str,
        steps: Callable[[Page], None],
        *,
        person: str = "",
        width: int = 1280,
        dark: bool = False,
        scripts: bool = True,
        provoked: tuple[str, ...] = (),
        left_as_found: bool = True,
    ) -> None:
        """Take the steps as somebody who was never here, and fail on what the pages got wrong.

        A `person` is signed in before the first step. Problems that hold one of the texts
        `provoked` are what the steps are about. A window that steps change for good is not
        `left_as_found`.
        """

        # Here: the browser's thread must not touch the database.
        session = [cookie_of(person, url)] if person else []

        def run() -> list[str]:
            page = self._window(url, scripts=scripts)
            page.context.add_cookies(session)
            visit = Visit(page, url)
            try:
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(media="null", color_scheme="dark" if dark else "light")
                with visit.watched():
                    steps(page)
            except BaseException as error:
                error.add_note(visit.state())
                page.context.close()
                raise
            if left_as_found:
                self._leave(page)
                self._left[url, scripts] = page
            else:
                page.context.close()
            return visit.problems

        problems = self._thread.submit(run).result()
        assert [p for p in problems if not any(text in p for text in provoked)] == []

    def _window(self, url: str, *, scripts: bool) -> Page:
        """Return a window that was left, or a new one: which takes the browser a second."""
        if (url, scripts) in self._left:
            return self._left.pop((url, scripts))
        for key in [key for key in self._left if key[0] != url]:
            self._left.pop(key).context.close()
        context = self._browser.new_context(
            base_url=url, java_script_enabled=scripts, locale="en-US"
        )
        context.set_default_timeout(PATIENCE)
        return context.new_page()

    def _leave(self, page: Page) -> None:
        """Make a window forget who was there, but for the files that it keeps by their address."""
        for other in page.context.pages:
            if other is not page:
                other.close()
        page.unroute_all(behavior="ignoreErrors")
        page.mouse.move(0, 0)
        page.evaluate(FORGET)
        page.goto("about:blank")
        page.context.clear_permissions()
        page.context.clear_cookies()


@pytest.fixture(scope="session")
def screen() -> Iterator[Screen]:
    browser = Screen()
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def _serving(django_db_setup: None) -> Iterator[tuple[str, Gate]]:
    gate = Gate()
    with serving_in_transaction(gate) as address:
        yield address, gate


@pytest.fixture
def address(_serving: tuple[str, Gate], db: None, settings: Settings) -> Iterator[str]:
    """Yield the address of a live server that sees what the test has in the database."""
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "localhost"]
    address, gate = _serving
    with gate.open():
        yield address


@pytest.fixture
def served(portal: Portal, address: str) -> str:
    """Return the address of a live server whose portal is filled."""
    return address
