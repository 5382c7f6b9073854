"""Who is entitled to what."""

from datetime import UTC, datetime, timedelta

from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import Visibility
from apps.quotas.models import Entitlement
from apps.quotas.selectors import entitled_teams
from tests.factories import make_team, make_tier

NOW = datetime(2026, 1, 10, tzinfo=UTC)
DAY = timedelta(days=1)


def test_entitlements_are_those_that_hold_now_the_largest_first(
    db: None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    gold, silver = make_tier("gold"), make_tier("silver")
    rows = [
        ("small", gold, 2.0, NOW - DAY, None),
        ("large", gold, 8.0, NOW - DAY, NOW + DAY),
        ("large", silver, 1.0, NOW, None),
        ("large", gold, 5.0, NOW - 2 * DAY, NOW - DAY),
        ("later", gold, 9.0, NOW + DAY, None),
        ("over", gold, 9.0, NOW - DAY, NOW),
        ("weight", gold, 0.0, NOW - DAY, None),
        ("closed", gold, 3.0, NOW - DAY, None),
    ]
    for team, tier, gpus, start, end in rows:
        Entitlement.objects.create(
            team=make_team(team, active=team != "closed"),
            tier=tier,
            gpus=gpus,
            weight=1.0,
            valid_from=start,
            valid_to=end,
        )
    with django_assert_num_queries(1):
        found = entitled_teams(NOW, visibility=Visibility(everything=False))
    assert [(row.tier, row.team, row.gpus) for row in found] == [
        ("gold", "large", 8.0),
        ("gold", "small", 2.0),
        ("silver", "large", 1.0),
    ]
