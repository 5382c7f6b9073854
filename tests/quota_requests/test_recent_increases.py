"""Raises that were asked for in parts: together they are held against the rules as one."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import override_settings

from apps.accounts.domain.identity import Role
from apps.accounts.domain.structs import replace
from apps.quota_requests import services
from apps.quota_requests.domain.approval_policy import (
    ApprovalRules,
    PolicyFacts,
    RecentIncreases,
    decide,
)
from apps.quota_requests.domain.states import RequestState, TransitionDenied
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.services.approval_policy import check_still_small, recent_increases
from tests.quota_requests.portal import Portal, make_portal
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db
SMALL = PolicyFacts(
    gpus=2.0,
    entitled_gpus_after=8.0,
    fair_share_gpus=100.0,
    no_budget=True,
    foreign_owner=False,
    dry_run=True,
    cost_per_month=Decimal(1000),
    currency="USD",
)
ON = ApprovalRules(raises_by_rule=True)


_portal = shared(lambda: make_portal(None))
# Nobody can ask its cluster.
portal = copy_of("_portal")


def let_through(portal: Portal, **values: Any) -> ChangeRequest:
    """Make a raise of 2 GPUs that a rule has let through."""
    request = portal.of(portal.draft(name="gpu"))
    given: dict[str, Any] = {
        "state": RequestState.APPLIED.value,
        "by_rule": True,
        "decided_at": portal.now,
        "applied_at": portal.now,
        "ruling": {"gpus": "2"},
        "preview": {"cost_per_month_most": "1000", "currency": "USD"},
    }
    for name, value in (given | values).items():
        setattr(request, name, value)
    request.save()
    return request


def lately(portal: Portal, **values: Any) -> RecentIncreases:
    let_through(portal, **values)
    mine = portal.of(portal.draft(after="9"))
    return recent_increases(mine, currency="USD", now=portal.now + timedelta(hours=1))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param({}, RecentIncreases(2.0, 2.0, Decimal(1000)), id="by rule"),
        pytest.param(
            {"by_rule": False}, RecentIncreases(0.0, 2.0, Decimal(1000)), id="by one person"
        ),
        pytest.param({"approvals_needed": 2}, RecentIncreases(), id="by two people"),
        pytest.param(
            {"state": "approved"}, RecentIncreases(2.0, 2.0, Decimal(1000)), id="not made yet"
        ),
        pytest.param({"state": "reverted"}, RecentIncreases(), id="taken back"),
        pytest.param({"state": "expired", "applied_at": None}, RecentIncreases(), id="never made"),
        pytest.param(
            {"state": "expired"}, RecentIncreases(2.0, 2.0, Decimal(1000)), id="left standing"
        ),
        pytest.param(
            {"before": "8", "after": "6"}, RecentIncreases(), id="a decrease takes nothing off"
        ),
        pytest.param({"tiers": ["another"]}, RecentIncreases(), id="elsewhere"),
        pytest.param(
            {"ruling": {}}, RecentIncreases(None, None, Decimal(1000)), id="of unknown size"
        ),
        pytest.param({"preview": {}}, RecentIncreases(2.0, 2.0, None), id="of unknown cost"),
    ],
)
def test_what_stands_of_the_teams_raises_is_added_up(
    portal: Portal, values: dict[str, Any], found: RecentIncreases
) -> None:
    assert lately(portal, **values) == found


def test_raises_of_long_ago_and_of_other_teams_do_not_count(portal: Portal) -> None:
    assert lately(portal, decided_at=portal.now - timedelta(days=31)) == RecentIncreases()
    assert lately(portal, team=portal.speech) == RecentIncreases()


def test_many_small_raises_are_a_large_one_to_the_rule() -> None:
    assert decide(SMALL, ON, decrease=False).by_rule
    found = decide(replace(SMALL, recent=RecentIncreases(0.5, 0.5)), ON, decrease=False)
    assert not found.by_rule
    small = next(check for check in found.checks if check.name == "small")
    assert small.sentence == (
        "A raise of 2 GPUs, 2.5 with the team's raises of the 30 days before: above the limit "
        "of 2 for small raises."
    )
    assert not decide(replace(SMALL, recent=RecentIncreases(None)), ON, decrease=False).by_rule


@pytest.mark.parametrize(
    ("lately", "rules", "people"),
    [
        pytest.param(RecentIncreases(), ApprovalRules(two_from_gpus=4.0), 1, id="small alone"),
        pytest.param(
            RecentIncreases(gpus=2.0), ApprovalRules(two_from_gpus=4.0), 2, id="large together"
        ),
        pytest.param(
            RecentIncreases(gpus=None), ApprovalRules(two_from_gpus=4.0), 2, id="size not known"
        ),
        pytest.param(
            RecentIncreases(cost=Decimal(1000)),
            ApprovalRules(two_from_cost=Decimal(2000), currency="USD"),
            2,
            id="dear together",
        ),
        pytest.param(
            RecentIncreases(cost=None),
            ApprovalRules(two_from_cost=Decimal(2000), currency="USD"),
            2,
            id="cost not known",
        ),
    ],
)
def test_a_large_raise_in_parts_needs_two_people_too(
    lately: RecentIncreases, rules: ApprovalRules, people: int
) -> None:
    found = decide(replace(SMALL, recent=lately), rules, decrease=False)
    assert found.approvals_needed == people


def test_of_two_raises_at_once_the_rule_lets_one_through(portal: Portal) -> None:
    mine = portal.of(portal.draft(after="9"))
    mine.ruling = {"gpus": "1.5"}
    check_still_small(mine, now=portal.now)
    let_through(portal)
    with pytest.raises(TransitionDenied, match="above the limit for small raises"):
        check_still_small(mine, now=portal.now)


@override_settings(REQUESTS_TWO_FROM_GPUS=2.0)
def test_the_first_approval_is_given_up_with_the_role(portal: Portal) -> None:
    pk = portal.submitted()
    for name in ("cleo", "carl"):
        if name == "carl":
            portal.people["cleo"].role = Role.VIEWER
            portal.people["cleo"].save()
        actor = portal.actor(name)
        if name == "cleo":
            services.take(pk, by=actor, version=portal.of(pk).version, now=portal.now)
        services.approve(pk, by=actor, version=portal.of(pk).version, now=portal.now)
    request = portal.of(pk)
    assert (request.state, request.approvals) == (RequestState.IN_REVIEW, ["carl"])
