"""What `GPUPORTAL_VISIBILITY=open` shows to everybody who signs in, and what it does not."""

from collections.abc import Callable

import pytest
from django.test import Client
from pytest_django import Settings

from apps.accounts.models import User
from tests.factories import Portal, token_of
from tests.web.conftest import HOURLY

SignIn = Callable[[User], Client]

# What an outsider sees of team vision only where the portal is open.
INSIDE = [
    "/workloads/west/vision/Job/train/",
    "/pods/west/uid-train-0/",
    "/capacity/gpus/west/GPU-00000000-0000-0000-0000-000000000001/",
    "/pending/west/uid-train-2/",
    "/quotas/west/ResourceQuota/vision/gpus/requests.nvidia.com/gpu/",
]
TABLES = [
    "/capacity/teams/vision/?format=csv&table=workloads",
    "/capacity/teams/vision/?format=csv&table=namespaces",
]
RUNNING = ["/admin/users/", "/admin/audit/", "/admin/audit/file"]


@pytest.mark.parametrize(("visibility", "status"), [("team", 404), ("open", 200)])
@pytest.mark.parametrize("address", [*INSIDE, *TABLES])
def test_what_a_team_has_inside_is_for_all_where_the_portal_is_open(
    address: str,
    visibility: str,
    status: int,
    portal: Portal,
    signed_in: SignIn,
    settings: Settings,
) -> None:
    settings.VISIBILITY = visibility
    joint = "&" if "?" in address else "?"
    assert signed_in(portal.dan).get(f"{address}{joint}{HOURLY}").status_code == status


@pytest.mark.parametrize(("visibility", "there"), [("team", False), ("open", True)])
def test_the_api_shows_the_same(
    visibility: str, there: bool, portal: Portal, settings: Settings
) -> None:
    settings.VISIBILITY = visibility
    reader = Client(headers={"Authorization": f"Token {token_of(portal.dan)}"})
    window = "start=2025-10-25&end=2025-10-26"
    shown = reader.get(f"/api/v1/pods?{window}").content.decode()
    assert ("uid-train-0" in shown) is there


@pytest.mark.parametrize("address", RUNNING)
def test_how_the_portal_runs_stays_with_administrators(
    address: str, portal: Portal, signed_in: SignIn, settings: Settings
) -> None:
    settings.VISIBILITY = "open"
    for person in (portal.dan, portal.ada, portal.finn):
        assert signed_in(person).get(address).status_code == 404


def test_an_open_portal_lets_nobody_do_more(
    portal: Portal, signed_in: SignIn, settings: Settings
) -> None:
    settings.VISIBILITY = "open"
    page = signed_in(portal.dan).get(f"/admin/data-quality/?{HOURLY}&state=failed").content.decode()
    assert "west.example" not in page
    assert signed_in(portal.dan).post(f"/admin/users/{portal.ben.pk}/disable").status_code == 404
