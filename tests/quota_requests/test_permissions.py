"""Who may do what, person by person and state by state; and what the writing account may."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import transaction

from apps.accounts.models import User
from apps.accounts.permissions import NotAllowed
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState, TransitionDenied
from apps.quota_requests.permissions import Actor, actor_of
from tests.quota_requests.portal import Portal, make_portal

pytestmark = pytest.mark.django_db
DEPLOY = Path(__file__).parents[2] / "deploy"
PEOPLE = ("ada", "ben", "cleo", "carl", "dan", "finn")
Act = Callable[[Portal, int, Actor], Any]


def version(portal: Portal, pk: int) -> int:
    return portal.of(pk).version


def in_review(portal: Portal) -> int:
    pk = portal.submitted()
    services.take(pk, by=portal.actor("cleo"), version=version(portal, pk), now=portal.now)
    return pk


ACTS: list[tuple[str, Callable[[Portal], int], Act, set[str]]] = [
    (
        "edit",
        Portal.draft,
        lambda p, pk, by: services.edit(
            pk, services.Edited(reason="Other."), by=by, version=version(p, pk), now=p.now
        ),
        {"ada"},
    ),
    (
        "submit",
        Portal.draft,
        lambda p, pk, by: services.submit(pk, by=by, version=version(p, pk), now=p.now),
        {"ada"},
    ),
    (
        "withdraw",
        Portal.submitted,
        lambda p, pk, by: services.withdraw(pk, by=by, now=p.now),
        {"ada"},
    ),
    (
        "comment",
        Portal.submitted,
        lambda p, pk, by: services.comment(pk, "Hm.", by=by, now=p.now),
        {"ada", "ben", "cleo", "carl"},
    ),
    (
        "take",
        Portal.submitted,
        lambda p, pk, by: services.take(pk, by=by, version=version(p, pk), now=p.now),
        {"cleo", "carl"},
    ),
    (
        "release",
        in_review,
        lambda p, pk, by: services.release(pk, by=by, now=p.now),
        {"cleo", "carl"},
    ),
    (
        "ask for changes",
        in_review,
        lambda p, pk, by: services.ask_changes(pk, "Why?", by=by, now=p.now),
        {"cleo", "carl"},
    ),
    (
        "approve",
        in_review,
        lambda p, pk, by: services.approve(pk, by=by, version=version(p, pk), now=p.now),
        {"cleo", "carl"},
    ),
    (
        "reject",
        in_review,
        lambda p, pk, by: services.reject(pk, "No.", by=by, now=p.now),
        {"cleo", "carl"},
    ),
    (
        "apply",
        Portal.approved,
        lambda p, pk, by: services.start(pk, by=by, version=version(p, pk), now=p.now),
        {"cleo", "carl"},
    ),
]


@pytest.mark.parametrize(
    ("prepare", "act", "may"), [pytest.param(*case[1:], id=case[0]) for case in ACTS]
)
def test_each_act_is_for_those_it_is_for(
    prepare: Callable[[Portal], int], act: Act, may: set[str], subtests: pytest.Subtests
) -> None:
    portal = make_portal(None)
    pk = prepare(portal)
    for who in PEOPLE:
        with subtests.test(who=who), transaction.atomic():
            if who in may:
                act(portal, pk, portal.actor(who))
            else:
                refused(portal, pk, act, who)
            transaction.set_rollback(True)


def refused(portal: Portal, pk: int, act: Act, who: str) -> None:
    before = portal.of(pk)
    hidden = who == "dan" or (before.state == RequestState.DRAFT and who not in {"ada", "ben"})
    wrong = services.UnknownRequest if hidden else (NotAllowed, TransitionDenied)
    with pytest.raises(wrong):
        act(portal, pk, portal.actor(who))
    after = portal.of(pk)
    assert (after.version, after.state) == (before.version, before.state)


def test_the_writing_account_may_get_and_patch_quotas_and_nothing_else() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "rbac-quota-writer.yaml").read_text()))
    (role,) = (one for one in documents if one["kind"] == "ClusterRole")
    allowed = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    quotas = {
        ("", "resourcequotas"),
        ("kueue.x-k8s.io", "clusterqueues"),
        ("scheduling.volcano.sh", "queues"),
    }
    assert allowed == {(*quota, verb) for quota in quotas for verb in ("get", "patch")}
    (binding,) = (one for one in documents if one["kind"] == "ClusterRoleBinding")
    assert binding["subjects"][0]["name"] == "gpuportal-quota-writer"
    reader = (DEPLOY / "rbac-reader.yaml").read_text()
    assert "patch" not in reader
    assert "quota-writer" not in reader


@pytest.mark.parametrize("name", ["portal", "Portal", " PORTAL "])
def test_nobody_acts_under_the_portals_own_name(name: str) -> None:
    with pytest.raises(NotAllowed, match="is the portal's own"):
        actor_of(User(username=name), origin="127.0.0.1")
