"""Answers that are refused, cut off, replaced or changed: the facts are those without faults."""

import pytest

from tests.faults.collecting import collecting
from tests.faults.facts import Facts, differences
from tests.faults.proxy import BODY_FAULTS, HARMLESS, Fault, Proxy, Spoiled

pytestmark = [pytest.mark.django_db, pytest.mark.long, pytest.mark.usefixtures("no_pauses")]


@pytest.mark.parametrize(
    "seed",
    # One of them for every check: the one that has found most so far.
    [pytest.param(n, marks=() if n == 6 else pytest.mark.exhaustive) for n in range(1, 41)],
)
def test_spoiled_answers_change_no_fact(door: Proxy, quiet_run: Facts, seed: int) -> None:
    with collecting(door, Spoiled(seed, (*BODY_FAULTS, *HARMLESS))) as portal:
        found = portal.run()
    assert len(door.faults) == len(BODY_FAULTS) + len(HARMLESS)
    assert differences(quiet_run, found) == []


@pytest.mark.parametrize(
    "seed",
    # The second is one that does not answer for inference services or errors of GPUs.
    [pytest.param(n, marks=() if n == 2 else pytest.mark.exhaustive) for n in range(1, 21)],
)
def test_answers_of_a_store_that_was_away_leave_nothing_behind(
    door: Proxy, quiet_run: Facts, seed: int
) -> None:
    with collecting(door, Spoiled(seed, (Fault.DROPPED,))) as portal:
        found = portal.run()
    assert door.faults[Fault.DROPPED]
    assert differences(quiet_run, found) == []


def test_the_comparison_sees_facts_of_every_room(quiet_run: Facts) -> None:
    told = {table for table, rows in quiet_run.items() if rows}
    assert {
        *("clusters_pod", "clusters_device", "usage_podhour", "usage_tierhour", "usage_teamday"),
        *(
            "pending_causeinterval",
            "quotas_quotahour",
            "fairness_fairnesswindow",
            "costs_pricedhour",
        ),
    } <= told
