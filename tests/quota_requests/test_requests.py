"""Asking and deciding: who may do what when, and two people at once."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import override_settings

from apps.accounts.models import AuditEntry, Membership
from apps.accounts.permissions import NotAllowed
from apps.clusters.domain.observed.objects import ObservedKind, VolcanoQueueSnapshot
from apps.clusters.models import WatchCoverage
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState, TransitionDenied
from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.models import ChangeRequest, Comment
from apps.quotas.models import Entitlement
from tests.factories import BEGINNING
from tests.quota_requests.portal import KEY, NOW, Portal, make_portal, make_sighting, served_portal
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db


_portal = shared(lambda: make_portal(None))
# Its cluster cannot be reached: all but applying works.
portal = copy_of("_portal")


def test_a_lead_writes_a_draft_of_what_the_portal_sees(portal: Portal) -> None:
    request = portal.of(portal.draft())
    assert (request.state, request.team.name, request.version) == (RequestState.DRAFT, "vision", 1)
    assert (request.before, request.after, request.tiers) == ("6", "8", ["whole"])
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor, entry.origin) == ("create", "ada", "127.0.0.1")
    assert '"tiers":["whole"]' in entry.after


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"before": "5"}, "is 6 now, not 5", id="another value"),
        pytest.param({"after": "6"}, "nothing to change", id="no change"),
        pytest.param({"after": "-1"}, "cannot be negative", id="negative"),
        pytest.param({"after": "many"}, "not a quantity", id="no number"),
        pytest.param({"name": "other"}, "does not see", id="no such quota"),
        pytest.param({"cluster": "east"}, "no cluster east", id="no such cluster"),
        pytest.param({"key": "limits.nvidia.com/gpu"}, "neither counts", id="dead key"),
        pytest.param({"key": "requests.cpu"}, "not a key for GPUs", id="no GPU key"),
        pytest.param({"source": "Secret"}, "no kind of quota", id="no such kind"),
        pytest.param({"reason": " \0 "}, "needs its reason", id="no reason"),
        pytest.param({"until": NOW}, "must lie ahead", id="end in the past"),
        pytest.param({"team": "speech"}, "speech does not use", id="another team"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_the_reason(
    portal: Portal, values: dict[str, Any], words: str
) -> None:
    with pytest.raises((TargetRefused, services.RequestRefused), match=words):
        portal.draft(**values)
    assert not ChangeRequest.objects.exists()
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    ("who", "error", "words"),
    [
        pytest.param("ben", NotAllowed, "leads", id="a member"),
        pytest.param("dan", TargetRefused, "does not see", id="an outsider"),
        pytest.param("finn", NotAllowed, "leads", id="finance"),
    ],
)
def test_only_leads_and_admins_ask(
    portal: Portal, who: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        portal.draft(by=who)
    assert portal.draft(by="cleo")


def test_one_request_is_open_for_a_quota_key(portal: Portal) -> None:
    first, second = portal.submitted(), portal.draft(after="7")
    ada = portal.actor("ada")
    with pytest.raises(services.KeyTaken, match=f"Request {first} for the same") as taken:
        services.submit(second, by=ada, version=1, now=portal.now)
    assert taken.value.number == first
    assert portal.of(second).state == RequestState.DRAFT
    services.withdraw(first, by=ada, now=portal.now)
    services.submit(second, by=ada, version=1, now=portal.now)
    assert portal.of(second).state == RequestState.SUBMITTED


def test_a_forgotten_draft_is_in_nobodys_way(portal: Portal) -> None:
    portal.draft(by="cleo", after="7")
    assert portal.of(portal.submitted()).state == RequestState.SUBMITTED


def test_the_database_keeps_one_request_open_for_a_key(portal: Portal) -> None:
    portal.submitted()
    second = portal.draft(after="7")
    with pytest.raises(IntegrityError), transaction.atomic():
        ChangeRequest.objects.filter(pk=second).update(state=RequestState.IN_REVIEW.value)


def test_the_first_of_two_editors_wins_and_the_other_is_told(portal: Portal) -> None:
    pk = portal.draft()
    cleo, ada = portal.actor("cleo"), portal.actor("ada")
    read = portal.of(pk).version
    Membership.objects.filter(username="ben").update(lead=True)
    ben = portal.actor("ben")
    services.edit(pk, services.Edited(after="7"), by=ben, version=read, now=portal.now)
    with pytest.raises(services.Conflict, match="ben changed this request on 16 Nov 12:00 UTC"):
        services.edit(pk, services.Edited(after="9"), by=ada, version=read, now=portal.now)
    assert portal.of(pk).after == "7"
    assert portal.of(pk).authors == ["ada", "ben"]
    with pytest.raises(services.Conflict):
        services.submit(pk, by=ada, version=read, now=portal.now)
    with pytest.raises(services.UnknownRequest):
        services.edit(pk, services.Edited(after="9"), by=cleo, version=2, now=portal.now)


def test_what_was_submitted_is_frozen_and_taken_anew_after_an_edit(portal: Portal) -> None:
    pk = portal.submitted()
    request = portal.of(pk)
    assert request.state == RequestState.SUBMITTED
    assert request.preview["promised"][0]["after_units"] == "8"
    assert request.evidence["quota"]["hard"] == "6"
    assert request.evidence["missing"]
    version = services.edit(
        pk,
        services.Edited(after="9"),
        by=portal.actor("ada"),
        version=request.version,
        now=portal.now,
    )
    request = portal.of(pk)
    assert (request.state, request.version) == (RequestState.SUBMITTED, version)
    assert request.preview["promised"][0]["after_units"] == "9"
    assert request.preview["promised"][0]["over"] is True


def test_nothing_is_edited_once_it_is_taken_for_review(portal: Portal) -> None:
    pk = portal.submitted()
    services.take(pk, by=portal.actor("cleo"), version=portal.of(pk).version, now=portal.now)
    with pytest.raises(TransitionDenied, match="in review cannot be edited"):
        services.edit(
            pk,
            services.Edited(after="9"),
            by=portal.actor("ada"),
            version=portal.of(pk).version,
            now=portal.now,
        )


def test_who_reads_while_another_takes_gets_a_conflict(portal: Portal) -> None:
    pk = portal.submitted()
    read = portal.of(pk).version
    services.take(pk, by=portal.actor("cleo"), version=read, now=portal.now)
    with pytest.raises(services.Conflict):
        services.take(pk, by=portal.actor("carl"), version=read, now=portal.now)
    with pytest.raises(services.Conflict):
        services.approve(pk, by=portal.actor("carl"), version=read, now=portal.now)


def test_an_author_never_approves_also_as_an_admin(portal: Portal) -> None:
    pk = portal.draft(by="cleo")
    services.submit(pk, by=portal.actor("cleo"), version=1, now=portal.now)
    with pytest.raises(TransitionDenied, match="Authors never decide"):
        services.take(pk, by=portal.actor("cleo"), version=2, now=portal.now)
    services.take(pk, by=portal.actor("carl"), version=2, now=portal.now)
    with pytest.raises(TransitionDenied):
        services.approve(pk, by=portal.actor("cleo"), version=3, now=portal.now)
    services.approve(pk, by=portal.actor("carl"), version=3, now=portal.now)
    assert portal.of(pk).state == RequestState.APPROVED


@override_settings(REQUESTS_TWO_FROM_GPUS=2.0)
def test_above_the_threshold_two_people_approve(portal: Portal) -> None:
    pk = portal.submitted()
    assert portal.of(pk).approvals_needed == 2
    cleo, carl = portal.actor("cleo"), portal.actor("carl")
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    services.approve(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    assert (portal.of(pk).state, portal.of(pk).approvals) == (RequestState.IN_REVIEW, ["cleo"])
    with pytest.raises(TransitionDenied, match="a second person has to"):
        services.approve(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    services.approve(pk, by=carl, version=portal.of(pk).version, now=portal.now)
    assert portal.of(pk).state == RequestState.APPROVED


@override_settings(REQUESTS_TWO_FROM_GPUS=3.0)
def test_an_edit_cannot_slip_under_the_threshold(portal: Portal) -> None:
    pk = portal.submitted()
    assert portal.of(pk).approvals_needed == 1
    ada = portal.actor("ada")
    edited = services.Edited(after="9")
    services.edit(pk, edited, by=ada, version=portal.of(pk).version, now=portal.now)
    assert portal.of(pk).approvals_needed == 2


def test_a_counter_offer_goes_back_and_can_be_taken(portal: Portal) -> None:
    pk = portal.submitted()
    cleo, ada = portal.actor("cleo"), portal.actor("ada")
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    with pytest.raises(TargetRefused, match="nothing to change"):
        services.ask_changes(pk, "Stay.", by=cleo, now=portal.now, offer="6")
    services.ask_changes(pk, "7 would fit.", by=cleo, now=portal.now, offer="7")
    assert portal.of(pk).state == RequestState.CHANGES_ASKED
    assert Comment.objects.get().offer == "7"
    edited = services.Edited(after="7")
    version = services.edit(pk, edited, by=ada, version=portal.of(pk).version, now=portal.now)
    services.submit(pk, by=ada, version=version, now=portal.now)
    assert (portal.of(pk).state, portal.of(pk).after) == (RequestState.SUBMITTED, "7")


def test_a_rejection_needs_its_reason_and_is_final(portal: Portal) -> None:
    pk = portal.submitted()
    cleo = portal.actor("cleo")
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    with pytest.raises(services.RequestRefused, match="Say why"):
        services.reject(pk, "", by=cleo, now=portal.now)
    services.reject(pk, "No capacity.", by=cleo, now=portal.now)
    assert (portal.of(pk).state, portal.of(pk).outcome) == (RequestState.REJECTED, "No capacity.")
    with pytest.raises(TransitionDenied):
        services.withdraw(pk, by=portal.actor("ada"), now=portal.now)


def test_a_request_may_be_given_back_to_the_queue(portal: Portal) -> None:
    pk = portal.submitted()
    cleo = portal.actor("cleo")
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    services.release(pk, by=cleo, now=portal.now)
    assert (portal.of(pk).state, portal.of(pk).reviewer) == (RequestState.SUBMITTED, "")


def test_comments_are_for_the_team_and_admins_and_change_no_version(portal: Portal) -> None:
    pk = portal.submitted()
    for who in ("ada", "ben", "cleo"):
        services.comment(pk, "Hello.", by=portal.actor(who), now=portal.now)
    with pytest.raises(NotAllowed):
        services.comment(pk, "Hello.", by=portal.actor("finn"), now=portal.now)
    with pytest.raises(services.UnknownRequest):
        services.comment(pk, "Hello.", by=portal.actor("dan"), now=portal.now)
    assert portal.of(pk).version == 2
    assert AuditEntry.objects.filter(action="comment").count() == 3


def test_the_same_error_for_what_is_not_there_and_what_may_not_be_seen(portal: Portal) -> None:
    pk = portal.submitted()
    dan = portal.actor("dan")
    for number in (pk, pk + 1):
        with pytest.raises(services.UnknownRequest, match=f"There is no quota request {number}"):
            services.withdraw(number, by=dan, now=portal.now)


def test_a_quota_that_changed_before_submission_is_noticed() -> None:
    with served_portal() as portal:
        pk = portal.draft()
        portal.api.live = portal.api.live and {
            **portal.api.live, "spec": {"hard": {KEY: "7"}}
        }  # fmt: skip
        with pytest.raises(TargetRefused, match="is 7 now, not 6") as refused:
            services.submit(pk, by=portal.actor("ada"), version=1, now=portal.now)
        assert refused.value.fix == "Edit the request: from 7."
        assert portal.of(pk).state == RequestState.DRAFT


@override_settings(REQUESTS_DECREASES_BY_RULE=True)
def test_a_decrease_approves_and_applies_itself_where_the_rule_is_on() -> None:
    with served_portal() as portal:
        portal.see(6, used=2.0)
        assert portal.api.live is not None
        metadata = {**portal.api.live["metadata"], "managedFields": []}
        portal.api.live = {**portal.api.live, "metadata": metadata}
        pk = portal.submitted(after="4")
        request = portal.of(pk)
        assert (request.state, request.by_rule) == (RequestState.APPLYING, True)
        portal.carry_out(pk)
        assert (portal.of(pk).state, portal.live()) == (RequestState.APPLIED, "4")
    actions = AuditEntry.objects.order_by("number").values_list("action", "actor")
    assert list(actions)[1:] == [
        ("submit", "ada"),
        ("approve_by_rule", "portal"),
        ("apply", "portal"),
        ("confirm_applied", "portal"),
    ]


@override_settings(REQUESTS_DECREASES_BY_RULE=True)
def test_a_decrease_below_what_is_in_use_waits_for_people() -> None:
    with served_portal() as portal:
        pk = portal.submitted(after="4")
        assert portal.of(pk).state == RequestState.SUBMITTED
        held = {one["name"]: one["holds"] for one in portal.of(pk).ruling["checks"]}
        assert held == {"rule": True, "own": True, "in use": False, "owner": False, "dry run": True}
        assert portal.of(pk).ruling["decides"] == "in use"


def test_nothing_approves_itself_by_default() -> None:
    with served_portal() as portal:
        portal.see(6, used=2.0)
        request = portal.of(portal.submitted(after="4"))
        assert request.state == RequestState.SUBMITTED
        assert request.preview["dry_run_passed"] is True


def test_a_lead_who_lost_the_team_can_no_longer_act(portal: Portal) -> None:
    pk = portal.draft()
    Membership.objects.filter(username="ada").update(lead=False)
    with pytest.raises(TransitionDenied):
        services.withdraw(pk, by=portal.actor("ada"), now=portal.now)


def test_a_queue_is_asked_for_by_a_team_that_uses_it(portal: Portal) -> None:
    body = VolcanoQueueSnapshot(capability={"nvidia.com/gpu": 4.0})
    make_sighting(portal.cluster, ObservedKind.VOLCANO_QUEUE, "bronze", body)
    asked = {
        "source": "Queue",
        "namespace": "",
        "name": "bronze",
        "key": "capability/nvidia.com/gpu",
        "before": "4",
    }
    with pytest.raises(TargetRefused, match="Several teams use this queue"):
        portal.draft(by="cleo", **asked)
    with pytest.raises(TargetRefused, match="vision does not use"):
        portal.draft(by="cleo", team="vision", **asked)


def test_evidence_names_what_is_not_known(portal: Portal) -> None:
    Entitlement.objects.create(
        team=portal.vision,
        tier_id=portal.tier.pk,
        gpus=6.0,
        weight=6.0,
        valid_from=BEGINNING,
    )
    evidence = portal.of(portal.submitted()).evidence
    missing = " / ".join(evidence["missing"])
    for part in ("usage", "money", "saturation", "fairness"):
        assert part in missing
    assert evidence["window"]["end"] == NOW.isoformat()
    assert evidence["budgets"] == []


def test_times_are_kept_and_can_be_emptied(portal: Portal) -> None:
    pk = portal.draft(until=NOW + timedelta(days=9), needed_by=NOW + timedelta(days=1))
    ada = portal.actor("ada")
    edited = services.Edited(clear=frozenset({"needed_by"}))
    services.edit(pk, edited, by=ada, version=1, now=portal.now)
    assert portal.of(pk).needed_by is None
    assert portal.of(pk).until == NOW + timedelta(days=9)


@override_settings(REQUESTS_MOST_DAYS=30)
def test_a_change_with_an_end_holds_as_long_as_the_site_allows(portal: Portal) -> None:
    with pytest.raises(services.RequestRefused, match="30 days at most") as refused:
        portal.draft(until=NOW + timedelta(days=31))
    assert refused.value.fix == "Choose an end up to 16 Dec 12:00 UTC."
    assert portal.draft(until=NOW + timedelta(days=30))


def test_nobody_leads_a_closed_team(portal: Portal) -> None:
    pk = portal.draft()
    portal.vision.active = False
    portal.vision.save()
    with pytest.raises(TransitionDenied):
        services.withdraw(pk, by=portal.actor("ada"), now=portal.now)


def test_what_nobody_watches_now_refuses_no_draft(portal: Portal) -> None:
    """The watch lost its sign-in: what it saw last is no fact of now."""
    WatchCoverage.objects.update(end=portal.now - timedelta(hours=3))
    assert portal.of(portal.draft(before="5")).before == "5"


def test_a_request_that_is_submitted_again_has_no_outcome_yet(portal: Portal) -> None:
    pk = portal.submitted()
    said = "Sent back: nothing was written."
    ChangeRequest.objects.filter(pk=pk).update(state="draft", outcome=said)
    services.submit(pk, by=portal.actor("ada"), version=portal.of(pk).version, now=portal.now)
    assert portal.of(pk).outcome == ""
