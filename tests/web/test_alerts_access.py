"""Who gets what of alerts: every address × every role, others' channels are not there."""

from collections.abc import Callable, Mapping

import pytest
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings

from apps.accounts.models import User
from apps.alerts.models import Channel, Delivery, IdleAnswer
from tests.factories import Portal, make_portal
from tests.shared_rows import copy_of, shared
from tests.web.alerts import FORM, SECRET, Board

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]
ROLES = ("lead", "member", "outsider", "admin", "finance")
OF_TEAM, BENS, OF_ADMINS = {"lead", "admin"}, {"member", "admin"}, {"admin"}
ANSWERERS = {"lead", "member", "admin"}
MUTE = {"until": "2999-01-01T00:00"}
TRAIN = "workload:west/vision/Job/train"


@pytest.fixture(autouse=True)
def _mail(settings: Settings) -> None:
    settings.EMAIL_HOST = "mail.example.org"  # of which the test's mailbox takes the place
    cache.clear()


_portal = shared(make_portal)
portal = copy_of("_portal")


@pytest.fixture
def people(portal: Portal) -> dict[str, User]:
    names = dict(zip(ROLES, ("ada", "ben", "dan", "cleo", "finn"), strict=True))
    return {role: getattr(portal, name) for role, name in names.items()}


def _got(
    people: Mapping[str, User], signed_in: SignIn, ask: Callable[[Client], int]
) -> dict[str, int]:
    return {role: ask(signed_in(user)) for role, user in people.items()}


def _wanted(allowed: set[str], status: int) -> dict[str, int]:
    return {role: status if role in allowed else 404 for role in ROLES}


@pytest.mark.parametrize(
    ("which", "allowed"),
    [("team", OF_TEAM), ("bens", BENS), ("platform", OF_ADMINS)],
)
def test_a_channel_is_shown_to_who_may_change_it(
    which: str, allowed: set[str], board: Board, people: dict[str, User], signed_in: SignIn
) -> None:
    address = f"/alerts/channels/{getattr(board, which).pk}/"
    got = _got(people, signed_in, lambda client: client.get(address).status_code)
    assert got == _wanted(allowed, 200)


@pytest.mark.parametrize(
    ("which", "allowed"),
    [("team", OF_TEAM), ("bens", BENS), ("platform", OF_ADMINS)],
)
@pytest.mark.parametrize(
    ("what", "form", "status"),
    [
        ("change", {}, 400),
        ("switch", {"on": "no"}, 302),
        ("mute", {}, 400),
        ("mute", MUTE, 400),  # for longer than one may
    ],
)
def test_a_channel_is_changed_by_who_may(
    which: str,
    allowed: set[str],
    what: str,
    form: dict[str, str],
    status: int,
    board: Board,
    people: dict[str, User],
    signed_in: SignIn,
) -> None:
    address = f"/alerts/channels/{getattr(board, which).pk}/{what}"
    got = _got(people, signed_in, lambda client: client.post(address, form).status_code)
    assert got == _wanted(allowed, status)


@pytest.mark.parametrize(
    ("which", "allowed"), [("bens", BENS), ("platform", OF_ADMINS)], ids=["ben", "platform"]
)
def test_a_channel_is_tried_by_who_may(
    which: str, allowed: set[str], board: Board, people: dict[str, User], signed_in: SignIn
) -> None:
    address = f"/alerts/channels/{getattr(board, which).pk}/test"
    got = _got(people, signed_in, lambda client: client.post(address).status_code)
    assert got == _wanted(allowed, 200)


@pytest.mark.parametrize("role", ROLES)
def test_a_channel_is_removed_by_who_may(
    role: str, board: Board, people: dict[str, User], signed_in: SignIn
) -> None:
    for channel, allowed in (
        (board.team, OF_TEAM),
        (board.bens, BENS),
        (board.platform, OF_ADMINS),
    ):
        response = signed_in(people[role]).post(f"/alerts/channels/{channel.pk}/remove")
        assert response.status_code == (302 if role in allowed else 404)
        assert Channel.objects.filter(pk=channel.pk).exists() == (role not in allowed)


@pytest.mark.parametrize("role", ROLES)
def test_a_silence_is_ended_and_a_delivery_sent_again_by_who_may(
    role: str, board: Board, people: dict[str, User], signed_in: SignIn
) -> None:
    client = signed_in(people[role])
    muted = board.delivery(board.team, "budget:vision/gpu_hours")
    again = client.post(f"/alerts/deliveries/{muted.pk}/again").status_code
    ended = client.post(f"/alerts/mutes/{board.silence.pk}/end").status_code
    allowed = role in OF_TEAM
    assert (again, ended) == ((302, 302) if allowed else (404, 404))
    state = Delivery.objects.get(pk=muted.pk).state
    assert state == (Delivery.State.QUEUED if allowed else Delivery.State.MUTED)


@pytest.mark.parametrize("role", ROLES)
def test_an_idle_alert_is_answered_by_people_of_its_team(
    role: str, board: Board, people: dict[str, User], signed_in: SignIn
) -> None:
    client = signed_in(people[role])
    response = client.post(
        f"/alerts/{board.alerts[TRAIN].pk}/answer", {"choice": "release", "because": "done"}
    )
    allowed = role in ANSWERERS
    assert response.status_code == (302 if allowed else 404)
    assert IdleAnswer.objects.exists() == allowed
    form = f'action="/alerts/{board.alerts[TRAIN].pk}/answer"'
    assert (form in client.get("/alerts/").content.decode()) == allowed


@pytest.mark.parametrize(
    ("role", "seen"),
    [
        ("lead", {"workload:west/vision/Job/train", "budget:vision/gpu_hours"}),
        ("member", {"workload:west/vision/Job/train", "budget:vision/gpu_hours"}),
        ("outsider", {"workload:west/speech/StatefulSet/notes"}),
        ("finance", {"workload:", "budget:vision/gpu_hours", "StatefulSet/notes"}),
        ("admin", {"workload:", "budget:", "StatefulSet/notes", "cluster:west/watched"}),
    ],
)
def test_each_reads_what_they_may_see(
    role: str, seen: set[str], board: Board, people: dict[str, User], signed_in: SignIn
) -> None:
    page = signed_in(people[role]).get("/alerts/").content.decode()
    assert [subject for subject in seen if subject not in page] == []
    hidden = {
        "lead": ["speech", "cluster:"],
        "member": ["speech", "cluster:"],
        "outsider": ["vision", "cluster:"],
        "finance": ["cluster:west"],
        "admin": [],
    }[role]
    listed = page.partition('class="alerts-list"')[2].replace("/costs/budgets/?team=vision", "")
    assert [word for word in hidden if word in listed] == []


@pytest.mark.parametrize("role", ROLES)
def test_lists_have_own_channels_alone_and_no_page_a_secret(
    role: str, board: Board, people: dict[str, User], signed_in: SignIn
) -> None:
    client = signed_in(people[role])
    shown = {"team": OF_TEAM, "bens": BENS, "platform": OF_ADMINS}
    for address in ("/alerts/channels/", "/alerts/deliveries/"):
        page = client.get(address).content.decode()
        assert SECRET not in page
        for which, allowed in shown.items():
            link = f'href="/alerts/channels/{getattr(board, which).pk}/"'
            assert (link in page) == (role in allowed), (address, which)
    if role in OF_TEAM:
        page = client.get(f"/alerts/channels/{board.team.pk}/").content.decode()
        assert "hooks.slack.com" in page
        assert SECRET not in page


@pytest.mark.parametrize(
    ("role", "offered"),
    [
        ("lead", ["me", "team-vision"]),
        ("member", ["me"]),
        ("finance", ["me"]),
        ("admin", ["me", "team-vision", "platform"]),
    ],
)
def test_each_is_offered_what_they_may_make_channels_of(
    role: str, offered: list[str], portal: Portal, people: dict[str, User], signed_in: SignIn
) -> None:
    vision = f"team-{portal.vision.pk}"
    names = {"me": "me", "team-vision": vision, "platform": "platform"}
    client = signed_in(people[role])
    page = client.get("/alerts/channels/").content.decode()
    for name, value in names.items():
        assert (f'<option value="{value}"' in page) == (name in offered), name
        status = client.post("/alerts/channels/create", FORM | {"of": value}).status_code
        assert status == (302 if name in offered else 400), name


@pytest.mark.parametrize("role", ["admin", "member"])
def test_nothing_is_changed_from_another_site(
    role: str, board: Board, people: dict[str, User]
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people[role])
    posts = [f"/alerts/channels/{board.bens.pk}/{what}" for what in ("change", "switch", "test")]
    posts += [f"/alerts/channels/{board.bens.pk}/{what}" for what in ("mute", "remove")]
    posts += [f"/alerts/{board.alerts[TRAIN].pk}/answer", "/alerts/channels/create"]
    muted = board.delivery(board.team, "budget:vision/gpu_hours")
    posts += [f"/alerts/mutes/{board.silence.pk}/end", f"/alerts/deliveries/{muted.pk}/again"]
    assert {address: client.post(address, FORM).status_code for address in posts} == dict.fromkeys(
        posts, 403
    )
