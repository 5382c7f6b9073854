"""What is idle of one's own work: answered by one click, by the person and the leads alone."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from apps.accounts.models import User
from apps.alerts.models import IdleAnswer
from apps.alerts.services import prune
from apps.clusters.models import Pod, PodPerson
from tests.factories import Portal, make_user
from tests.web.conftest import HOURLY
from tests.web.pages import text_of
from tests.web.persons import ADDRESS, idle, statuses

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("keep", "Kept until"),
        ("silence", "Not asked again"),
        ("release", "kubectl delete job train --namespace vision"),
    ],
)
def test_a_finding_is_answered_by_one_click(
    choice: str, said: str, named: Portal, clients: dict[str, Client]
) -> None:
    alert = idle(named)
    page = text_of(clients["member"], ADDRESS)
    assert "vision/train holds 6 GPUs idle" in page
    # What the finding says is not said again below it.
    assert "train is idle now" not in page
    assert "Nothing to fix." not in page
    assert "idle" not in text_of(clients["lead"], ADDRESS).partition("</main>")[0]
    answer = f"{ADDRESS}{alert.pk}/answer"
    assert clients["member"].post(answer, {"choice": choice}).status_code == 302
    (found,) = IdleAnswer.objects.all()
    assert (found.person, found.choice, found.of_person) == ("ben", choice, True)
    assert said in text_of(clients["member"], ADDRESS)


def everybody(named: Portal, signed_in: SignIn, clients: Mapping[str, Client]) -> dict[str, Client]:
    """Return the readers, with another member of the team whose work it is not."""
    return {**clients, "colleague": signed_in(make_user("eve", teams=[named.vision]))}


PERSON_AND_LEAD = {
    "lead": 302,
    "member": 302,
    "colleague": 404,
    "outsider": 404,
    "admin": 404,
    "finance": 404,
}
"""Who answers for the work of a person: the person and the leads of the team."""


def test_a_finding_belongs_to_its_person_and_the_leads(
    named: Portal, signed_in: SignIn, clients: dict[str, Client]
) -> None:
    readers, alert = everybody(named, signed_in, clients), idle(named)
    page, answer = f"{ADDRESS}{alert.pk}/", f"{ADDRESS}{alert.pk}/answer"
    shown = {role: 200 if status == 302 else 404 for role, status in PERSON_AND_LEAD.items()}
    assert statuses(readers, f"{page}?choice=release") == shown
    assert not IdleAnswer.objects.exists(), "opening a link answers nothing"
    sent = {role: one.post(answer, {"choice": "keep"}) for role, one in readers.items()}
    assert {role: response.status_code for role, response in sent.items()} == PERSON_AND_LEAD
    # In Alerts administrators answer as ever: that page does not say whose work it is.
    form = {"choice": "release", "because": "done"}
    in_alerts = {**PERSON_AND_LEAD, "admin": 302}
    for role, client in readers.items():
        assert client.post(f"/alerts/{alert.pk}/answer", form).status_code == in_alerts[role]
        offered = f'action="/alerts/{alert.pk}/answer' in client.get("/alerts/").content.decode()
        assert offered == (in_alerts[role] == 302)


def test_work_that_names_nobody_is_answered_by_its_team(
    named: Portal, signed_in: SignIn, clients: dict[str, Client]
) -> None:
    PodPerson.objects.filter(pod__workload__name="train").delete()
    readers, alert = everybody(named, signed_in, clients), idle(named)
    assert set(statuses(readers, f"{ADDRESS}{alert.pk}/").values()) == {404}
    for role, client in readers.items():
        sent = client.post(f"/alerts/{alert.pk}/answer", {"choice": "release"})
        own = role in {"lead", "member", "colleague", "admin"}
        assert sent.status_code == (302 if own else 404), role


def test_a_person_without_an_account_is_answered_for_by_leads(
    named: Portal, signed_in: SignIn, clients: dict[str, Client]
) -> None:
    PodPerson.objects.filter(pod__workload__name="train").update(person="ghost")
    readers, alert = everybody(named, signed_in, clients), idle(named)
    assert statuses(readers, f"{ADDRESS}{alert.pk}/") == {
        **dict.fromkeys(readers, 404), "lead": 200,
    }  # fmt: skip


def test_who_ran_it_before_has_no_part_in_what_is_idle_now(
    named: Portal, clients: dict[str, Client]
) -> None:
    alert = idle(named)
    before = alert.at - timedelta(hours=1)
    Pod.objects.filter(uid__in=["uid-train-0", "uid-train-1"]).update(ended_at=before)
    PodPerson.objects.filter(pod__uid="uid-train-2").update(person="ada")
    found = statuses(clients, f"{ADDRESS}{alert.pk}/")
    assert (found["lead"], found["member"]) == (200, 404)


def test_the_name_of_who_answered_for_their_own_work_is_theirs_and_the_leads(
    named: Portal, signed_in: SignIn, clients: dict[str, Client], settings: Settings
) -> None:
    readers, alert = everybody(named, signed_in, clients), idle(named)
    readers["member"].post(f"{ADDRESS}{alert.pk}/answer", {"choice": "keep"})
    path = f"/workloads/west/vision/Job/train/?{HOURLY}"

    def told() -> dict[str, tuple[bool, bool]]:
        return {
            role: (
                "ben, " in text_of(client, "/alerts/?kind=idle").partition("<main")[2],
                "(ben)" in text_of(client, path),
            )
            for role, client in readers.items()
            if role != "outsider"
        }

    hidden = (False, False)
    assert told() == {
        **dict.fromkeys(("colleague", "admin", "finance"), hidden),
        **dict.fromkeys(("lead", "member"), (True, True)),
    }
    # It goes with what is kept of persons; the answer holds.
    later = timezone.now() + timedelta(days=1)
    prune(now=later)
    assert IdleAnswer.objects.get().person == "ben"
    settings.PEOPLE = None
    prune(now=later)
    (kept,) = IdleAnswer.objects.all()
    assert (kept.person, kept.choice) == ("", "keep")
    assert set(told().values()) == {hidden}


def test_of_a_workload_of_two_persons_neither_learns_which_other_answered(
    named: Portal, signed_in: SignIn, clients: dict[str, Client]
) -> None:
    readers, alert = everybody(named, signed_in, clients), idle(named)
    PodPerson.objects.filter(pod__uid="uid-train-1").update(person="eve")
    readers["member"].post(f"{ADDRESS}{alert.pk}/answer", {"choice": "keep"})
    for address in (ADDRESS, f"{ADDRESS}{alert.pk}/"):
        shown = {role: text_of(readers[role], address) for role in ("member", "colleague")}
        assert all("Kept until" in text for text in shown.values())
        assert "(ben)" in shown["member"]
        assert "(ben)" not in shown["colleague"]
    lead = text_of(readers["lead"], f"{ADDRESS}?person=eve")
    assert "(ben)" in lead


def test_an_answer_of_something_else_changes_nothing(
    named: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    alert = idle(named)
    assert clients["member"].post(f"{ADDRESS}{alert.pk}/answer", {}).status_code == 302
    assert clients["member"].post(f"{ADDRESS}0/answer", {"choice": "keep"}).status_code == 404
    settings.PEOPLE = None
    sent = clients["member"].post(f"{ADDRESS}{alert.pk}/answer", {"choice": "keep"})
    assert sent.status_code == 404
    assert not IdleAnswer.objects.exists()
