"""What is done to accounts, teams and tokens is in the audit, with who, from where, and what."""

import json
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.db import transaction

from apps.accounts import services
from apps.accounts.domain.identity import Role, granted, read_rules
from apps.accounts.models import ApiToken, AuditEntry, Membership, User
from apps.accounts.permissions import NotAllowed
from apps.accounts.services import ActingParty, Identity, Manager, PersonChanges
from apps.quota_requests.services import verify
from tests.factories import make_team, make_user
from tests.quota_requests.portal import NOW

pytestmark = pytest.mark.django_db
BY = ActingParty("cleo", "192.0.2.7")
ADA = Identity("https://login.example.org", "subject-1", "ada", email="ada@example.org")
RULES = read_rules("gpu-admins=admin,vision=member:vision")


def lines() -> list[AuditEntry]:
    return list(AuditEntry.objects.order_by("number"))


def last() -> tuple[str, str, str, str, Any, Any]:
    entry = lines()[-1]
    before, after = (json.loads(text or "null") for text in (entry.before, entry.after))
    return entry.actor, entry.origin, entry.action, entry.subject, before, after


def test_a_new_account_is_told_with_its_role() -> None:
    services.make_person("ada", PersonChanges(role=Role.FINANCE), password="x", by=BY, now=NOW)
    actor, origin, action, subject, before, after = last()
    assert (actor, origin) == ("cleo", "192.0.2.7")
    assert (action, subject, before) == ("make_account", "account/ada", None)
    assert (after["role"], after["active"], after["password"]) == ("finance", True, True)
    assert verify().holds


def test_a_changed_role_is_told_before_and_after_and_no_change_is_not() -> None:
    make_user("ada")
    for _ in range(2):
        services.change_person("ada", PersonChanges(role=Role.ADMIN), by=BY, now=NOW)
    assert len(lines()) == 1
    *_, action, subject, before, after = last()
    assert (action, subject) == ("change_account", "account/ada")
    assert (before["role"], after["role"]) == ("viewer", "admin")


def test_switching_an_account_is_told() -> None:
    admin, ada = make_user("cleo", Role.ADMIN), make_user("ada")
    services.switch_person(Manager(admin, "192.0.2.7", NOW), ada.pk, on=False)
    actor, origin, action, _, before, after = last()
    assert (actor, origin, action) == ("cleo", "192.0.2.7", "disable_account")
    assert (before["active"], after["active"]) == (True, False)


def test_tokens_are_told_and_nothing_of_their_keys() -> None:
    ada = make_user("ada")
    issued = services.issue_token(ada, name="export", now=NOW, by=BY)
    assert services.revoke_all(ada, now=NOW, by=BY) == 1
    made, revoked = lines()
    assert (made.action, revoked.action) == ("make_token", "revoke_token")
    assert made.subject == revoked.subject == f"token/{ApiToken.objects.get().pk}"
    assert json.loads(made.after)["of"] == "ada"
    whole = "".join(f"{e.before}{e.after}{e.note}{e.subject}" for e in (made, revoked))
    digest = ApiToken.objects.get().digest
    for hidden in (issued.key, issued.key[-8:], digest):
        assert hidden not in whole
    assert "ending" not in whole


def test_handing_an_account_over_cuts_all_ways_of_the_former_owner_and_says_so() -> None:
    services.admit(ADA, granted([], ()), origin="192.0.2.1", now=NOW)
    ada = User.objects.get(username="ada")
    services.issue_token(ada, name="export", now=NOW)
    round_before = ada.session_round
    services.change_person("ada", PersonChanges(drops_password=True), by=BY, now=NOW)
    ada.refresh_from_db()
    assert not SocialAccount.objects.exists()
    assert ApiToken.objects.get().revoked_at == NOW
    assert ada.session_round == round_before + 1
    _, _, action, subject, _, after = last()
    assert (action, subject) == ("hand_over_account", "account/ada")
    assert (after["sign_ins_cut"], after["tokens_revoked"]) == (1, 1)
    # Whom the provider sends next with its name owns it, and the former owner does not come back.
    other = Identity(ADA.issuer, "subject-2", "ada")
    assert services.admit(other, granted([], ()), origin="", now=NOW).user == ada
    with pytest.raises(services.AdmissionRefused, match="There is an account"):
        services.admit(ADA, granted([], ()), origin="", now=NOW)


def test_what_groups_give_and_take_is_told_with_the_address() -> None:
    make_team("vision")
    services.admit(ADA, granted(["gpu-admins", "vision"], RULES), origin="192.0.2.1", now=NOW)
    actor, origin, action, subject, _, after = last()
    assert (actor, origin, action) == ("ada", "192.0.2.1", "bind_account")
    assert (subject, after["signs_in_by"]) == ("account/ada", ADA.issuer)
    assert (after["role"], after["teams_by_groups"]) == ("admin", {"vision": "member"})
    services.admit(ADA, granted(["gpu-admins", "vision"], RULES), origin="192.0.2.1", now=NOW)
    assert len(lines()) == 1, "a sign-in that changes nothing is no line"
    services.admit(ADA, granted([], RULES), origin="192.0.2.2", now=NOW)
    *_, action, _, before, after = last()
    assert action == "follow_groups"
    assert (before["role"], after["role"]) == ("admin", "viewer")
    assert (before["teams_by_groups"], after["teams_by_groups"]) == ({"vision": "member"}, {})


def test_who_is_kept_out_again_and_again_is_told_once() -> None:
    services.admit(ADA, granted(["gpu-admins"], RULES), origin="", now=NOW)
    services.issue_token(User.objects.get(), name="export", now=NOW)
    for _ in range(2):
        services.dismiss(ADA, origin="192.0.2.1", now=NOW)
    assert [line.action for line in lines()][2:] == ["revoke_token", "dismiss_account"]


def test_places_and_teams_of_the_catalog_are_told() -> None:
    services.write_teams([services.TeamRecord("vision", "CC-1")])
    services.write_leads([services.LeadRecord("vision", "ada")])
    pk = Membership.objects.get().pk
    services.write_leads([services.LeadRecord("vision", "ada", lead=False, pk=pk)])
    made, placed, moved = lines()
    assert (made.action, made.subject) == ("change_teams", "catalog")
    assert json.loads(made.after) == {"vision": {"cost_center": "CC-1", "active": True}}
    assert (placed.before, placed.after) == ('{"vision":{}}', '{"vision":{"ada":"lead"}}')
    assert (moved.before, moved.after) == (placed.after, '{"vision":{"ada":"member"}}')
    assert (moved.actor, moved.origin) == ("portal", "load_catalog")


def test_a_change_that_does_not_happen_is_not_told() -> None:
    ada = make_user("ada")
    with transaction.atomic():
        services.issue_token(ada, name="export", now=NOW)
        transaction.set_rollback(True)
    assert not AuditEntry.objects.exists()
    assert not ApiToken.objects.exists()


def test_of_two_administrators_who_take_each_others_role_one_is_left() -> None:
    """The second comes with what was true when their request began."""
    cleo, carl = make_user("cleo", Role.ADMIN), make_user("carl", Role.ADMIN)
    services.give_role(Manager(cleo, "192.0.2.7", NOW), carl.pk, Role.VIEWER)
    late = Manager(carl, "192.0.2.8", NOW)
    for attempt in (
        lambda: services.give_role(late, cleo.pk, Role.VIEWER),
        lambda: services.switch_person(late, cleo.pk, on=False),
        lambda: services.shut_out(late, cleo.pk),
    ):
        with pytest.raises(NotAllowed):
            attempt()
    assert User.objects.get(role="admin", is_active=True).username == "cleo"
    assert len(lines()) == 1
