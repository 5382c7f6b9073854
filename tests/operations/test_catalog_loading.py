"""Loading a catalog into the database: once, again, changed, and two at a time."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.accounts import services as accounts
from apps.accounts.models import Membership, Team
from apps.clusters.domain.tiers import BUILTIN_TIERS, UNASSIGNED, Sharing, TierRule
from apps.clusters.models import Cluster, NamespaceClaim, ReportSettings, Tier
from apps.clusters.models import TierRule as TierRuleRow
from apps.clusters.services import catalog as clusters
from apps.costs.models import Price
from apps.operations.domain.difference import Action, CatalogDifference
from apps.operations.domain.instants import BEGINNING
from apps.operations.domain.located import CatalogError
from apps.operations.services import CatalogNotStored, ensure_builtin, load_catalog
from apps.quotas.models import Budget, Entitlement

CATALOGS = Path(__file__).parent / "catalogs"
DESIGN = (CATALOGS / "design.yaml").read_text(encoding="utf-8")
EVERY_KEY = (CATALOGS / "every-key.yaml").read_text(encoding="utf-8")
MONDAY = datetime(2026, 11, 16, 8, tzinfo=UTC)
TUESDAY = MONDAY + timedelta(days=1)
WEDNESDAY = MONDAY + timedelta(days=2)
_WRITES = ("INSERT", "UPDATE", "DELETE")

Rows = dict[str, list[dict[str, Any]]]
Capture = Callable[..., AbstractContextManager[CaptureQueriesContext]]


def load(catalog: str | dict[str, Any], now: datetime = MONDAY) -> CatalogDifference:
    text = catalog if isinstance(catalog, str) else yaml.safe_dump(catalog, sort_keys=False)
    return load_catalog(text, "c.yaml", now=now)


def small(**changed: Any) -> dict[str, Any]:
    """Return a catalog of two tiers and two teams, with some sections changed."""
    product = "nvidia.com/gpu.product"
    return {
        "clusters": [{"name": "west", "prometheus": {"url": "http://p:9090"}}],
        "tiers": [
            {
                "name": "a100",
                "sharing": "exclusive",
                "resources": ["nvidia.com/gpu"],
                "node_selector": {product: "A100"},
            },
            {"name": "any", "sharing": "exclusive", "resources": ["nvidia.com/gpu"]},
        ],
        "teams": [
            {"name": "vision", "leads": ["ada"], "namespaces": ["vision", "v-*"]},
            {"name": "speech", "namespaces": ["*-speech"], "entitlements": {"any": 4}},
        ],
        "prices": [
            {
                "gpu_model": "A100",
                "capacity_type": "spot",
                "per_gpu_hour": "1.5",
                "currency": "USD",
            }
        ],
        **changed,
    }


def all_rows() -> Rows:
    """Return every row of the tables that a catalog writes."""
    models = [
        *(Team, Membership, Cluster, Tier, TierRuleRow, NamespaceClaim, ReportSettings),
        *(Entitlement, Budget, Price),
    ]
    return {m.__name__: list(m._default_manager.order_by("pk").values()) for m in models}


def writes(captured: CaptureQueriesContext) -> list[str]:
    return [q["sql"] for q in captured.captured_queries if q["sql"].startswith(_WRITES)]


def changes(difference: CatalogDifference) -> list[str]:
    return [f"{change.action} {change.what} {change.name}" for change in difference.changes]


@pytest.mark.django_db
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
    assert (rule.tier.name, rule.tier.promise) == ("exclusive-a100", "A whole card, alone.")
    assert (rule.sharing, rule.resources) == ("exclusive", ["nvidia.com/gpu"])
    assert rule.node_selector == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    assert rule.allowed_teams == ["vision"]
    assert (rule.valid_from, rule.valid_to) == (BEGINNING, None)
    team = Team.objects.get(name="vision")
    assert (team.cost_center, team.active, team.builtin) == ("CC-100", True, False)
    lead = Membership.objects.get()
    assert (lead.team, lead.username, lead.lead) == (team, "ada", True)
    claims = NamespaceClaim.objects.order_by("position").values_list("pattern", "team__name")
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


@pytest.mark.django_db
def test_every_key_of_the_schema_loads() -> None:
    load(EVERY_KEY)
    kubernetes = dict(Cluster.objects.values_list("name", "kubernetes"))
    assert kubernetes["inside"] == {"in_cluster": True}
    assert kubernetes["lab"]["api_server"] == "http://127.0.0.1:9095"
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


@pytest.mark.django_db
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


@pytest.mark.django_db
@pytest.mark.parametrize("text", [DESIGN, EVERY_KEY], ids=["design", "every key"])
def test_loading_twice_changes_nothing_and_writes_nothing(text: str) -> None:
    load(text)
    before = all_rows()
    with CaptureQueriesContext(connection) as captured:
        difference = load(text, TUESDAY)
    assert difference.is_empty
    assert writes(captured) == []
    assert all_rows() == before


@pytest.mark.django_db
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


@pytest.mark.django_db
def test_an_error_changes_nothing() -> None:
    load(small())
    before = all_rows()
    with CaptureQueriesContext(connection) as captured, pytest.raises(CatalogError):
        load(small(tiers=[], teams=[{"name": "vision", "entitlements": {"gold": 1}}]))
    assert captured.captured_queries == []
    assert all_rows() == before


@pytest.mark.django_db
def test_a_changed_rule_is_closed_and_opened_and_earlier_hours_keep_theirs() -> None:
    load(small())
    wider = small()
    wider["tiers"][0]["node_selector"] = {"nvidia.com/gpu.product": "A100-80GB"}
    difference = load(wider, TUESDAY)
    assert [str(change) for change in difference.changes] == [
        "changed tier rule a100 from 2026-11-17T08:00:00+00:00: node_selector "
        "{nvidia.com/gpu.product: A100} → {nvidia.com/gpu.product: A100-80GB}"
    ]
    spans = TierRuleRow.objects.filter(tier__name="a100").order_by("valid_from")
    assert list(spans.values_list("valid_from", "valid_to")) == [
        (BEGINNING, TUESDAY),
        (TUESDAY, None),
    ]
    untouched = TierRule("any", Sharing.EXCLUSIVE, ("nvidia.com/gpu",))
    for at, product in (
        (BEGINNING, "A100"),
        (TUESDAY - timedelta(hours=1), "A100"),
        (TUESDAY, "A100-80GB"),
        (WEDNESDAY, "A100-80GB"),
    ):
        selector = {"nvidia.com/gpu.product": product}
        rule = TierRule("a100", Sharing.EXCLUSIVE, ("nvidia.com/gpu",), (), selector)
        assert clusters.tier_rules_at(at) == [rule, untouched]


@pytest.mark.django_db
def test_a_change_with_its_own_valid_from_begins_then() -> None:
    load(small())
    changed = small()
    changed["teams"][1] |= {"entitlements": {"any": 6}, "valid_from": "2026-12-01"}
    changed["report"] = {"time_zone": "Europe/Berlin"}
    load(changed, TUESDAY)
    december = datetime(2026, 11, 30, 23, tzinfo=UTC)
    rows = Entitlement.objects.order_by("valid_from")
    assert list(rows.values_list("gpus", "valid_from", "valid_to")) == [
        (4.0, BEGINNING, december),
        (6.0, december, None),
    ]
    assert load(changed, december + timedelta(days=3)).is_empty


@pytest.mark.django_db
def test_a_change_that_would_rewrite_history_is_refused_with_its_line() -> None:
    load(small())
    load(small(tiers=[small()["tiers"][1]]), TUESDAY)
    before = all_rows()
    text = yaml.safe_dump(
        {
            "clusters": small()["clusters"],
            "tiers": [small()["tiers"][1] | {"sharing": "mps", "valid_from": "2000-01-01"}],
        },
        sort_keys=False,
    )
    with pytest.raises(CatalogError) as raised:
        load(text, WEDNESDAY)
    assert str(raised.value) == (
        "c.yaml:10: tiers[0].valid_from: changes tier rule any from 2000-01-01T00:00:00+00:00 on, "
        "when the loaded one began, and so its whole history; give the change a later valid_from, "
        "or leave valid_from out to change it now"
    )
    assert all_rows() == before


@pytest.mark.django_db
def test_only_the_first_catalog_of_a_portal_opens_at_the_beginning_of_time() -> None:
    load(small())
    more = small()
    more["teams"].append({"name": "new", "namespaces": ["new"]})
    more["tiers"].insert(0, more["tiers"][0] | {"name": "special", "node_selector": {"x": "y"}})
    difference = load(more, TUESDAY)
    assert changes(difference) == [
        "added tier special",
        "added tier rule special",
        "added team new",
        "added namespace claim new",
    ]
    assert NamespaceClaim.objects.get(pattern="new").valid_from == TUESDAY
    assert [rule.tier for rule in clusters.tier_rules_at(MONDAY)] == ["a100", "any"]
    assert [rule.tier for rule in clusters.tier_rules_at(TUESDAY)] == ["special", "a100", "any"]


@pytest.mark.django_db
def test_what_disappears_is_closed_and_never_deleted() -> None:
    load(EVERY_KEY)
    before = all_rows()
    difference = load(small(), TUESDAY)
    after = all_rows()
    for table, rows in before.items():
        kept = {row["id"] for row in after[table]}
        assert {row["id"] for row in rows} <= kept
    assert "closed cluster inside" in changes(difference)
    assert "closed price MI300X unknown" in changes(difference)
    assert not Cluster.objects.get(name="inside").active
    assert not Tier.objects.get(name="mig-1g").active
    assert not Team.objects.get(name="Audio Sprache").active
    for rows in (TierRuleRow.objects, Entitlement.objects, Budget.objects):
        assert set(rows.filter(valid_to=None).values_list("valid_from", flat=True)) <= {TUESDAY}
    assert not Budget.objects.filter(valid_to=None).exists()


@pytest.mark.django_db
def test_what_comes_back_is_active_again_and_its_gap_stays() -> None:
    load(small())
    load(small(teams=[small()["teams"][1]]), TUESDAY)
    difference = load(small(), WEDNESDAY)
    assert [str(change) for change in difference.changes] == [
        "changed team vision: active false → true",
        "changed lead ada of vision: lead false → true",
        "added namespace claim vision from 2026-11-18T08:00:00+00:00: team vision",
        "added namespace claim v-* from 2026-11-18T08:00:00+00:00: team vision",
    ]
    vision, unassigned = Team.objects.get(name="vision").pk, Team.objects.get(name=UNASSIGNED).pk
    owners = [
        clusters.team_finder_at(at)("vision") for at in (MONDAY, TUESDAY, WEDNESDAY, BEGINNING)
    ]
    assert owners == [vision, unassigned, vision, vision]


@pytest.mark.django_db
def test_a_namespace_belongs_to_its_exact_claim_then_to_the_first_pattern() -> None:
    catalog = small(
        teams=[
            {"name": "wide", "namespaces": ["v-*", "?x"]},
            {"name": "exact", "namespaces": ["v-speech", "v-*-speech"]},
            {"name": "late", "namespaces": ["soon"], "valid_from": "2026-11-17T08:00:00Z"},
        ]
    )
    load(catalog)
    names = {pk: name for name, pk in accounts.team_ids().items()}
    asked = ["v-speech", "v-a-speech", "v-", "ax", "abx", "V-1", "soon", "v", "x\nx"]
    with CaptureQueriesContext(connection) as captured:
        finder = clusters.team_finder_at(MONDAY)
        owners = [names[finder(namespace)] for namespace in asked]
    assert len(captured) == 1
    none = [UNASSIGNED] * 5
    assert owners == ["exact", "wide", "wide", "wide", *none]
    assert names[clusters.team_finder_at(TUESDAY)("soon")] == "late"


@pytest.mark.django_db
def test_without_claims_all_namespaces_are_unassigned() -> None:
    ensure_builtin()
    assert clusters.team_finder_at(MONDAY)("any") == Team.objects.get(name=UNASSIGNED).pk
    Team.objects.filter(name=UNASSIGNED).delete()
    with pytest.raises(Team.DoesNotExist):
        clusters.team_finder_at(MONDAY)


@pytest.mark.django_db
def test_a_pattern_that_moves_to_another_team_changes_hands_at_one_moment() -> None:
    load(small())
    moved = small()
    moved["teams"][0]["namespaces"] = ["vision"]
    moved["teams"][1]["namespaces"] = ["v-*", "*-speech"]
    difference = load(moved, TUESDAY)
    assert changes(difference) == ["changed namespace claim v-*"]
    names = {pk: name for name, pk in accounts.team_ids().items()}
    owners = [names[clusters.team_finder_at(at)("v-1")] for at in (MONDAY, TUESDAY)]
    assert owners == ["vision", "speech"]


@pytest.mark.django_db
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


@pytest.mark.django_db
def test_a_price_is_put_right_and_followed_by_the_next() -> None:
    def priced(*listed: tuple[str, str]) -> dict[str, Any]:
        common = {"gpu_model": "A100", "capacity_type": "spot", "currency": "USD"}
        return small(
            prices=[{**common, "per_gpu_hour": p, "valid_from": since} for p, since in listed]
        )

    load(priced(("3.06", "2026-01-01")))
    difference = load(priced(("3.00", "2026-01-01"), ("2.5", "2026-06-01")), TUESDAY)
    assert [(c.action, str(c.columns[0])) for c in difference.changes] == [
        (Action.CORRECTED, "per_gpu_hour 3.06 → 3"),
        (Action.CHANGED, "per_gpu_hour 3 → 2.5"),
    ]
    rows = Price.objects.order_by("valid_from").values_list("per_gpu_hour", "valid_to")
    assert list(rows) == [
        (Decimal("3"), datetime(2026, 6, 1, tzinfo=UTC)),
        (Decimal("2.5"), None),
    ]
    assert load(priced(("2.50", "2026-06-01")), WEDNESDAY).is_empty


@pytest.mark.django_db
def test_a_gpu_model_spelt_another_way_is_the_same_price() -> None:
    load(small())
    again = small()
    again["prices"][0]["gpu_model"] = "a 1-00"
    assert load(again, TUESDAY).is_empty


@pytest.mark.django_db
def test_a_plan_that_was_never_in_force_is_withdrawn() -> None:
    load(small())
    plan = small()
    plan["tiers"][1] |= {"sharing": "mps", "valid_from": "2027-01-01"}
    load(plan, TUESDAY)
    difference = load(small(), WEDNESDAY)
    assert changes(difference) == ["changed tier rule any", "withdrawn tier rule any"]
    rule = TierRuleRow.objects.get(tier__name="any")
    assert (rule.sharing, rule.valid_from, rule.valid_to) == ("exclusive", BEGINNING, None)


@pytest.mark.django_db
def test_a_connection_changes_in_place() -> None:
    load(small())
    moved = small(clusters=[{"name": "west", "prometheus": {"url": "http://q:9090"}}])
    pk = Cluster.objects.get().pk
    difference = load(moved, TUESDAY)
    assert [str(change) for change in difference.changes] == [
        "changed cluster west: prometheus {url: http://p:9090, matchers: none, "
        "scrape_interval_seconds: 30} → {url: http://q:9090, matchers: none, scrape_interval_seconds: 30}"
    ]
    assert Cluster.objects.get().pk == pk
    assert Cluster.objects.get().prometheus["url"] == "http://q:9090"


@pytest.mark.django_db
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
    assert first <= 45
    assert more <= first + 10
    assert again <= 15
    with CaptureQueriesContext(connection) as captured:
        clusters.tier_rules_at(MONDAY)
        clusters.tier_ids()
    assert len(captured) == 2


@pytest.mark.django_db
def test_a_start_that_nobody_decided_is_never_stored() -> None:
    record = clusters.ClaimRecord("p", "t", 1)
    with pytest.raises(ValueError, match="no start was decided"):
        clusters.span(record)


_EDITS = st.lists(st.integers(0, 7), max_size=6)


@pytest.mark.django_db
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_EDITS)
def test_any_edits_load_and_loading_each_again_changes_nothing(edits: list[int]) -> None:
    for model in (Price, Budget, Entitlement, NamespaceClaim, TierRuleRow):
        model._default_manager.all().delete()
    now = MONDAY
    for edit in edits:
        now += timedelta(hours=1)
        catalog = _edited(edit)
        text = yaml.safe_dump(catalog, sort_keys=False)
        told = load_catalog(text, "c", now=now, dry_run=True)
        assert load(catalog, now) == told
        assert load(catalog, now + timedelta(minutes=1)).is_empty
        rules = clusters.tier_rules_at(now)
        assert [rule.tier for rule in rules] == [tier["name"] for tier in catalog["tiers"]]


def _edited(edit: int) -> dict[str, Any]:
    catalog = small()
    if edit & 1:
        catalog["tiers"].insert(0, catalog["tiers"][0] | {"name": "b", "node_selector": {"x": "y"}})
    if edit & 2:
        catalog["teams"].reverse()
        catalog["teams"][0]["entitlements"] = {"any": 7, "a100": 1}
    if edit & 4:
        catalog["tiers"][-2:-1] = []
        catalog["teams"] = [{"name": "speech", "namespaces": ["v-*"], "leads": ["ada"]}]
        catalog["prices"][0]["per_gpu_hour"] = "2"
    return catalog


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

    both = [small(), _edited(7)]
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


@pytest.mark.django_db
def test_rows_that_another_process_put_in_the_way_are_told_and_nothing_is_stored() -> None:
    load(small())
    Tier.objects.create(name="b", builtin=True)
    before = all_rows()
    with pytest.raises(CatalogNotStored, match="another process changed the catalog's rows"):
        load(_edited(1), TUESDAY)
    assert all_rows() == before


def test_every_table_with_a_span_is_loaded_from_the_catalog() -> None:
    spans = {m.__name__ for m in apps.get_models() if issubclass(m, clusters.Valid)}
    assert spans == {"TierRule", "NamespaceClaim", "Entitlement", "Budget", "Price"}
