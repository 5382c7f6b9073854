"""What catalogs close and open in the database, and what an earlier hour then finds."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import yaml
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts import services as accounts
from apps.accounts.models import Team
from apps.clusters.domain.tiers import UNASSIGNED, GpuSharing, TierRule
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, NamespaceTeam, Tier, ValidityPeriod
from apps.clusters.models import TierRule as TierRuleRow
from apps.clusters.services import catalog as clusters
from apps.costs.models import Price
from apps.operations.domain.source_positions import BEGINNING, CatalogError
from apps.operations.domain.timeline import RowAction
from apps.operations.services import ensure_builtin, export_catalog
from apps.quotas.models import Budget, Entitlement
from apps.usage.services.serving_objectives import ttft_objectives
from tests.operations.catalogs import (
    EVERY_KEY,
    MONDAY,
    TUESDAY,
    WEDNESDAY,
    all_rows,
    changes,
    load,
    small,
)

pytestmark = pytest.mark.django_db


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
    untouched = TierRule("any", GpuSharing.EXCLUSIVE, ("nvidia.com/gpu",))
    for at, product in (
        (BEGINNING, "A100"),
        (TUESDAY - timedelta(hours=1), "A100"),
        (TUESDAY, "A100-80GB"),
        (WEDNESDAY, "A100-80GB"),
    ):
        selector = {"nvidia.com/gpu.product": product}
        rule = TierRule("a100", GpuSharing.EXCLUSIVE, ("nvidia.com/gpu",), (), selector)
        assert clusters.tier_rules_at(at) == [rule, untouched]


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
        "added namespace pattern new",
    ]
    assert NamespaceTeam.objects.get(pattern="new").valid_from == TUESDAY
    assert [rule.tier for rule in clusters.tier_rules_at(MONDAY)] == ["a100", "any"]
    assert [rule.tier for rule in clusters.tier_rules_at(TUESDAY)] == ["special", "a100", "any"]


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
    for table in ("TierRule", "Entitlement"):
        assert {r["valid_from"] for r in after[table] if r["valid_to"] is None} == {TUESDAY}
    assert not Budget.objects.filter(valid_to=None).exists()


def test_what_comes_back_is_active_again_and_its_gap_stays() -> None:
    load(small())
    load(small(teams=[small()["teams"][1]]), TUESDAY)
    difference = load(small(), WEDNESDAY)
    assert [str(change) for change in difference.changes] == [
        "changed team vision: active false → true",
        "changed lead ada of vision: lead false → true",
        "added namespace pattern vision from 2026-11-18T08:00:00+00:00: team vision",
        "added namespace pattern v-* from 2026-11-18T08:00:00+00:00: team vision",
    ]
    vision, unassigned = Team.objects.get(name="vision").pk, Team.objects.get(name=UNASSIGNED).pk
    owners = [
        clusters.team_finder_at(at)("vision") for at in (MONDAY, TUESDAY, WEDNESDAY, BEGINNING)
    ]
    assert owners == [vision, unassigned, vision, vision]


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


def test_without_claims_all_namespaces_are_unassigned() -> None:
    ensure_builtin()
    assert clusters.team_finder_at(MONDAY)("any") == Team.objects.get(name=UNASSIGNED).pk
    Team.objects.filter(name=UNASSIGNED).delete()
    with pytest.raises(Team.DoesNotExist):
        clusters.team_finder_at(MONDAY)


def test_a_pattern_that_moves_to_another_team_changes_hands_at_one_moment() -> None:
    load(small())
    moved = small()
    moved["teams"][0]["namespaces"] = ["vision"]
    moved["teams"][1]["namespaces"] = ["v-*", "*-speech"]
    difference = load(moved, TUESDAY)
    assert changes(difference) == ["changed namespace pattern v-*"]
    names = {pk: name for name, pk in accounts.team_ids().items()}
    owners = [names[clusters.team_finder_at(at)("v-1")] for at in (MONDAY, TUESDAY)]
    assert owners == ["vision", "speech"]


def test_a_price_is_put_right_and_followed_by_the_next() -> None:
    def priced(*listed: tuple[str, str]) -> dict[str, Any]:
        common = {"gpu_model": "A100", "capacity_type": "spot", "currency": "USD"}
        return small(
            prices=[{**common, "per_gpu_hour": p, "valid_from": since} for p, since in listed]
        )

    load(priced(("3.06", "2026-01-01")))
    difference = load(priced(("3.00", "2026-01-01"), ("2.5", "2026-06-01")), TUESDAY)
    assert [(c.action, str(c.columns[0])) for c in difference.changes] == [
        (RowAction.CORRECTED, "per_gpu_hour 3.06 → 3"),
        (RowAction.CHANGED, "per_gpu_hour 3 → 2.5"),
    ]
    rows = Price.objects.order_by("valid_from").values_list("per_gpu_hour", "valid_to")
    assert list(rows) == [
        (Decimal("3"), datetime(2026, 6, 1, tzinfo=UTC)),
        (Decimal("2.5"), None),
    ]
    assert load(priced(("2.50", "2026-06-01")), WEDNESDAY).is_empty


def test_a_gpu_model_spelt_another_way_is_the_same_price() -> None:
    load(small())
    again = small()
    again["prices"][0]["gpu_model"] = "a 1-00"
    assert load(again, TUESDAY).is_empty


def test_a_plan_that_was_never_in_force_is_withdrawn() -> None:
    load(small())
    plan = small()
    plan["tiers"][1] |= {"sharing": "mps", "valid_from": "2027-01-01"}
    load(plan, TUESDAY)
    difference = load(small(), WEDNESDAY)
    assert changes(difference) == ["changed tier rule any", "withdrawn tier rule any"]
    rule = TierRuleRow.objects.get(tier__name="any")
    assert (rule.sharing, rule.valid_from, rule.valid_to) == ("exclusive", BEGINNING, None)


def test_a_start_that_nobody_decided_is_never_stored() -> None:
    record = clusters.NamespaceTeamRecord("p", "t", 1)
    with pytest.raises(ValueError, match="no start was decided"):
        clusters.span(record)


def test_every_table_with_a_span_is_loaded_from_the_catalog() -> None:
    spans = {m.__name__ for m in apps.get_models() if issubclass(m, ValidityPeriod)}
    assert spans == {
        *("TierRule", "QueueTimeObjective", "NamespaceTeam", "Entitlement", "Budget", "Price"),
        *("EnergyFactor", "ServingObjective"),
    }


def _objectives(*entries: dict[str, str]) -> dict[str, Any]:
    return small(serving_objectives=list(entries))


def test_objectives_of_services_are_closed_and_opened_and_keep_their_order() -> None:
    chat = {"namespace": "chat", "workload": "llama-*", "ttft": "300ms"}
    load(_objectives(chat, {"cluster": "west", "ttft": "2s"}))
    west = Cluster.objects.get()
    before = ttft_objectives(west, Window(MONDAY, TUESDAY), [])
    assert [(rule.ttft_ms, rule.workload) for rule in before.rules] == [
        (300, "llama-*"),
        (2000, ""),
    ]
    changed = _objectives({"model": "qwen", "ttft": "1s"}, chat | {"ttft": "250ms"})
    difference = load(changed, TUESDAY)
    assert [str(change) for change in difference.changes] == [
        "added serving objective model qwen from 2026-11-17T08:00:00+00:00: ttft_ms 1000",
        "changed serving objective namespace chat, workload llama-* from "
        "2026-11-17T08:00:00+00:00: ttft_ms 300 → 250",
        "closed serving objective cluster west from 2026-11-17T08:00:00+00:00",
    ]
    day = timedelta(days=1)
    earlier = ttft_objectives(west, Window(MONDAY, TUESDAY), [])
    later = ttft_objectives(west, Window(TUESDAY, TUESDAY + day), [])
    assert [rule.ttft_ms for rule in earlier.rules] == [300, 2000]
    assert [rule.ttft_ms for rule in later.rules] == [1000, 250]
    other = Cluster(pk=west.pk + 1, name="east")
    assert [r.ttft_ms for r in ttft_objectives(other, Window(MONDAY, TUESDAY), []).rules] == [300]
    assert load(changed, WEDNESDAY).is_empty


def test_a_planned_objective_is_exported_with_its_day() -> None:
    load(_objectives({"ttft": "500ms"}))
    load(_objectives({"ttft": "300ms", "valid_from": "2026-12-01"}), TUESDAY)
    exported = export_catalog(now=WEDNESDAY)
    assert yaml.safe_load(exported)["serving_objectives"] == [
        {"ttft": "300ms", "valid_from": "2026-12-01T00:00:00Z"}
    ]
    assert load(exported, WEDNESDAY).is_empty
