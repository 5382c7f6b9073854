"""Allocation against entitlement on the homes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.clusters.models import Tier
from apps.quotas.models import Entitlement
from tests.factories import Portal, make_gpus, make_pod, make_team, make_tier, make_workload
from tests.web.conftest import HOURLY
from tests.web.pages import records_of, text_of

SINCE = datetime(2025, 10, 1, tzinfo=UTC)


@pytest.fixture
def bronze(portal: Portal) -> Tier:
    """Return a tier on which nobody holds anything yet."""
    return make_tier("bronze", position=7)


def entitle(tier: Tier, team: str, gpus: float) -> None:
    Entitlement.objects.create(
        team=make_team(team), tier=tier, gpus=gpus, weight=1.0, valid_from=SINCE
    )


@pytest.mark.parametrize(("gpus", "ratio"), [(12.0, 0.5), (6.0, 1.0), (4.5, 1.3333333333333333)])
def test_the_heat_map_of_administrators_has_allocation_by_entitlement(
    gpus: float, ratio: float, portal: Portal, bronze: Tier, admin: Client
) -> None:
    entitle(bronze, "speech", gpus)
    work = make_workload(portal.clusters[1], "speech", "now")
    node_gpus = make_gpus(portal.clusters[1], "more", bronze)
    make_pod(work, "holds", created_at=SINCE + timedelta(days=1), node_gpus=node_gpus, units=6.0)
    make_pod(work, "pends", created_at=SINCE + timedelta(days=1), tier=bronze, units=2.0)
    rows = records_of(admin, f"/?{HOURLY}&format=csv&table=heat")
    found = {(row["team"], row["tier"]): float(row["ratio"]) for row in rows}
    assert found["speech", "bronze"] == pytest.approx(ratio)
    assert f"speech on bronze: 6 of {gpus:g} GPUs" in text_of(admin, f"/?{HOURLY}")


def test_a_team_sees_its_tiers_with_what_is_entitled_and_pending(
    portal: Portal, bronze: Tier, signed_in: Callable[[User], Client]
) -> None:
    entitle(bronze, "vision", 4.0)
    work = make_workload(portal.clusters[1], "vision", "more")
    node_gpus = make_gpus(portal.clusters[1], "node-vision", bronze)
    make_pod(work, "holds", created_at=SINCE, node_gpus=node_gpus, units=6.0)
    make_pod(work, "pends", created_at=SINCE, tier=bronze, units=2.0)
    rows = records_of(signed_in(portal.ada), f"/?{HOURLY}&format=csv&table=entitlements")
    (row,) = [row for row in rows if row["tier"] == "bronze"]
    amounts = [float(row[f"{name}_gpus"]) for name in ("allocated", "entitlement", "demand")]
    assert amounts == [6.0, 4.0, 8.0]
