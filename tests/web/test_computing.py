"""A page whose figures are still being computed says so, and looks again by itself."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from apps.costs.models import RecommendationRun
from apps.costs.services import price_hours
from apps.usage.models import CollectionWindow
from tests.factories import Portal, note_collection
from tests.web.conftest import DAILY, FAILED, MISSING
from tests.web.pages import text_of

COSTS, FAIRNESS, QUOTAS = (f"/{page}/?{DAILY}" for page in ("costs", "capacity/fairness", "quotas"))
POLLS = 'hx-trigger="every 10s"'


def collected_just_now(portal: Portal) -> int:
    """Let all hours be collected a moment ago; return how many they are."""
    return CollectionWindow.objects.exclude(state="failed").update(collected_at=datetime.now(UTC))


@pytest.mark.parametrize(
    ("address", "figure"),
    [(COSTS, "costs"), (FAIRNESS, "fairness"), (QUOTAS, "quota usage")],
)
def test_a_figure_that_is_being_computed_is_named_with_how_far_it_is(
    admin: Client, portal: Portal, address: str, figure: str
) -> None:
    collected_just_now(portal)
    page = text_of(admin, address)

    assert f"Computing {figure}: " in page
    assert POLLS in page
    assert f'href="{address.replace("&", "&amp;")}">Refresh</a>' in page


def test_a_home_says_it_in_few_words(admin: Client, portal: Portal) -> None:
    collected_just_now(portal)
    page = text_of(admin, f"/?{DAILY}")
    told = re.search(
        r'id="computing"[^>]*><span title="([^"]+)">Computing (\d) figures?\.</span> <a', page
    )
    assert told is not None
    assert told[1].count(" h.") == int(told[2])


def test_it_goes_away_when_the_figure_is_there(admin: Client, portal: Portal) -> None:
    hours = collected_just_now(portal)
    assert f"Computing costs: 0 of {hours} h." in text_of(admin, COSTS)

    while price_hours(now=datetime.now(UTC)):
        pass

    assert POLLS not in text_of(admin, COSTS)


def test_months_say_that_their_costs_are_being_computed(admin: Client, portal: Portal) -> None:
    now = datetime.now(UTC)
    hour = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    note_collection(portal.clusters[0], hour)
    CollectionWindow.objects.filter(hour=hour).update(collected_at=now)

    page = text_of(admin, "/costs/exports/?tab=months")
    assert "Computing costs: 0 of 1 h." in page
    assert 'hx-select="#months"' in page


def test_what_was_never_computed_is_not_said_to_be_under_way(admin: Client, portal: Portal) -> None:
    CollectionWindow.objects.update(collected_at=datetime.now(UTC) - timedelta(hours=1))

    assert POLLS not in text_of(admin, COSTS)


def test_hours_that_wait_are_counted_while_others_are_collected(
    admin: Client, portal: Portal
) -> None:
    for hour in (FAILED, MISSING):
        note_collection(portal.clusters[0], hour, state="waiting")
    asked = CollectionWindow.objects.count()
    assert "Collecting hours" not in text_of(admin, COSTS)

    CollectionWindow.objects.filter(hour=FAILED).update(attempted_at=datetime.now(UTC))

    assert f"Collecting hours: {asked - 2} of {asked} h." in text_of(admin, COSTS)


def test_recommendations_come_when_all_hours_are_there(admin: Client, portal: Portal) -> None:
    RecommendationRun.objects.all().delete()
    hours = collected_just_now(portal)
    asked = CollectionWindow.objects.count()
    assert "Computing recommendations" not in text_of(admin, "/costs/recommendations/")

    CollectionWindow.objects.filter(hour=FAILED).update(attempted_at=datetime.now(UTC))

    found = text_of(admin, f"/costs/recommendations/?{DAILY}")
    assert f"Computing recommendations: {hours} of {asked} h." in found
