"""Proposals for entitlements, namespaces and budgets: who may, what they change, and the file."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from apps.accounts.domain.identity import ActingParty
from apps.accounts.models import AuditEntry, User
from apps.accounts.permissions import EVERYTHING, NotAllowed, visibility_of
from apps.accounts.services import verify_audit
from apps.alerts.models import Alert
from apps.clusters.models import Cluster, Namespace
from apps.clusters.services import catalog as clusters
from apps.operations.domain.proposals import ProposalKind, ProposalRefused, ProposalTarget
from apps.operations.domain.source_positions import CatalogError
from apps.operations.models import CatalogProposal
from apps.operations.selectors import (
    BudgetImpact,
    EntitlementImpact,
    NamespaceMove,
    NamespacesImpact,
    open_proposals,
    proposal_impacts,
    proposal_rows,
    proposal_steps,
)
from apps.operations.services import (
    approve_proposal,
    cancel_proposal,
    dry_runs,
    export_catalog,
    load_catalog,
    preview_proposal,
    reject_proposal,
    submit_proposal,
)
from apps.operations.services.alerting import gather_requests
from apps.quotas.models import Budget, Entitlement
from apps.usage.models import ServingObjective
from tests.operations.catalogs import MONDAY, TUESDAY, WEDNESDAY, load, small

pytestmark = pytest.mark.django_db
ENTITLEMENT = ProposalTarget(ProposalKind.ENTITLEMENT, "speech", "any")
NAMESPACES = ProposalTarget(ProposalKind.NAMESPACES, "vision")
BUDGET = ProposalTarget(ProposalKind.BUDGET, "vision", "month money")


@pytest.fixture
def ada() -> User:
    """Ada leads vision, by the catalog that is loaded."""
    load(small())
    return User.objects.create_user("ada")


@pytest.fixture
def cleo() -> User:
    return User.objects.create_user("cleo", role="admin")


@pytest.fixture
def dana() -> User:
    return User.objects.create_user("dana", role="admin")


def by(user: User) -> ActingParty:
    return ActingParty(user.username, "192.0.2.7")


def submit(
    user: User, target: ProposalTarget, value: dict[str, Any], now: datetime = TUESDAY
) -> int:
    reason = "The exam needs it."
    return submit_proposal(user, target, value, reason=reason, now=now, by=by(user)).pk


def approve(user: User, pk: int) -> None:
    approve_proposal(user, pk, decision="", now=WEDNESDAY, by=by(user))


def test_an_approved_entitlement_holds_from_then_on(ada: User, cleo: User, dana: User) -> None:
    pk = submit(cleo, ENTITLEMENT, {"gpus": "6", "weight": "2.5"})
    assert CatalogProposal.objects.get().before == {"gpus": "4"}
    approve(dana, pk)
    rows = Entitlement.objects.order_by("valid_from").values_list("gpus", "weight", "valid_to")
    assert list(rows) == [(4.0, 4.0, WEDNESDAY), (6.0, 2.5, None)]


def test_namespaces_and_budgets_are_changed_the_same_way(ada: User, cleo: User) -> None:
    approve(cleo, submit(ada, NAMESPACES, {"patterns": ["vision", "lab-*"]}))
    claims = clusters.loaded_namespace_teams()
    assert {c.pattern for c in claims if c.team == "vision" and c.valid_to is None} == {
        "vision",
        "lab-*",
    }
    approve(cleo, submit(ada, BUDGET, {"amount": "2500.50", "currency": "USD"}, WEDNESDAY))
    budget = Budget.objects.get(valid_to=None)
    assert (str(budget.money), budget.currency, budget.period) == ("2500.50000000", "USD", "month")
    later = submit(ada, BUDGET, {}, WEDNESDAY)
    approve_proposal(cleo, later, decision="", now=WEDNESDAY + timedelta(hours=1), by=by(cleo))
    assert not Budget.objects.filter(valid_to=None).exists()


@pytest.mark.parametrize(
    ("target", "value", "says"),
    [
        (ENTITLEMENT, {"gpus": "-1"}, "0 to 1,000,000"),
        (ENTITLEMENT, {"gpus": "many"}, "is no number"),
        (ENTITLEMENT, {"gpus": "4"}, "says already"),
        (
            ProposalTarget(ProposalKind.ENTITLEMENT, "speech", "gold"),
            {"gpus": "1"},
            "No tier of that name",
        ),
        (ProposalTarget(ProposalKind.ENTITLEMENT, "none", "any"), {"gpus": "1"}, "no team"),
        (NAMESPACES, {"patterns": ["*-speech"]}, "Claimed twice"),
        (NAMESPACES, {"patterns": ["UPPER"]}, "lower-case"),
        (BUDGET, {"amount": "x", "currency": "USD"}, "decimal number"),
        (ProposalTarget(ProposalKind.BUDGET, "vision", "day money"), {"amount": "1"}, "week"),
    ],
)
def test_what_the_catalog_would_refuse_is_refused_with_its_reason(
    ada: User, target: ProposalTarget, value: dict[str, Any], says: str
) -> None:
    with pytest.raises(ProposalRefused, match=says):
        preview_proposal(target, value, now=TUESDAY)


def test_who_may_propose_decide_and_cancel(ada: User, cleo: User, dana: User) -> None:
    with pytest.raises(NotAllowed):
        submit(ada, ENTITLEMENT, {"gpus": "6"})
    pk = submit(ada, NAMESPACES, {"patterns": ["vision"]})
    with pytest.raises(NotAllowed):
        approve(ada, pk)
    with pytest.raises(NotAllowed):
        cancel_proposal(cleo, pk, now=WEDNESDAY, by=by(cleo))
    own = submit(cleo, ENTITLEMENT, {"gpus": "6"})
    with pytest.raises(NotAllowed, match="Another administrator"):
        approve(cleo, own)
    with pytest.raises(ProposalRefused, match="Give a reason"):
        reject_proposal(dana, own, decision=" ", now=WEDNESDAY, by=by(dana))
    reject_proposal(dana, own, decision="No capacity.", now=WEDNESDAY, by=by(dana))
    with pytest.raises(ProposalRefused, match="rejected already"):
        approve(dana, own)
    cancel_proposal(ada, pk, now=WEDNESDAY, by=by(ada))
    assert Entitlement.objects.count() == 1


def test_one_proposal_at_a_time_and_none_on_what_changed_meanwhile(ada: User, cleo: User) -> None:
    pk = submit(ada, NAMESPACES, {"patterns": ["vision"]})
    with pytest.raises(ProposalRefused, match="is pending"):
        submit(ada, NAMESPACES, {"patterns": ["v-*"]})
    other = small()
    other["teams"][0]["namespaces"] = ["vision", "v-*", "video"]
    load(other, TUESDAY)
    with pytest.raises(ProposalRefused, match="changed after this was proposed"):
        approve(cleo, pk)


def test_a_file_that_undoes_an_approval_is_not_loaded_unseen(ada: User, cleo: User) -> None:
    pk = submit(ada, NAMESPACES, {"patterns": ["vision"]})
    approve(cleo, pk)
    with pytest.raises(CatalogError, match=f"would undo proposal {pk}: namespaces of vision"):
        load(small(), WEDNESDAY)
    exported = export_catalog(now=WEDNESDAY)
    assert load(exported, WEDNESDAY + timedelta(hours=1)).is_empty
    # From then on the file knows of it, and may say something else.
    later = WEDNESDAY + timedelta(hours=2)
    assert [str(change.name) for change in load(small(), later).changes] == ["v-*"]


def test_it_is_undone_on_purpose_and_other_approvals_stay_unknown_to_the_file(
    ada: User, cleo: User
) -> None:
    approve(cleo, submit(ada, NAMESPACES, {"patterns": ["vision"]}))
    approve(cleo, submit(ada, BUDGET, {"amount": "10", "currency": "USD"}, WEDNESDAY))
    with pytest.raises(CatalogError) as refused:
        load(small(), WEDNESDAY)
    assert len(refused.value.problems) == 2
    load_catalog(_text(small()), "c.yaml", now=WEDNESDAY + timedelta(hours=1), undo_approved=True)
    assert not CatalogProposal.objects.filter(in_file=False).exists()


def test_a_team_with_a_plan_is_changed_in_its_file(ada: User) -> None:
    planned = small()
    planned["teams"][1] |= {"entitlements": {"any": 9}, "valid_from": "2026-12-01"}
    load(planned, MONDAY + timedelta(hours=1))
    with pytest.raises(ProposalRefused, match="plans a change of speech for 2026-12-01"):
        preview_proposal(ENTITLEMENT, {"gpus": "6"}, now=TUESDAY)


def test_each_step_is_in_the_audit(ada: User, cleo: User) -> None:
    approve(cleo, submit(ada, NAMESPACES, {"patterns": ["vision"]}))
    found = AuditEntry.objects.filter(subject__startswith="catalog-proposal/").order_by("number")
    assert [(row.actor, row.action) for row in found] == [
        ("ada", "submit_proposal"),
        ("cleo", "approve_proposal"),
    ]
    assert verify_audit().holds


def _text(catalog: dict[str, Any]) -> str:
    return yaml.safe_dump(catalog, sort_keys=False)


# ---------------------------------------------------------------- impact, dry run and alerts


def test_an_entitlement_is_held_against_those_of_other_teams(ada: User) -> None:
    change = preview_proposal(ENTITLEMENT, {"gpus": "6"}, now=TUESDAY).change
    (found,) = proposal_impacts([change], now=TUESDAY, visibility=EVERYTHING)
    assert isinstance(found, EntitlementImpact)
    assert (found.share(4), found.share(0), found.capacity) == (1.0, None, None)
    with_others = EntitlementImpact(others=6.0, capacity=8.0, allocated=1.0)
    assert (with_others.share(2), with_others.committed(2)) == (0.25, 1.0)


def test_namespaces_that_move_are_named_with_both_teams(ada: User) -> None:
    cluster = Cluster.objects.get()
    for name in ("v-one", "a-speech", "lone"):
        Namespace.objects.create(cluster=cluster, name=name)
    wanted = {"patterns": ["vision", "a-speech", "lone"]}
    change = preview_proposal(NAMESPACES, wanted, now=TUESDAY).change
    (found,) = proposal_impacts([change], now=TUESDAY, visibility=EVERYTHING)
    assert found == NamespacesImpact(
        (
            NamespaceMove("a-speech", "speech", "vision"),
            NamespaceMove("lone", "", "vision"),
            NamespaceMove("v-one", "vision", ""),
        ),
        costs={},
    )


@pytest.mark.parametrize("unit", ["money", "gpu_hours"])
def test_a_new_budget_is_held_against_the_period_that_runs(ada: User, unit: str) -> None:
    target = ProposalTarget(ProposalKind.BUDGET, "vision", f"month {unit}")
    value = {"amount": "10", **({"currency": "USD"} if unit == "money" else {})}
    change = preview_proposal(target, value, now=TUESDAY).change
    (found,) = proposal_impacts([change], now=TUESDAY, visibility=EVERYTHING)
    assert isinstance(found, BudgetImpact)
    assert (found.used, found.burn_rate(10.0)) == (None, None)
    assert BudgetImpact("USD", 5.0, 15.0).burn_rate(10.0) == 1.5


def test_a_dry_run_says_what_approving_would_do_now(ada: User) -> None:
    submit(ada, NAMESPACES, {"patterns": ["vision"]})
    (row,) = open_proposals(visibility=EVERYTHING)
    (run,) = dry_runs([row.change], now=TUESDAY)
    assert (len(run.changes), run.refusal) == (1, "")
    other = small()
    other["teams"][0]["namespaces"] = ["vision", "v-*", "video"]
    load(other, TUESDAY)
    (run,) = dry_runs([row.change], now=WEDNESDAY)
    assert "changed after this was proposed" in run.refusal
    assert dry_runs([], now=TUESDAY) == []


def test_a_proposal_leaves_the_objectives_of_services_alone(ada: User, cleo: User) -> None:
    entries = [
        {"ttft": "300ms", "namespace": "vision", "workload": "Deployment/chat-*"},
        {"ttft": "1s"},
    ]
    load(small(serving_objectives=entries), TUESDAY)
    before = list(ServingObjective.objects.order_by("pk").values())
    pk = submit(ada, NAMESPACES, {"patterns": ["vision"]})
    (row,) = open_proposals(visibility=EVERYTHING)
    (run,) = dry_runs([row.change], now=WEDNESDAY)
    # Only the pattern that goes: what the pages do not know of is not closed by them.
    assert run.refusal == ""
    (change,) = run.changes
    assert "v-*" in change
    approve(cleo, pk)
    assert list(ServingObjective.objects.order_by("pk").values()) == before
    assert yaml.safe_load(export_catalog(now=WEDNESDAY))["serving_objectives"] == entries


def test_each_step_is_an_alert_of_the_team(ada: User, cleo: User) -> None:
    gather_requests(TUESDAY, ZoneInfo("UTC"))
    pk = submit(ada, NAMESPACES, {"patterns": ["vision"]})
    approve(cleo, pk)
    assert gather_requests(WEDNESDAY, ZoneInfo("UTC")) == 2
    assert gather_requests(WEDNESDAY, ZoneInfo("UTC")) == 0
    found = Alert.objects.order_by("pk").values_list("team__name", "title", "path")
    assert list(found) == [
        (
            "vision",
            f"Proposal {pk} was {word}: namespaces of vision",
            f"/quotas/proposals/{pk}/",
        )
        for word in ("submitted", "approved")
    ]


def test_a_proposal_is_read_with_its_steps_by_who_sees_its_team(ada: User, cleo: User) -> None:
    pk = submit(ada, NAMESPACES, {"patterns": ["vision"]})
    approve(cleo, pk)
    steps = proposal_steps(pk, visibility=EVERYTHING)
    assert [(step.actor, step.word) for step in steps] == [
        ("ada", "submitted"),
        ("cleo", "approved"),
    ]
    assert proposal_steps(pk, visibility=visibility_of(User.objects.create_user("dan"))) == []


def test_proposals_are_read_in_pages_the_latest_first(ada: User, cleo: User) -> None:
    pks = [
        submit(ada, NAMESPACES, {"patterns": ["vision"]}),
        submit(ada, BUDGET, {"amount": "10", "currency": "USD"}),
        submit(cleo, ENTITLEMENT, {"gpus": "6"}),
    ]
    first = proposal_rows(visibility=EVERYTHING, page_size=2)
    rest = proposal_rows(visibility=EVERYTHING, page_size=2, cursor=first.next_cursor)
    assert [row.id for row in (*first.rows, *rest.rows)] == pks[::-1]
    assert rest.next_cursor is None
    assert proposal_rows(visibility=EVERYTHING, states=["approved"]).rows == ()
