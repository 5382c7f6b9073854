"""What lost work cost: the prices of costs, of the time in which it was lost, and no zero else."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client, override_settings

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING
from apps.costs.domain.costing import SCALE
from apps.costs.models import Price
from apps.costs.selectors import LossCostRow, loss_cost_rows
from apps.costs.services import price_hours
from apps.costs.services.pricing import fold_workloads
from apps.goodput.models import LossDay
from apps.goodput.selectors import goodput_ledger
from apps.goodput.services import keep_losses
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, whole_days
from apps.usage.services import prune, roll_days
from apps.web.components.formats import money
from tests.factories import A100, H100, Portal
from tests.goodput.test_goodput_rows import LAST, SINCE, _portal, portal
from tests.web.pages import records_of

pytestmark = pytest.mark.django_db
__all__ = ["_portal", "portal"]

SPAN = {"start": "2026-03-08", "end": "2026-03-11"}
# The second of three days begins, by the clock of the report's zone.
CHANGED = datetime(2026, 3, 8, 23, tzinfo=UTC)
# `train-0` held four GPUs for 24 hours before, and for eleven and a half until its crash.
BEFORE, AFTER = 4 * 24.0, 4 * 11.5


def priced(
    amount: str, since: datetime = SINCE, *, currency: str = "USD", model: str = H100
) -> None:
    Price.objects.create(
        gpu_model=model,
        capacity_type="on-demand",
        per_gpu_hour=Decimal(amount),
        currency=currency,
        valid_from=since,
    )


def restarted(portal: Portal, days: int = 3, *by: Grouping) -> LossCostRow:
    found = goodput_ledger(
        *(whole_days(LAST, days, portal.zone),),
        group_by=by,
        filters=Filters(),
        visibility=EVERYTHING,
        interval=TimeStep.DAY,
    )
    return next(row for row in loss_cost_rows(found) if row.reason == "Restarted")


def answered(person: User) -> dict[str, dict[str, object]]:
    client = Client()
    client.force_login(person)
    rows = client.get("/api/v1/goodput/losses", SPAN).json()["results"]
    return {row["reason"]: row for row in rows}


def test_lost_work_costs_what_its_gpus_cost_at_the_time(portal: Portal) -> None:
    priced("2.00")
    priced("3.00", CHANGED)
    row = restarted(portal)
    assert row.lost_gpu_hours == pytest.approx(BEFORE + AFTER)
    assert row.cost == (2 * BEFORE + 3 * AFTER) * SCALE
    assert (row.currency, row.unpriced_gpu_hours) == ("USD", 0)
    for by in (Grouping.TEAM, Grouping.NODE):
        assert restarted(portal, 3, by) == row


def test_days_that_are_kept_cost_what_their_hours_did(portal: Portal) -> None:
    priced("2.00")
    priced("3.00", CHANGED)
    by_hour = restarted(portal)
    roll_days(now=CHANGED + timedelta(days=4))
    keep_losses(now=CHANGED + timedelta(days=4))
    for _ in range(2):
        by_day = restarted(portal, 120)
        assert (by_day.cost, by_day.currency) == (by_hour.cost, "USD")
        prune(now=CHANGED + timedelta(days=200))


def test_a_price_that_changes_within_a_kept_day_holds_from_its_hour(portal: Portal) -> None:
    noon = CHANGED + timedelta(hours=7)
    priced("2.00")
    priced("3.00", noon)
    by_hour = restarted(portal)
    # `train-0` was lost for seven hours of the second day at the first price.
    assert by_hour.cost == (2 * (BEFORE + 28) + 3 * (AFTER - 28)) * SCALE
    roll_days(now=CHANGED + timedelta(days=4))
    keep_losses(now=CHANGED + timedelta(days=4))
    for _ in range(2):
        for by in ((), (Grouping.TEAM,)):
            assert restarted(portal, 120, *by).cost == by_hour.cost
        prune(now=CHANGED + timedelta(days=200))
    with override_settings(WORKLOAD_RETENTION_DAYS=100):
        assert fold_workloads(now=CHANGED + timedelta(days=500)) > 0
    assert restarted(portal, 120).cost == by_hour.cost


def test_a_price_that_ends_within_a_kept_day_leaves_the_rest_unpriced(portal: Portal) -> None:
    priced("2.00")
    Price.objects.update(valid_to=CHANGED + timedelta(hours=7))
    by_hour = restarted(portal)
    roll_days(now=CHANGED + timedelta(days=4))
    keep_losses(now=CHANGED + timedelta(days=4))
    by_day = restarted(portal, 120)
    assert by_day.unpriced_gpu_hours == pytest.approx(AFTER - 28)
    assert (by_day.cost, by_day.unpriced_gpu_hours) == (by_hour.cost, by_hour.unpriced_gpu_hours)


def test_what_an_older_version_kept_has_the_price_of_its_days_start(portal: Portal) -> None:
    priced("2.00")
    priced("3.00", CHANGED + timedelta(hours=7))
    roll_days(now=CHANGED + timedelta(days=4))
    keep_losses(now=CHANGED + timedelta(days=4))
    prune(now=CHANGED + timedelta(days=200))
    LossDay.objects.update(by_hour=None)
    assert restarted(portal, 120).cost == 2 * (BEFORE + AFTER) * SCALE


def test_without_a_price_there_is_no_cost_and_no_zero(portal: Portal) -> None:
    row = restarted(portal)
    assert (row.cost, row.currency) == (None, None)
    assert row.unpriced_gpu_hours == row.lost_gpu_hours > 0
    found = answered(portal.cleo)["Restarted"]
    assert (found["cost"], found["currency"]) == (None, None)
    client = Client()
    client.force_login(portal.cleo)
    address = "/capacity/goodput/?start=2026-03-08&end=2026-03-11"
    (line,) = [
        one
        for one in records_of(client, f"{address}&format=csv&table=reasons")
        if one["reason"] == "Restarted"
    ]
    assert line["cost"] == ""
    assert float(line["unpriced_gpu_hours"]) == pytest.approx(BEFORE + AFTER)
    assert "unpriced" in client.get(address).content.decode()


def test_a_price_for_a_part_is_the_cost_of_that_part(portal: Portal) -> None:
    priced("3.00", CHANGED)
    row = restarted(portal)
    assert row.cost == 3 * AFTER * SCALE
    client = Client()
    client.force_login(portal.cleo)
    page = client.get("/capacity/goodput/?start=2026-03-08&end=2026-03-11").content.decode()
    assert money(Decimal("138"), "USD", cents=True) in page
    assert row.unpriced_gpu_hours == pytest.approx(BEFORE)


def test_amounts_of_two_currencies_have_no_sum(portal: Portal) -> None:
    priced("2.00")
    priced("3.00", CHANGED, currency="EUR")
    row = restarted(portal)
    assert (row.cost, row.currency, row.unpriced_gpu_hours) == (None, None, 0)


def test_page_file_and_api_have_the_cost_of_the_teams_that_one_sees(portal: Portal) -> None:
    for model in (A100, H100):
        priced("2.50", model=model)
    price_hours(now=CHANGED + timedelta(days=4))
    whole, own = answered(portal.cleo), answered(portal.dan)
    assert set(own) == {"PreemptionByScheduler"}
    for reason, row in whole.items():
        assert row["currency"] == "USD"
        assert row["cost"] == pytest.approx(2.5 * float(str(row["lost_gpu_hours"]))), reason
    assert own["PreemptionByScheduler"] == whole["PreemptionByScheduler"]
    client = Client()
    client.force_login(portal.cleo)
    for address in (
        "/api/v1/goodput/losses?format=csv&start=2026-03-08&end=2026-03-11",
        "/capacity/goodput/?start=2026-03-08&end=2026-03-11&format=csv&table=reasons",
    ):
        lines = {one["reason"]: float(one["cost"]) for one in records_of(client, address)}
        assert lines == pytest.approx({name: row["cost"] for name, row in whole.items()})
