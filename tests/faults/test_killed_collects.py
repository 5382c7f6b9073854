"""Collecting and deriving that are killed at any moment: the facts are those of a quiet run."""

import re
from collections.abc import Iterator
from functools import partial

import pytest
from msgspec import Struct
from pytest_django import DjangoDbBlocker

from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow
from tests.faults.collecting import HOURS, Collecting, doors
from tests.faults.facts import Facts, facts
from tests.faults.kills import Killable
from tests.faults.page_texts import PageTexts
from tests.faults.stages import CLOSED, DAY_AFTER, LEASES, beat, collected, portal_at, watched

pytestmark = [pytest.mark.django_db, pytest.mark.long]


DAY = "?first=2026-10-01&last=2026-10-01"
ALLOCATED = re.compile(r"Allocated average (\d+) %")


def check_home(portal: Collecting) -> None:
    """Home has the hours that are whole, says that others lack, and shows no zero for them."""
    with pytest.MonkeyPatch.context() as patch:
        home = PageTexts(portal, patch).text(f"/{DAY}")
    whole = CollectionWindow.objects.filter(state=CollectionState.COMPLETE).count()
    assert ("No hour has been collected yet." in home) == (whole == 0)
    assert ("missing: 1 Oct 0" in home) == (0 < whole < len(HOURS))
    assert all(int(one) > 20 for one in ALLOCATED.findall(home)), home
    assert bool(ALLOCATED.findall(home)) == bool(whole)


def beat_after_leases(portal: Collecting) -> None:
    check_home(portal)
    portal.clock.advance(LEASES.total_seconds())
    beat(portal)
    found = list(CollectionWindow.objects.order_by("hour").values_list("hour", "state"))
    assert found == [(hour.start, CollectionState.COMPLETE) for hour in HOURS]
    check_home(portal)


def derive_after_leases(portal: Collecting) -> None:
    portal.clock.advance(LEASES.total_seconds())
    assert portal.derive()


def all_facts(_: Collecting) -> Facts:
    return facts()


class Steps(Struct, frozen=True):
    collect: Killable[Collecting]
    derive: Killable[Collecting]


@pytest.fixture(scope="module")
def steps(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Steps]:
    """Return the steps, each upon a database in which the ones before were not disturbed."""
    folder = tmp_path_factory.mktemp("databases")
    with (
        django_db_blocker.unblock(),
        doors() as door,
        watched(door, folder) as before,
        collected(door, folder, before) as after,
    ):
        yield Steps(
            Killable(
                *(door, folder, before, partial(portal_at, door, CLOSED)),
                act=beat,
                go_on=beat_after_leases,
                look=all_facts,
            ),
            Killable(
                *(door, folder, after, partial(portal_at, door, DAY_AFTER)),
                act=Collecting.derive,
                go_on=derive_after_leases,
                look=all_facts,
            ),
        )


def test_a_collect_that_is_killed_is_done_when_its_lease_is_over(steps: Steps) -> None:
    steps.collect.check(most=4)


def test_what_follows_from_hours_is_whole_after_a_kill(steps: Steps) -> None:
    steps.derive.check(most=2)


@pytest.mark.exhaustive
def test_a_collect_is_killed_at_many_statements_and_requests(steps: Steps) -> None:
    steps.collect.check(most=80, seed=2)


@pytest.mark.exhaustive
def test_deriving_is_killed_at_many_statements_and_requests(steps: Steps) -> None:
    steps.derive.check(most=40, seed=2)
