"""Whether an accepted saving came: by GPU-hours at the prices of then, or not told at all."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from apps.costs.domain.recommendations.recommendation import RecommendationKind, RecommendationState
from apps.costs.models import Price, PricedHour, Recommendation
from apps.costs.services import price_hours
from apps.costs.services.follow_up import cost_before, follow_up_accepted
from apps.usage.domain.amounts import Amounts
from tests.costs.one_job import FIRST, NOW, OneJob, four, make_one_job
from tests.costs.portal import make_price
from tests.costs.recommendation_rows import make
from tests.factories import A100, held

pytestmark = pytest.mark.django_db

DECIDED = datetime(2026, 10, 14, 12, tzinfo=UTC)
"""The tenth day: ten days follow it."""
CHANGED = datetime(2026, 10, 14, 22, tzinfo=UTC)
"""The midnight after it, from which on something else holds."""
TWO_GPUS = Decimal("4467.60")
"""Of a month at 3.06."""


def two_since(day: date) -> Amounts:
    return held(2.0, busy=1.8) if day > date(2026, 10, 14) else four(day)


def accepted(job: OneJob) -> Recommendation:
    """Make one that promised two GPUs, accepted when ten days of four had been seen."""
    price_hours(now=NOW, most=10_000)
    return make(
        kind=RecommendationKind.FEWER_GPUS.value,
        cluster=job.cluster,
        tier=job.tier,
        team=job.team,
        workload="Job/train",
        saving_per_month=TWO_GPUS,
        evidence={"price_per_gpu_hour": "3.06000000"},
        state=RecommendationState.ACCEPTED.value,
        decided_at=DECIDED,
        cost_before=Decimal(10 * 96) * Decimal("3.06"),
        days_before=10.0,
    )


def followed(row: Recommendation) -> Recommendation:
    assert follow_up_accepted(now=NOW) == 1
    row.refresh_from_db()
    return row


def test_fewer_gpu_hours_are_a_saving() -> None:
    row = followed(accepted(make_one_job(two_since)))
    assert (row.verdict, row.state, row.saved_per_month) == (
        "came",
        RecommendationState.DONE,
        TWO_GPUS,
    )
    assert row.days_after == 10


@pytest.mark.parametrize("amount", ["0.50", "9.00"])
def test_a_price_that_changed_is_no_saving_and_no_loss(amount: str) -> None:
    job = make_one_job()
    make_price(A100, "on-demand", amount, valid_from=CHANGED)
    row = followed(accepted(job))
    assert (row.verdict, row.state) == ("did-not-come", RecommendationState.ACCEPTED.value)
    assert row.saved_per_month == 0


def test_a_saving_in_gpu_hours_came_though_the_price_rose() -> None:
    job = make_one_job(two_since)
    make_price(A100, "on-demand", "6.12", valid_from=CHANGED)
    assert followed(accepted(job)).saved_per_month == TWO_GPUS


def untold(row: Recommendation) -> bool:
    return (row.verdict, row.saved_per_month, row.cost_after, row.state) == (
        *("", None, None),
        RecommendationState.ACCEPTED,
    )


def test_gpu_hours_without_a_price_give_no_verdict() -> None:
    assert untold(followed(accepted(make_one_job(two_since, valid_to=CHANGED))))


def test_another_currency_gives_no_verdict() -> None:
    job = make_one_job()
    make_price(A100, "on-demand", "3.06", valid_from=CHANGED, currency="EUR")
    assert untold(followed(accepted(job)))


def test_a_price_book_that_was_corrected_since_gives_no_verdict() -> None:
    row = accepted(make_one_job())
    Price.objects.update(per_gpu_hour=Decimal("1.00"))
    price_hours(now=NOW, most=10_000)
    assert untold(followed(row))


def test_a_day_that_is_not_wholly_priced_gives_no_verdict() -> None:
    row = accepted(make_one_job(two_since))
    PricedHour.objects.get(hour=CHANGED + timedelta(days=3)).delete()
    row = followed(row)
    assert untold(row)
    assert row.days_after == pytest.approx(10 - 1 / 24)


def test_days_are_counted_as_far_as_they_are_priced() -> None:
    row = accepted(make_one_job(two_since))
    PricedHour.objects.filter(hour__gte=CHANGED + timedelta(days=8)).delete()
    row = followed(row)
    assert (row.days_after, row.verdict, row.saved_per_month) == (8, "came", TWO_GPUS)


def test_a_verdict_is_taken_back_when_it_cannot_be_told_any_more() -> None:
    row = accepted(make_one_job())
    assert followed(row).verdict == "did-not-come"
    make_price(A100, "on-demand", "3.06", valid_from=CHANGED, currency="EUR")
    price_hours(now=NOW, most=10_000)
    assert untold(followed(row))


def test_what_it_cost_before_is_of_gpu_hours_at_todays_price() -> None:
    job = make_one_job(valid_to=CHANGED)
    make_price(A100, "on-demand", "2.00", valid_from=CHANGED)
    row = accepted(job)
    row.evidence = {"price_per_gpu_hour": "2.00000000"}
    assert cost_before(row, now=NOW) == (Decimal(20 * 96 * 2), 20.0)


@pytest.mark.parametrize("currency", ["", "EUR"])
def test_what_it_cost_before_is_not_known_where_something_was_not_priced_so(currency: str) -> None:
    start = datetime(FIRST.year, FIRST.month, FIRST.day, 22, tzinfo=UTC)
    job = make_one_job(valid_from=start)
    if currency:
        make_price(A100, "on-demand", "3.06", valid_to=start, currency=currency)
    assert cost_before(accepted(job), now=NOW) is None


@pytest.mark.parametrize("name", ["train-x7k2p", "train-big-x7k2p", "train"])
def test_a_family_is_followed_by_its_own_identity_not_by_how_names_begin(name: str) -> None:
    job = make_one_job()
    job.pod.workload.name = name
    job.pod.workload.save()
    row = accepted(job)
    row.workload = "Job/train-*"
    found = cost_before(row, now=NOW)
    assert found == ((Decimal("5875.20"), 20.0) if name == "train-x7k2p" else None)
