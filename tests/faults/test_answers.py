"""Answers that are refused, cut off, replaced or changed: the facts are those without faults."""

import pytest
from pytest_django import DjangoDbBlocker

from apps.clusters.adapters.prometheus import client
from tests.faults.collecting import collecting
from tests.faults.facts import Facts, differences
from tests.faults.proxy import BODY_FAULTS, HARMLESS, Fault, Proxy, Spoiled

pytestmark = [pytest.mark.django_db, pytest.mark.long]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT_SECONDS", 0.0)


@pytest.fixture(scope="module")
def quiet(door: Proxy, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Facts:
    """Return the facts of a run without faults."""
    with django_db_blocker.unblock(), collecting(door) as portal:
        return portal.run()


@pytest.mark.parametrize(
    "seed",
    # One of them for every check: the one that has found most so far.
    [pytest.param(n, marks=() if n == 6 else pytest.mark.exhaustive) for n in range(1, 41)],
)
def test_spoiled_answers_change_no_fact(door: Proxy, quiet: Facts, seed: int) -> None:
    with collecting(door, Spoiled(seed, (*BODY_FAULTS, *HARMLESS))) as portal:
        found = portal.run()
    assert len(door.faults) == len(BODY_FAULTS) + len(HARMLESS)
    assert differences(quiet, found) == []


@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=() if n == 6 else pytest.mark.exhaustive) for n in range(1, 21)],
)
def test_answers_of_a_store_that_was_away_leave_nothing_behind(
    door: Proxy, quiet: Facts, seed: int
) -> None:
    with collecting(door, Spoiled(seed, (Fault.DROPPED,))) as portal:
        found = portal.run()
    assert door.faults[Fault.DROPPED]
    assert differences(quiet, found) == []


def test_the_comparison_sees_facts_of_every_room(quiet: Facts) -> None:
    told = {table for table, rows in quiet.items() if rows}
    assert {
        *("clusters_pod", "clusters_device", "usage_podhour", "usage_tierhour", "usage_teamday"),
        *(
            "pending_causeinterval",
            "quotas_quotahour",
            "fairness_fairnesswindow",
            "costs_pricedhour",
        ),
    } <= told
