"""Loading a catalog into the database: once, again, changed, and two at a time."""

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import yaml
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from apps.accounts import services as accounts
from apps.accounts.models import Membership, Team
from apps.clusters.domain.tiers import BUILTIN_TIERS, UNASSIGNED
from apps.clusters.models import Cluster, NamespaceTeam, ReportSettings, Tier
from apps.clusters.models import TierRule as TierRuleRow
from apps.clusters.services import catalog as clusters
from apps.costs.models import Price
from apps.operations.domain.source_positions import BEGINNING, CatalogError
from apps.operations.services import (
    CatalogNotStored,
    ensure_builtin,
    export_catalog,
    load_catalog,
)
from apps.quotas.models import Budget, Entitlement
from tests import factories
from tests.operations.catalogs import (
    DESIGN,
    EVERY_KEY,
    MONDAY,
    TUESDAY,
    WEDNESDAY,
    all_rows,
    changes,
    edited,
    load,
    small,
    writes,
)
from tests.thinned import examples

pytestmark = pytest.mark.django_db


def test_the_example_of_the_documentation_loads() -> None:
    load(DESIGN)
    cluster = Cluster.objects.get()
    assert cluster.prometheus == {
        "url": "http://127.0.0.1:9090",
        "matchers": {"cluster": "west"},
        "scrape_interval_seconds": 30.0,
    }
    assert cluster.kubernetes == {
        "kubeconfig": "/etc/gpuportal/west.kubeconfig",
        "context": "west",
    }
    rule = TierRuleRow.objects.select_related("tier").get()
    assert (rule.tier.name, rule.tier.promise) == ("exclusive-a100", "A whole GPU, alone.")
    assert (rule.sharing, rule.resources) == ("exclusive", ["nvidia.com/gpu"])
    assert rule.node_selector == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    assert rule.allowed_teams == ["vision"]
    assert (rule.valid_from, rule.valid_to) == (BEGINNING, None)
    team = Team.objects.get(name="vision")
    assert (team.cost_center, team.active, team.builtin) == ("CC-100", True, False)
    lead = Membership.objects.get()
    assert (lead.team, lead.username, lead.lead) == (team, "ada", True)
    claims = NamespaceTeam.objects.order_by("position").values_list("pattern", "team__name")
    assert list(claims) == [("vision", "vision"), ("vision-*", "vision")]
    entitlement = Entitlement.objects.get()
    assert (entitlement.gpus, entitlement.weight) == (12.0, 12.0)
    budget = Budget.objects.get()
    assert (budget.period, budget.gpu_hours, budget.money) == ("month", 5000.0, None)
    price = Price.objects.get()
    assert (price.per_gpu_hour, price.currency) == (Decimal("3.06"), "USD")
    assert price.valid_from == datetime(2025, 12, 31, 23, tzinfo=UTC)
    report = ReportSettings.objects.get()
    assert (report.time_zone, report.currency) == ("Europe/Berlin", "USD")


def test_every_key_of_the_schema_loads() -> None:
    load(EVERY_KEY)
    kubernetes = dict(Cluster.objects.values_list("name", "kubernetes"))
    assert kubernetes["inside"] == {
        "in_cluster": True,
        "writer": {"kubeconfig": "/etc/gpuportal/writer.kubeconfig"},
    }
    assert kubernetes["lab"] == {
        "api_server": "http://127.0.0.1:9095",
        "bearer_token_env": "LAB_TOKEN",
        "ca_file": "/lab.pem",
    }
    assert kubernetes["metrics"] is None
    weights = Entitlement.objects.order_by("tier__position")
    assert list(weights.values_list("tier__name", "gpus", "weight")) == [
        ("mig-1g", 0.5, 0.5),
        ("sliced", 0.0, 1.0),
        ("exclusive-a100", 12.0, 3.0),
    ]
    money = Budget.objects.filter(money__isnull=False).order_by("pk")
    assert list(money.values_list("money", "currency")) == [
        (Decimal("20000"), "USD"),
        (Decimal("0.5"), "EUR"),
    ]
    listed = Price.objects.filter(cluster=None, capacity_type="on-demand").order_by("valid_from")
    first, second = listed
    assert (first.valid_to, second.valid_to) == (datetime(2026, 7, 1, tzinfo=UTC), None)
    assert second.valid_from == first.valid_to
    mig = TierRuleRow.objects.get(tier__name="mig-1g")
    assert mig.valid_from == datetime(2026, 2, 28, 18, 30, tzinfo=UTC)


def test_the_tiers_and_the_team_of_the_portal_itself_always_exist() -> None:
    Team.objects.filter(name=UNASSIGNED).delete()
    Tier.objects.filter(name__in=BUILTIN_TIERS).delete()
    ensure_builtin()
    before = all_rows()
    ensure_builtin()
    assert all_rows() == before
    assert set(Tier.objects.filter(builtin=True).values_list("name", flat=True)) == {*BUILTIN_TIERS}
    assert Team.objects.get(builtin=True).name == UNASSIGNED == accounts.UNASSIGNED
    load({"clusters": [{"name": "west", "prometheus": {"url": "http://p"}}]})
    assert Team.objects.get(builtin=True).active
    assert Tier.objects.filter(builtin=True, active=True).count() == 2


@pytest.mark.parametrize("text", [DESIGN, EVERY_KEY], ids=["design", "every key"])
def test_loading_twice_changes_nothing_and_writes_nothing(text: str) -> None:
    load(text)
    before = all_rows()
    with CaptureQueriesContext(connection) as captured:
        difference = load(text, TUESDAY)
    assert difference.is_empty
    assert writes(captured) == []
    assert all_rows() == before


@pytest.mark.parametrize("loaded", [False, True], ids=["into nothing", "over another"])
def test_a_dry_run_tells_the_difference_and_writes_nothing(*, loaded: bool) -> None:
    Team.objects.filter(name=UNASSIGNED).delete()
    if loaded:
        load(small())
    before = all_rows()
    with CaptureQueriesContext(connection) as captured:
        told = load_catalog(EVERY_KEY, "c.yaml", now=TUESDAY, dry_run=True)
    assert writes(captured) == []
    assert all_rows() == before
    assert told == load(EVERY_KEY, TUESDAY)
    assert not told.is_empty


def test_an_error_changes_nothing() -> None:
    load(small())
    before = all_rows()
    with CaptureQueriesContext(connection) as captured, pytest.raises(CatalogError):
        load(small(tiers=[], teams=[{"name": "vision", "entitlements": {"gold": 1}}]))
    assert captured.captured_queries == []
    assert all_rows() == before


def test_leads_follow_the_catalog_and_members_added_elsewhere_stay() -> None:
    load(small())
    vision = Team.objects.get(name="vision")
    Membership.objects.create(team=vision, username="ben")
    Membership.objects.create(team=Team.objects.get(name=UNASSIGNED), username="x", lead=True)
    changed = small()
    changed["teams"][0]["leads"] = ["ben", "cleo"]
    difference = load(changed, TUESDAY)
    assert changes(difference) == [
        "changed lead ben of vision",
        "added lead cleo of vision",
        "closed lead ada of vision",
    ]
    people = Membership.objects.order_by("username").values_list("username", "lead")
    assert list(people) == [("ada", False), ("ben", True), ("cleo", True), ("x", True)]
    assert load(changed, WEDNESDAY).is_empty


def test_a_connection_changes_in_place() -> None:
    load(small())
    moved = small(clusters=[{"name": "west", "prometheus": {"url": "http://q:9090"}}])
    pk = Cluster.objects.get().pk
    difference = load(moved, TUESDAY)
    assert [str(change) for change in difference.changes] == [
        "changed cluster west: prometheus {url: http://p:9090, matchers: none, "
        "scrape_interval_seconds: 30} → {url: http://q:9090, matchers: none, "
        "scrape_interval_seconds: 30}"
    ]
    assert Cluster.objects.get().pk == pk
    assert Cluster.objects.get().prometheus["url"] == "http://q:9090"


def test_the_number_of_queries_does_not_grow_with_the_catalog() -> None:
    def large(teams: int) -> dict[str, Any]:
        return small(
            teams=[
                {
                    "name": f"t{n}",
                    "leads": [f"lead{n}"],
                    "namespaces": [f"t{n}", f"t{n}-*"],
                    "entitlements": {"any": n, "a100": 1},
                    "budgets": [{"period": "month", "gpu_hours": 1 + n}],
                }
                for n in range(teams)
            ]
        )

    counts = []
    for teams, now in ((10, MONDAY), (60, TUESDAY), (60, WEDNESDAY)):
        with CaptureQueriesContext(connection) as captured:
            load(large(teams), now)
        counts.append(len(captured))
    first, more, again = counts
    assert first <= 48
    assert more <= first + 10
    assert again <= 19
    with CaptureQueriesContext(connection) as captured:
        clusters.tier_rules_at(MONDAY)
        clusters.tier_ids()
    assert len(captured) == 2


@examples(6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 7), max_size=6))
def test_any_edits_load_and_loading_each_again_changes_nothing(edits: list[int]) -> None:
    for model in (Price, Budget, Entitlement, NamespaceTeam, TierRuleRow):
        model._default_manager.all().delete()
    now = MONDAY
    for edit in edits:
        now += timedelta(hours=1)
        catalog = edited(edit)
        text = yaml.safe_dump(catalog, sort_keys=False)
        told = load_catalog(text, "c", now=now, dry_run=True)
        assert load(catalog, now) == told
        assert load(catalog, now + timedelta(minutes=1)).is_empty
        assert load(export_catalog(now=now), now + timedelta(minutes=2)).is_empty
        rules = clusters.tier_rules_at(now)
        assert [rule.tier for rule in rules] == [tier["name"] for tier in catalog["tiers"]]


@pytest.mark.django_db(transaction=True)
def test_two_loads_at_once_leave_one_of_the_two_catalogs_whole() -> None:
    ensure_builtin()
    start = threading.Barrier(2)
    refused: list[CatalogNotStored] = []

    def run(catalog: dict[str, Any]) -> None:
        start.wait(timeout=20)
        try:
            load(catalog)
        except CatalogNotStored as error:
            refused.append(error)
        finally:
            connection.close()

    both = [small(), edited(7)]
    threads = [threading.Thread(target=run, args=(catalog,)) for catalog in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=40)
    assert len(refused) <= 1
    assert all("load it again" in str(error) for error in refused)
    assert sum(load_again_changes_nothing(catalog) for catalog in both) == 1


def load_again_changes_nothing(catalog: dict[str, Any]) -> bool:
    return load_catalog(yaml.safe_dump(catalog), "c", now=TUESDAY, dry_run=True).is_empty


def test_rows_that_another_process_put_in_the_way_are_told_and_nothing_is_stored() -> None:
    load(small())
    Tier.objects.create(name="b", builtin=True)
    before = all_rows()
    with pytest.raises(CatalogNotStored, match="another process changed the catalog's rows"):
        load(edited(1), TUESDAY)
    assert all_rows() == before


# ---------------------------------------------------------------- the zone of facts


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("catalog", "line"),
    [
        pytest.param(small(report={"time_zone": "UTC"}), "report.time_zone", id="another zone"),
        pytest.param(small(), "report.time_zone", id="none, which is UTC"),
    ],
)
def test_the_zone_stays_once_days_were_summed_in_it(
    catalog: dict[str, Any], line: str, dry_run: bool
) -> None:
    load(small(report={"time_zone": "Europe/Berlin"}))
    _with_facts()
    before = all_rows()
    with pytest.raises(CatalogError) as refused:
        load_catalog(yaml.safe_dump(catalog), "c.yaml", now=TUESDAY, dry_run=dry_run)
    (problem,) = refused.value.problems
    assert problem.path == line
    assert "UTC is not the zone of the facts that are there, Europe/Berlin" in problem.text
    assert "start a new portal" in problem.text
    assert all_rows() == before


def test_the_currency_may_change_while_the_zone_stays() -> None:
    load(small(report={"time_zone": "Europe/Berlin", "currency": "USD"}))
    _with_facts()
    difference = load(small(report={"time_zone": "Europe/Berlin", "currency": "EUR"}), TUESDAY)
    assert changes(difference) == ["changed report settings"]


def test_the_zone_may_change_before_there_are_facts() -> None:
    load(small(report={"time_zone": "Europe/Berlin"}))
    assert changes(load(small(), TUESDAY)) == ["changed report settings"]


def _with_facts() -> None:
    """Collect one hour on the only cluster."""
    zone = factories.make_report("Europe/Berlin")
    node_gpus = factories.make_gpus(Cluster.objects.get(), "gpu-1", Tier.objects.get(name="any"))
    hour = datetime(2026, 11, 15, 8, tzinfo=UTC)
    factories.collect([hour], [node_gpus], lambda _: [], zone=zone)
