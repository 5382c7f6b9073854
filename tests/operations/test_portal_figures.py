"""The portal's figures as series: what Prometheus reads of an hour is what the API says of it."""

from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Team, User
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, WatchCoverage
from apps.costs.models import Price
from apps.costs.services import price_hours
from apps.fairness.services import compute_hours
from apps.operations.selectors.portal_figures import FIGURES, QUOTAS, portal_figures, quota_figures
from apps.quotas.models import Budget
from apps.usage.models import CollectionWindow
from tests.costs.portal import make_priced
from tests.factories import BEGINNING
from tests.shared_rows import shared

_HOUR = timedelta(hours=1)
_BACKEND = "django.contrib.auth.backends.ModelBackend"


def make_computed() -> Any:
    priced = make_priced()
    end = priced.window.end
    for cluster in Cluster.objects.filter(kubernetes__isnull=False):
        WatchCoverage.objects.create(cluster=cluster, start=priced.window.start, end=end + _HOUR)
    assert compute_hours(now=end + _HOUR)
    return priced


_made = shared(make_computed)


@pytest.fixture
def hour(_made: Any, db: None) -> Window:
    end = deepcopy(_made).window.end
    return Window(end - _HOUR, end)


class Api:
    """What the API says of an hour, to an administrator."""

    def __init__(self, client: Client, hour: Window) -> None:
        self._client, self._hour = client, hour
        client.force_login(User.objects.get(username="cleo"), _BACKEND)

    def rows(self, path: str, group_by: str = "", **asked: str) -> list[dict[str, Any]]:
        query = {
            "start": self._hour.start.isoformat(),
            "end": self._hour.end.isoformat(),
            **({"group_by": group_by} if group_by else {}),
            **asked,
        }
        return self.now(path, query)

    def now(self, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return what is told without a window."""
        answer = self._client.get(f"/api/v1/{path}", {"page_size": "500", **query})
        assert answer.status_code == 200, answer.content
        found: list[dict[str, Any]] = answer.json()["results"]
        return found


@pytest.fixture
def api(client: Client, hour: Window) -> Api:
    return Api(client, hour)


def now(hour: Window) -> datetime:
    return hour.end + timedelta(minutes=5)


def of(hour: Window, name: str) -> dict[tuple[str, ...], float]:
    return dict(portal_figures(now(hour)).get(name, ()))


@pytest.mark.parametrize("scope", ["tier", "team"])
def test_the_ledger_of_an_hour_is_that_of_the_api(scope: str, hour: Window, api: Api) -> None:
    groups = ("cluster", "tier", "team")[: 2 if scope == "tier" else 3]
    rows = api.rows("usage", ",".join(groups), interval="total")
    assert rows
    for name, column in (
        ("allocated", "allocated_gpu_hours"),
        ("active", "busy_gpu_hours"),
        ("no_metrics", "unmeasured_gpu_hours"),
        *((("capacity", "capacity_gpu_hours"),) if scope == "tier" else ()),
    ):
        expected = {tuple(row[g] for g in groups): row[column] for row in rows}
        assert of(hour, f"gpuportal_{scope}_{name}_gpus") == expected
    causes = ("idle_gpu_hours", "underused_gpu_hours", "not_running_gpu_hours")
    unused = {tuple(row[g] for g in groups): sum(row[c] for c in causes) for row in rows}
    assert of(hour, f"gpuportal_{scope}_unused_gpus") == pytest.approx(unused)


def test_pending_gpus_are_those_of_the_api_and_zero_only_where_that_is_known(
    hour: Window, api: Api
) -> None:
    rows = api.rows("pending/history", "cluster,tier,team")
    expected = {(r["cluster"], r["tier"], r["team"]): r["waiting_gpu_hours"] for r in rows}
    found = of(hour, "gpuportal_team_pending_gpus")
    assert {key: gpus for key, gpus in found.items() if gpus} == {
        key: gpus for key, gpus in expected.items() if gpus
    }
    WatchCoverage.objects.update(end=hour.start)
    assert "west" not in {key[0] for key in of(hour, "gpuportal_team_pending_gpus")}


@pytest.mark.parametrize(("name", "path"), [("cost", "costs"), ("waste", "waste")])
def test_money_of_an_hour_is_that_of_the_api(name: str, path: str, hour: Window, api: Api) -> None:
    expected: dict[tuple[str, ...], float] = defaultdict(float)
    for row in api.rows(path, "cluster,tier,team", interval="total"):
        if row["cost"] is not None:
            key = (row["cluster"], row["tier"], row["team"] or "", row["currency"])
            expected[key] += row["cost"]
    assert expected
    assert of(hour, f"gpuportal_team_{name}_per_hour") == pytest.approx(expected)


def test_without_a_price_there_is_no_cost_rather_than_none(hour: Window) -> None:
    before = of(hour, "gpuportal_team_cost_per_hour")
    assert {key[0] for key in before} == {"west", "east"}
    Price.objects.all().delete()
    price_hours(now=now(hour) + timedelta(days=3))
    assert not of(hour, "gpuportal_team_cost_per_hour")


def test_unmet_fair_share_is_that_of_the_api(hour: Window, api: Api) -> None:
    expected = {
        (tier["tier"], row["team"]): (row["entitlement_gpus"], row["denied_gpu_hours"])
        for tier in api.rows("fairness")
        for row in tier["teams"]
    }
    assert expected
    entitled = of(hour, "gpuportal_team_entitlement_gpus")
    unmet = of(hour, "gpuportal_team_unmet_fair_share_gpus")
    assert {key: (entitled[key], unmet[key]) for key in unmet} == expected


def test_series_of_budgets_are_what_the_api_says(
    hour: Window, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = Team.objects.get(name="vision")
    for given in ({"gpu_hours": 1000.0}, {"money": "20000", "currency": "USD"}):
        Budget.objects.create(team=team, period="month", valid_from=BEGINNING, **given)
    # Budgets are told as of now: here in the last hour of a month, where their period still runs.
    at = hour.end - _HOUR / 2
    monkeypatch.setattr(timezone, "now", lambda: at)
    rows = {(r["team"], "month", r["unit"]): r for r in api.now("budgets", {})}
    assert {unit for _, _, unit in rows} == {"gpu_hours", "USD"}
    found = {name: dict(samples) for name, samples in quota_figures(at).items()}
    rates = {of: row["burn_rate"] for of, row in rows.items()}
    used = {of: row["used"] / row["allowance"] for of, row in rows.items()}
    assert found["gpuportal_team_budget_burn_rate"] == pytest.approx(rates)
    assert found["gpuportal_team_budget_used_ratio"] == pytest.approx(used)


def test_each_cluster_tells_its_own_newest_hour(hour: Window) -> None:
    late = CollectionWindow.objects.filter(cluster__name="east", hour__gte=hour.start - _HOUR)
    late.update(state="failed")
    through = of(hour, "gpuportal_data_through_timestamp_seconds")
    assert through["west", "usage"] == hour.end.timestamp()
    assert through["east", "usage"] == (hour.start - _HOUR).timestamp()
    assert of(hour, "gpuportal_tier_capacity_gpus")["east", "silver"] == 8.0


def test_what_is_older_than_a_day_is_absent(hour: Window) -> None:
    assert not portal_figures(hour.end + timedelta(days=2))


def test_only_declared_series_are_read(hour: Window) -> None:
    assert set(portal_figures(now(hour))) <= {one.name for one in FIGURES}
    assert set(quota_figures(now(hour))) <= {one.name for one in QUOTAS}
    for one in FIGURES:
        for labels, _ in portal_figures(now(hour)).get(one.name, ()):
            assert len(labels) == len(one.labels)
