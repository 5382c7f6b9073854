"""Several people, workers and writers of the audit at the same moment."""

import threading
from collections.abc import Callable, Sequence

import pytest
from django.db import connection, transaction

from apps.accounts.models import AuditEntry
from apps.accounts.services.audit import record
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.models import ChangeRequest, Execution
from apps.quota_requests.permissions import portal as system
from apps.quota_requests.services.execution.executor import LEASE
from tests.quota_requests.portal import NOW, make_portal, served_portal
from tests.quota_requests.test_timing import DAY

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor == "sqlite",
        reason="the tests' SQLite is in memory, where threads cannot wait for one another",
    ),
]


def at_once(acts: Sequence[Callable[[], object]]) -> list[object]:
    """Do all at the same moment; return what each gave or raised."""
    start = threading.Barrier(len(acts))
    ended: list[object] = [None] * len(acts)

    def run(n: int) -> None:
        start.wait(20)
        try:
            ended[n] = acts[n]()
        except Exception as error:
            ended[n] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return ended


def test_of_several_who_edit_one_text_one_wins_and_the_others_are_told() -> None:
    portal = make_portal(None)
    pk = portal.draft()
    ada = portal.actor("ada")

    def edit(n: int) -> int:
        edited = services.Edited(reason=f"Reason {n}.")
        return services.edit(pk, edited, by=ada, version=1, now=portal.now)

    ended = at_once([lambda n=n: edit(n) for n in range(5)])  # type: ignore[misc]
    winners = [n for n, one in enumerate(ended) if one == 2]
    assert len(winners) == 1
    assert sum(isinstance(one, services.Conflict) for one in ended) == 4
    assert portal.of(pk).reason == f"Reason {winners[0]}."


def test_of_several_who_hand_in_for_one_key_one_is_open() -> None:
    portal = make_portal(None)
    drafts = [portal.draft(after=str(7 + n)) for n in range(4)]
    ada = portal.actor("ada")

    def submit(pk: int) -> int:
        return services.submit(pk, by=ada, version=1, now=portal.now)

    ended = at_once([lambda pk=pk: submit(pk) for pk in drafts])  # type: ignore[misc]
    assert ended.count(2) == 1
    assert sum(isinstance(one, services.KeyTaken) for one in ended) == 3
    (open_one,) = ChangeRequest.objects.filter(state=RequestState.SUBMITTED.value)
    assert {one.number for one in ended if isinstance(one, services.KeyTaken)} == {open_one.pk}
    assert services.verify().checked == 5


def test_of_several_workers_one_carries_out() -> None:
    with served_portal() as portal:
        pk = portal.started()
        ended = at_once([lambda: portal.carry_out(pk)] * 4)
        assert sorted(map(str, ended)) == ["", "", "", "applied"]
        assert portal.of(pk).state == RequestState.APPLIED
        assert portal.api.writes == 1


def test_of_several_beats_one_begins_to_take_a_raise_back() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + DAY)
        portal.now = NOW + DAY
        ended = at_once([lambda: services.revert_due(now=portal.now)] * 4)
        assert sorted(map(str, ended)) == ["0", "0", "0", "1"]
        ended = at_once([lambda: portal.carry_out(pk)] * 4)
        assert sorted(map(str, ended)) == ["", "", "", "applied"]
        assert (portal.of(pk).state, portal.live()) == (RequestState.REVERTED, "6")
        assert Execution.objects.filter(request=pk).count() == 2


def test_of_several_beats_one_ends_what_a_commit_has_brought() -> None:
    with served_portal() as portal:
        pk = portal.approved()
        portal.start(pk, gitops=True)
        portal.wait(minutes=5)
        portal.see(8)
        ended = at_once([lambda: services.watch_gitops(now=portal.now)] * 4)
        assert sorted(map(str, ended)) == ["0", "0", "0", "1"]
        assert AuditEntry.objects.filter(action="confirm_applied").count() == 1


def test_of_several_beats_one_tells_of_a_drift() -> None:
    with served_portal() as portal:
        portal.applied()
        portal.wait(minutes=5)
        portal.see(7)
        portal.wait(minutes=5)
        portal.watched()
        assert at_once([lambda: services.detect_drift(now=portal.now)] * 4) == [1] * 4
        assert AuditEntry.objects.filter(action="drift").count() == 1


def test_of_several_workers_one_takes_over_when_a_lease_runs_out() -> None:
    with served_portal() as portal:
        pk = portal.started()
        left = {"mark": "sending", "sent": 1, "first_sent_at": portal.now}
        Execution.objects.filter(request=pk).update(
            **left, lease="gone", lease_until=portal.now + LEASE
        )
        assert at_once([lambda: portal.carry_out(pk)] * 4) == [""] * 4
        portal.wait(seconds=LEASE.total_seconds())
        ended = at_once([lambda: portal.carry_out(pk)] * 4)
        assert sorted(map(str, ended)) == ["", "", "", "applied"]
        assert portal.api.writes == 1


def test_entries_of_several_writers_follow_one_another() -> None:
    def write() -> None:
        for n in range(10):
            with transaction.atomic():
                record(system("test"), "edit", f"x/{n}", at=NOW)

    assert at_once([write] * 5) == [None] * 5
    assert AuditEntry.objects.count() == 50
    assert services.verify().words == "All 50 entries hold."
