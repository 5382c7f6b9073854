"""The first run: what the checklist says as the portal comes to life."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from apps.clusters.domain.window import Window
from apps.clusters.models import WatchCoverage
from apps.operations.selectors import ClusterProgress, LoadedCatalog
from apps.web.components.page_query import href
from apps.web.data_quality.readiness import is_over, steps
from tests.factories import make_portal, make_user, note_collection
from tests.web.pages import text_of

SignIn = Callable[[User], Client]
NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
LOADED = LoadedCatalog(clusters=1, tiers=2, teams=3)


def progress(**values: Any) -> ClusterProgress:
    given: dict[str, Any] = {
        "cluster": "west",
        "has_api": True,
        "watched_until": NOW,
        "collect_from": None,
        "first_hour": NOW - timedelta(hours=10),
        "last_hour": NOW - timedelta(hours=1),
        "due_hours": 10,
        "done_hours": 10,
        "failed_hours": 0,
        "last_attempt": NOW,
        "leased_until": None,
        "error": "",
    }
    return ClusterProgress(**(given | values))


@pytest.mark.parametrize(
    ("loaded", "clusters", "states"),
    [
        pytest.param(LoadedCatalog(0, 0, 0), [], ["todo"] * 4, id="nothing yet"),
        pytest.param(
            LOADED,
            [progress(watched_until=None, due_hours=0, done_hours=0)],
            ["done", "todo", "todo", "todo"],
            id="a catalog alone",
        ),
        pytest.param(
            LOADED,
            [progress(done_hours=0)],
            ["done", "working", "done", "working"],
            id="the first hour on its way",
        ),
        pytest.param(
            LOADED,
            [progress(done_hours=0, failed_hours=10, error="it answered 503")],
            ["done", "failed", "done", "failed"],
            id="Prometheus away",
        ),
        pytest.param(
            LOADED, [progress(done_hours=4)], ["done", "done", "done", "working"], id="backfill"
        ),
        pytest.param(
            LOADED,
            [progress(watched_until=NOW - timedelta(hours=1))],
            ["done", "done", "failed", "done"],
            id="watch away",
        ),
        pytest.param(
            LOADED,
            [progress(has_api=False, watched_until=None)],
            ["done", "done", "done", "done"],
            id="metrics only",
        ),
    ],
)
def test_each_step_says_how_it_stands(
    loaded: LoadedCatalog, clusters: list[ClusterProgress], states: list[str]
) -> None:
    checklist = steps(loaded, clusters, NOW)
    assert [step.state for step in checklist] == states
    assert is_over(checklist) == (set(states) == {"done"})


def test_what_is_to_be_done_comes_with_its_command_and_what_failed_with_its_reason() -> None:
    (catalog, *_) = steps(LoadedCatalog(0, 0, 0), [], NOW)
    assert catalog.command == "python manage.py load_catalog catalog.yaml"
    failed = steps(LOADED, [progress(done_hours=0, failed_hours=10, error="it answered 503")], NOW)
    assert failed[1].say == "it answered 503"
    assert failed[1].command == "python manage.py backfill --cluster west --days 1"


def test_hours_are_drawn_as_a_part_of_those_that_are_due() -> None:
    hours = steps(LOADED, [progress(done_hours=4)], NOW)[-1]
    assert (hours.done_hours, hours.due_hours) == (4, 10)
    assert hours.say == "4 of 10 hours collected."


def test_an_empty_portal_shows_an_admin_the_checklist(db: None, signed_in: SignIn) -> None:
    page = text_of(signed_in(make_user("root", Role.ADMIN)), "/first-run/")
    assert "load_catalog" in page
    assert 'hx-trigger="every 10s"' in page


def test_others_read_a_sentence_and_no_errors(db: None, signed_in: SignIn) -> None:
    portal = make_portal()
    note_collection(portal.clusters[0], NOW, state="failed", error="http://west.example said no")
    page = text_of(signed_in(portal.finn), "/first-run/")
    assert "An administrator is setting up the portal" in page
    assert "west.example" not in page
    assert "west.example" in text_of(signed_in(portal.cleo), "/first-run/")


def test_progress_is_shown_per_cluster(db: None, signed_in: SignIn) -> None:
    portal = make_portal()
    west, east = portal.clusters
    WatchCoverage.objects.create(
        cluster=west, start=timezone.now() - timedelta(hours=1), end=timezone.now()
    )
    for hours in range(1, 5):
        state = "complete" if hours < 4 else "waiting"
        note_collection(west, NOW - timedelta(hours=hours), state=state)
    page = text_of(signed_in(portal.cleo), "/first-run/")
    assert '<progress max="4" value="3" aria-label="Hours of west: 3 of 4">' in page
    assert f"backfill --cluster {east.name} --days 14" in page
    assert "The watch follows the Kubernetes API." in page


def test_a_portal_with_facts_leads_on(db: None, signed_in: SignIn) -> None:
    portal = make_portal(since=NOW - timedelta(days=1))
    portal.collect(Window(NOW - timedelta(hours=1), NOW))
    assert "Open Home" in text_of(signed_in(portal.cleo), "/first-run/")
    assert "Open Home" in text_of(signed_in(portal.dan), "/first-run/")


def test_hours_that_failed_say_why_and_where_to_read_on() -> None:
    (step,) = (
        step
        for step in steps(
            LOADED, [progress(done_hours=8, failed_hours=2, error="it said 503")], NOW
        )
        if step.id == "hours-west"
    )
    assert step.say == "8 of 10 hours collected. 2 hours failed: it said 503"
    assert (step.state, step.page) == ("failed", "data-quality")
    assert href(step.page) == "/admin/data-quality/"
