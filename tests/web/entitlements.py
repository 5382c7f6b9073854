"""What was promised on the filled portal: entitlements, a budget, quotas, and fairness of a day."""

from datetime import UTC, datetime, timedelta
from typing import Any

from apps.accounts.models import Team
from apps.clusters.models import WatchCoverage
from apps.fairness.services import compute_hour
from apps.pending.services import take_in_pods
from apps.quotas.models import Budget, Entitlement, QuotaKey, QuotaKeyHour
from tests.factories import Portal
from tests.quotas.quota_rows import GPU, KEY, see_quota

SINCE, UNTIL = datetime(2025, 10, 1, tzinfo=UTC), datetime(2025, 11, 1, tzinfo=UTC)
MORNING = datetime(2025, 10, 26, 6, tzinfo=UTC)
COMPUTED = 4
"""Hours from MORNING on of which fairness is computed: each takes its time."""
HOUR = timedelta(hours=1)


def entitle(portal: Portal, team: Team, tier: int, gpus: float) -> Entitlement:
    """Entitle a team as long as there are facts: nothing of it holds now."""
    return Entitlement.objects.create(
        team=team,
        tier=portal.tiers[tier],
        gpus=gpus,
        weight=gpus,
        valid_from=SINCE,
        valid_to=UNTIL,
    )


def fill_key(portal: Portal, hard: float, used: float, *, hours: int = 6, **names: str) -> None:
    """Write how full a quota of vision was from MORNING on."""
    given: dict[str, Any] = {
        "source": "ResourceQuota",
        "namespace": "vision",
        "name": "gpus",
        "key": KEY,
        **names,
    }
    key, _ = QuotaKey.objects.get_or_create(cluster=portal.clusters[0], **given)
    for number in range(hours):
        QuotaKeyHour.objects.update_or_create(
            key=key,
            hour=MORNING + number * HOUR,
            defaults={
                "cluster": portal.clusters[0],
                "team": portal.vision,
                "seconds": 3600.0,
                "hard": hard,
                "used": used,
                "held": used - 1,
                "pending": 1.0,
                "suppressed": 0.0,
            },
        )


def make_promises(portal: Portal, *, now: datetime) -> None:
    """Entitle vision to 4 gold GPUs, of which it holds 5, and speech to 2, of which it holds 1."""
    entitle(portal, portal.vision, 0, 4.0)
    entitle(portal, portal.speech, 0, 2.0)
    Budget.objects.create(team=portal.vision, period="month", gpu_hours=5000.0, valid_from=SINCE)
    west, east = portal.clusters
    see_quota(west, "vision", 8.0, used=6.0, since=SINCE)
    see_quota(west, "vision-prod", 2.0, key=GPU, name="inert", since=SINCE)
    see_quota(west, "speech", 4.0, used=4.0, since=SINCE)
    fill_key(portal, 8.0, 6.0)
    WatchCoverage.objects.create(cluster=west, start=MORNING, end=MORNING + COMPUTED * HOUR)
    take_in_pods([east.pk], now=now, diagnose=lambda _: ())
    for number in range(COMPUTED):
        compute_hour(MORNING + number * HOUR, now=now)
