"""Quotas, budgets and fairness of a portal in which nothing was promised or computed yet."""

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import User
from tests.factories import make_portal
from tests.web.pages import text_of
from tests.web.test_devices_page import words

SignIn = Callable[[User], Client]


def test_quotas_say_how_they_come(db: None, signed_in: SignIn) -> None:
    portal = make_portal()
    budgets = words(text_of(signed_in(portal.cleo), "/costs/budgets/"))
    assert "No team has a budget in GPU-hours. The catalog gives one: budgets:" in budgets
    page = words(text_of(signed_in(portal.cleo), "/quotas/"))
    assert "No ResourceQuota, ClusterQueue or Queue names GPUs." in page
    sums = words(text_of(signed_in(portal.cleo), "/quotas/?tab=teams"))
    assert "No ResourceQuota limits GPUs of these teams." in sums
    other = words(text_of(signed_in(portal.dan), "/quotas/"))
    assert "No quota of your teams' namespaces names GPUs." in other


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/capacity/fairness/", "No hour of this window was computed yet."),
        ("/capacity/fairness/gold/", "No hour of this window was computed yet."),
        ("/capacity/teams/vision/statement/", "No hour of this week is known."),
        ("/capacity/teams/vision/", "No hour of this window was computed yet."),
        ("/capacity/fairness/gold/what-if/", "Enter a change to compare"),
        (
            "/capacity/teams/vision/?tab=fairness",
            "No entitlement, and nothing computed for this window. Choose a longer one.",
        ),
    ],
)
def test_what_was_not_computed_is_said(
    address: str, said: str, db: None, signed_in: SignIn
) -> None:
    assert said in words(text_of(signed_in(make_portal().dan), address))


def test_a_replay_of_nothing_says_so(db: None, signed_in: SignIn) -> None:
    page = words(text_of(signed_in(make_portal().dan), "/capacity/fairness/gold/what-if/?gpus=4"))
    assert "No data on the capacity of gold in this window" in page
