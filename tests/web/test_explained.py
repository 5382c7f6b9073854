"""Figures of every room lead to their formula, which gives them, and to the rows below."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window
from apps.costs.domain.costing import WASTE
from apps.costs.domain.recommendations.recommendation import RecommendationKind
from apps.costs.models import Recommendation
from apps.costs.selectors import CostQuery, cost_rows, explain_cost
from apps.fairness.selectors import FairnessFilters, explain_fairness, fairness_rows
from apps.pending.selectors import PendingGrouping, explain_pending, pending_history, time_to_start
from apps.pending.selectors.explain import PARTIAL
from apps.planning.selectors import WHAT_IF
from apps.quotas.selectors import budget_rows, explain_budget
from apps.quotas.selectors.explain import BUDGETS, QUOTAS, TEAM_QUOTAS
from apps.usage.domain.amounts import hours
from apps.usage.domain.explained import Explained, FigureInput, FigureUnit, RowColumn, evaluate
from apps.web.components.page_query import figure_href
from apps.web.explain.figure_page import ExplainedPage
from apps.web.explain.providers import PROVIDERS
from tests.costs.recommendation_rows import make
from tests.factories import Portal
from tests.web.conftest import HOURLY
from tests.web.pages import check_explained, records_of, text_of

SignIn = Callable[[User], Client]
NOW = datetime(2025, 10, 27, 22, 55, tzinfo=UTC)
WINDOW = Window(datetime(2025, 10, 24, 22, tzinfo=UTC), datetime(2025, 10, 27, 23, tzinfo=UTC))
KEY = "cluster=west&source=ResourceQuota&namespace=vision&name=gpus&key=requests.nvidia.com/gpu"
OF = {
    **dict.fromkeys(("jain_index", "jain_allocation_ratio"), "tier=gold"),
    **dict.fromkeys(("usage_factor", *BUDGETS), "team=vision"),
    **dict.fromkeys(("bind_time_p50", "bind_time_p95", "waiting_gpus"), "tier=gold"),
    "dominant_share": "team=vision",
    **dict.fromkeys(
        (
            *("team_queue_time_p50", "team_queue_time_p95", "small_loans_taken"),
            *("small_loans_given", "mean_entitled", "mean_allocated", "mean_borrowed", "mean_lent"),
        ),
        "tier=gold&team=vision",
    ),
    "idle_entitlement_meanwhile": "tier=gold&team=speech",
    **dict.fromkeys(("loan", "mean_idle_beside"), "tier=gold&team=vision&other=speech"),
    **dict.fromkeys(WHAT_IF, "simulated=gold&gpus=4&after=yes&tier=gold&team=vision"),
    **dict.fromkeys(QUOTAS, KEY),
    **dict.fromkeys(TEAM_QUOTAS, "team=vision&resource=nvidia.com/gpu&unit=GPUs"),
}
ELSEWHERE = {"recommendation_saving", "tier_price", "closed_month_adjustment", *PARTIAL}
"""What needs a world of its own."""
FIGURES = sorted(PROVIDERS.keys() - ELSEWHERE)
KNOWN = {
    *("pending_gpu_hours", "pending_gpus", "quota_usage", "quota_used"),
    *("jain_index", "unmet_fair_share", "fair_share", "borrowed", "usage_factor"),
}
MOST_QUERIES = 32


def address_of(figure: str) -> str:
    return f"/explain/{figure}/?{HOURLY}&{OF.get(figure, '')}"


def shown(client: Client, figure: str) -> ExplainedPage:
    response: Any = client.get(address_of(figure))
    assert response.status_code == 200, figure
    page = response.context["explanation"]
    assert isinstance(page, ExplainedPage)
    return page


@pytest.mark.parametrize("figure", FIGURES)
def test_a_formula_gives_the_figure_that_is_shown_and_its_rows_are_had_as_a_file(
    figure: str, admin: Client, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(MOST_QUERIES):
        page = shown(admin, figure)
    known = page.one.value is not None
    assert page.holds is (True if known else None)
    assert known or page.one.nothing
    # What is zero proves no formula: the filled portal knows these.
    assert page.one.value or figure not in KNOWN
    records = records_of(admin, f"{address_of(figure)}&format=csv&table=rows")
    assert len(records) == len(page.one.rows)


@pytest.mark.parametrize("name", ["cause", "namespace", "team"])
def test_names_that_no_database_compares_with_explain_nothing(name: str, admin: Client) -> None:
    for figure in ("pending_gpus", "quota_used", "budget_used", "cost"):
        address = f"/explain/{figure}/?{HOURLY}&source=ResourceQuota&{name}=%00"
        assert admin.get(address).status_code == 404


# ---------------------------------------------------------------- as other pages have it


def test_pending_gpu_hours_are_those_of_the_history(portal: Portal) -> None:
    one = explain_pending("pending_gpu_hours", WINDOW, now=NOW, visibility=EVERYTHING)
    rows = pending_history(WINDOW, now=NOW, visibility=EVERYTHING, by=(PendingGrouping.CAUSE,))
    assert one is not None
    assert one.value == pytest.approx(sum(hours(row.sums.waited) for row in rows))


@pytest.mark.parametrize(
    ("figure", "field"), [("queue_time_p50", "p50_seconds"), ("queue_time_p95", "p95_seconds")]
)
def test_queue_times_are_those_of_the_tiers_page(portal: Portal, figure: str, field: str) -> None:
    one = explain_pending(figure, WINDOW, now=NOW, visibility=EVERYTHING)
    by_tier = time_to_start(WINDOW, by=PendingGrouping.TIER, visibility=EVERYTHING)
    assert one is not None
    assert (one.value is None) is (not by_tier)
    if len(by_tier) == 1:
        assert one.value == getattr(by_tier[0], field)


def test_indices_are_those_of_the_fairness_page(portal: Portal) -> None:
    (tier,) = fairness_rows(
        WINDOW, now=NOW, visibility=EVERYTHING, filters=FairnessFilters(tier=("gold",))
    )
    filters = FairnessFilters(tier=("gold",))
    for figure in ("jain_index", "jain_allocation_ratio"):
        one = explain_fairness(figure, WINDOW, now=NOW, visibility=EVERYTHING, filters=filters)
        assert one is not None
        assert one.value == getattr(tier, figure) is not None
        assert evaluate(one) == pytest.approx(one.value)


@pytest.mark.parametrize(
    ("figure", "field"),
    [
        ("demand", "demand_gpu_hours"),
        ("fair_share", "fair_share_gpu_hours"),
        ("unmet_fair_share", "denied_gpu_hours"),
        ("borrowed", "borrowed_gpu_hours"),
        ("lent", "lent_gpu_hours"),
    ],
)
def test_amounts_of_a_team_are_those_of_the_fairness_page(
    portal: Portal, figure: str, field: str
) -> None:
    own = FairnessFilters(team=("vision",))
    tiers = fairness_rows(WINDOW, now=NOW, visibility=EVERYTHING, filters=own)
    one = explain_fairness(figure, WINDOW, now=NOW, visibility=EVERYTHING, filters=own)
    assert one is not None
    assert one.value == pytest.approx(sum(getattr(t, field) for r in tiers for t in r.teams))


@pytest.mark.parametrize("figure", BUDGETS)
def test_a_budget_burns_as_its_numbers_say(portal: Portal, figure: str) -> None:
    one = explain_budget(figure, NOW, team="vision", period="month", visibility=EVERYTHING)
    (row,) = budget_rows(NOW, visibility=EVERYTHING, team="vision")
    assert one is not None
    told = {
        "budget_used": row.used,
        "budget_share": row.used / row.allowance,
        "budget_burn": row.burn_rate,
        "budget_burn_1d": row.burn_rate_1d,
        "budget_burn_7d": row.burn_rate_7d,
    }
    assert one.value == told.get(figure, one.value)
    assert one.value is not None or figure == "budget_hours_left"
    assert row.used > 0
    if one.value is not None:
        assert evaluate(one) == pytest.approx(one.value)
    assert sum(line["gpu_hours"] for line in one.rows) == pytest.approx(row.used)


@pytest.mark.parametrize(
    ("address", "figures"),
    [
        (
            f"/capacity/fairness/?tab=figures&{HOURLY}",
            {"jain_index", "unmet_fair_share", "overdrawn", "fairness_capacity"},
        ),
        (f"/capacity/fairness/?tab=dominant&{HOURLY}", {"dominant_share"}),
        (
            f"/capacity/fairness/?{HOURLY}",
            {"jain_index", "unmet_fair_share", "idle_entitlement_under_demand"},
        ),
        (
            f"/capacity/fairness/gold/?tab=teams&{HOURLY}",
            {"demand", "fair_share", "borrowed", "usage_factor", "mean_entitled", "from_pool"},
        ),
        (f"/capacity/fairness/gold/?{HOURLY}", {"unmet_fair_share", "idle_entitlement_meanwhile"}),
        (
            f"/capacity/fairness/gold/?tab=method&{HOURLY}",
            {"jain_index", "jain_allocation_ratio", "idle_entitlement_under_demand"},
        ),
        (
            "/capacity/teams/vision/statement/?week=2025-10-22",
            {"entitled", "borrowed", "from_pool"},
        ),
        (
            f"/capacity/teams/vision/?tab=fairness&{HOURLY}",
            {"mean_allocated", "mean_borrowed", "usage_factor"},
        ),
        (
            f"/quotas/?{HOURLY}&show=all",
            {"quota_usage", "quota_used"},
        ),
        (f"/quotas/?tab=teams&{HOURLY}", set(TEAM_QUOTAS)),
        (f"/quotas/?tab=unused&{HOURLY}", {"unused_quota_hours", "quota_limit_hours"}),
        (f"/costs/budgets/?{HOURLY}", {"budget_used", "budget_share"}),
        (
            f"/pending/?{HOURLY}",
            {"unscheduled_gpus", "blocked_gpus", "starting_gpus"},
        ),
        (f"/pending/?tab=history&{HOURLY}", {"pending_gpu_hours"}),
        ("/pending/?cause=quota&kind=Pod", {"blocked_gpus"}),
        (
            "/quotas/west/ResourceQuota/vision/gpus/requests.nvidia.com/gpu/",
            {"quota_used", "quota_usage", "quota_allocated", "quota_pending", "quota_headroom"},
        ),
    ],
)
def test_every_figure_of_a_page_is_what_its_explanation_gives(
    address: str, figures: set[str], admin: Client
) -> None:
    assert check_explained(admin, address) >= figures


def test_rates_of_a_budget_are_what_their_explanations_give(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    assert check_explained(admin, f"/costs/budgets/?{HOURLY}") >= {
        *("budget_used", "budget_share", "budget_burn", "budget_burn_1d", "budget_burn_7d")
    }


def test_savings_add_up_without_alternatives(portal: Portal, admin: Client) -> None:
    make()
    make(workload="Pod/other", alternative=True)
    make(workload="Pod/unpriced", saving_per_month=None, currency="")
    page = shown(admin, "saving_per_month")
    assert page.holds is True
    assert page.value == "2,122.11 USD"
    make(1, kind=RecommendationKind.UNUSED_QUOTA.value)
    found = check_explained(admin, "/costs/recommendations/")
    assert found == {"saving_per_month", "quota_saving_per_month"}
    assert check_explained(admin, "/costs/recommendations/?kind=unused-quota") < found
    assert len(page.one.rows) == 1
    assert "/explain/saving_per_month/" in text_of(admin, "/costs/recommendations/")


def test_one_saving_is_explained_to_who_sees_it(portal: Portal, signed_in: SignIn) -> None:
    """Its formula gives what the page and the API show; those of others are not there."""
    evidence = {"saved_gpu_hours_per_month": 693.5, "saved_per_gpu_hour": "3.06"}
    made = make(evidence=evidence)
    client = signed_in(portal.ada)
    address = figure_href("recommendation_saving", (), recommendation=str(made.pk))
    assert f"recommendation={made.pk}" in text_of(client, "/costs/recommendations/")
    response: Any = client.get(address)
    page = response.context["explanation"]
    (row,) = client.get("/api/v1/recommendations").json()["results"]
    assert page.holds is True
    assert float(page.one.value) == row["saving_per_month"] == 2122.11
    assert signed_in(portal.dan).get(address).status_code == 404
    for strange in ("", "x", "9" * 30):
        assert (
            client.get(f"/explain/recommendation_saving/?recommendation={strange}").status_code
            == 404
        )
    Recommendation.objects.update(evidence={})
    assert "no price" in text_of(client, address)


# ---------------------------------------------------------------- who sees what


def test_costs_are_of_what_the_reader_sees(portal: Portal) -> None:
    lead = Visibility(everything=False, team_ids=frozenset({portal.vision.pk}))
    for visibility in (EVERYTHING, lead):
        one = explain_cost("waste_cost", CostQuery(WINDOW), visibility=visibility)
        rows = cost_rows(CostQuery(WINDOW, waste=True, causes=WASTE), visibility=visibility)
        assert one is not None
        assert (one.value or 0) == sum((row.amount or Decimal(0) for row in rows), Decimal(0))


def test_a_quota_of_others_looks_like_one_that_is_not_there(
    portal: Portal, signed_in: SignIn
) -> None:
    client = signed_in(portal.dan)
    for figure in QUOTAS:
        assert client.get(address_of(figure)).status_code == 404
        assert client.get(address_of(figure).replace("vision", "nowhere")).status_code == 404


def test_quotas_of_others_are_explained_as_their_sum(portal: Portal, signed_in: SignIn) -> None:
    own, others = (shown(signed_in(user), "team_quota_used") for user in (portal.ada, portal.dan))
    assert own.one.value == others.one.value
    assert [row["namespace"] for row in own.one.rows] == ["vision"]
    (row,) = others.one.rows
    assert (row["name"], "namespace" in row) == ("all quotas", False)


def test_an_index_without_a_tier_and_a_strange_figure_are_not_there(admin: Client) -> None:
    for address in ("/explain/jain_index/", "/explain/nonsense/"):
        assert admin.get(address).status_code == 404


@pytest.mark.parametrize("figure", ["bind_time_p50", "waiting_gpus", "jain_index", "usage_factor"])
def test_the_filter_without_which_a_figure_is_not_there_cannot_be_removed(
    figure: str, admin: Client
) -> None:
    picker = admin.get(address_of(figure) + "&cluster=west").context["picker"]
    assert {chip.label: bool(chip.href) for chip in picker.chips} == {
        OF[figure].partition("=")[0].capitalize(): False,
        "Cluster": True,
    }


def test_an_address_keeps_window_and_filters() -> None:
    address = figure_href("cost", [("window", "7d"), ("team", "a")], team="b")
    assert address == "/explain/cost/?window=7d&team=b"


# ---------------------------------------------------------------- formulas


def formula(text: str, *inputs: FigureInput, **columns: list[Any]) -> Explained:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    keys = [RowColumn(key, key, FigureUnit.COUNT) for key in columns]
    return Explained("x", "x", "", "", 1.0, FigureUnit.COUNT, text, inputs, keys, rows)


@pytest.mark.parametrize(
    ("one", "value"),
    [
        pytest.param(
            formula("a / b - 1", FigureInput("a", "", 6), FigureInput("b", "", 2)), 2.0, id="ratio"
        ),
        pytest.param(
            formula("sum(x)", x=[Decimal("0.1"), Decimal("0.2")]), Decimal("0.3"), id="money"
        ),
        pytest.param(formula("dot(x, y)", x=[1, 2, None], y=[3, 4, 5]), 11.0, id="products"),
        pytest.param(formula("sum(x) ** 2 / squares(x)", x=[1.0, 1.0]), 2.0, id="squares"),
        pytest.param(formula("nearest(0.95, x, n)", x=[9, 1], n=[6, 94]), 9, id="p95"),
        pytest.param(formula("nearest(0.5, x, n)", x=[9, 1], n=[6, 94]), 1, id="p50"),
        pytest.param(formula("max(0, a)", FigureInput("a", "", Decimal(2))), Decimal(2), id="most"),
        pytest.param(formula("a", FigureInput("a", "", None)), None, id="not known"),
        pytest.param(formula("1 / 2 ** (a / a)", FigureInput("a", "", 0.0)), None, id="by nothing"),
    ],
)
def test_a_formula_is_worked_out_over_the_numbers_shown(one: Explained, value: Any) -> None:
    assert evaluate(one) == value


@pytest.mark.parametrize("text", ["x.y", "[1]", "a if a else a", "nearest(0.5, x, n)"])
def test_nothing_but_numbers_is_worked_out(text: str) -> None:
    with pytest.raises(ValueError, match=r"no formula has|nothing to rank"):
        evaluate(formula(text, FigureInput("a", "", 1), x=[], n=[]))
