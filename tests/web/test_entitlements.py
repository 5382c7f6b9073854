"""Which entitlements the overview calls nearly used up."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from apps.clusters.models import Tier
from apps.quotas.models import Entitlement
from tests.factories import Portal, make_cards, make_pod, make_team, make_tier, make_workload
from tests.web.conftest import HOURLY
from tests.web.pages import text_of

SINCE = datetime(2025, 10, 1, tzinfo=UTC)


@pytest.fixture
def bronze(portal: Portal) -> Tier:
    """Return a tier on which nobody holds anything yet."""
    return make_tier("bronze", position=7)


def entitle(tier: Tier, team: str, gpus: float) -> None:
    Entitlement.objects.create(
        team=make_team(team), tier=tier, gpus=gpus, weight=1.0, valid_from=SINCE
    )


def lines_of(client: Client) -> list[str]:
    """Return the lines of the list as one reads them."""
    part = re.findall(r'id="entitlements".*?</section>', text_of(client, f"/?{HOURLY}"), re.DOTALL)[
        0
    ]
    items = re.findall(r"<li>(.*?)</li>", part, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", item).split()) for item in items]


@pytest.mark.parametrize(
    ("gpus", "line"),
    [
        pytest.param(11.0, None, id="less than 80 %"),
        pytest.param(10.0, "6 of 10 GPUs 4 GPUs left, 2 more asked for", id="with what waits"),
        pytest.param(6.0, "6 of 6 GPUs none left, 2 more asked for", id="all"),
        pytest.param(4.5, "6 of 4.5 GPUs 1.5 more than entitled, 2 more asked for", id="over"),
    ],
)
def test_an_entitlement_is_told_once_80_percent_are_held_or_waited_for(
    gpus: float, line: str | None, portal: Portal, bronze: Tier, admin: Client
) -> None:
    entitle(bronze, "speech", gpus)
    work = make_workload(portal.clusters[1], "speech", "now")
    cards = make_cards(portal.clusters[1], "more", bronze)
    make_pod(work, "holds", created_at=SINCE + timedelta(days=1), cards=cards, units=6.0)
    make_pod(work, "waits", created_at=SINCE + timedelta(days=1), tier=bronze, units=2.0)
    wanted = [] if line is None else [f"speech {line} by pods that wait · on bronze"]
    assert lines_of(admin) == wanted
    text = text_of(admin, f"/?{HOURLY}")
    assert ("No team is near its entitlement" in text) is (line is None)


def test_the_one_with_the_least_left_comes_first(
    portal: Portal, bronze: Tier, admin: Client
) -> None:
    for team, gpus in (("speech", 4.0), ("vision", 8.0)):
        entitle(bronze, team, gpus)
        work = make_workload(portal.clusters[1], team, "more")
        cards = make_cards(portal.clusters[1], f"node-{team}", bronze)
        make_pod(work, f"holds-{team}", created_at=SINCE, cards=cards, units=gpus - 0.5)
    assert [line.split()[0] for line in lines_of(admin)] == ["vision", "speech"]
