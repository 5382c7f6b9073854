"""A request over time: its dates, what is written twice, earlier offers, and the queue."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import AuditEntry
from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors import pending_count, request_detail, review_queue
from apps.usage.domain.usage_query import encode_cursor
from apps.usage.selectors import CursorRefused
from tests.quota_requests.portal import KEY, NOW, REF, Portal, make_portal
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


_portal = shared(lambda: make_portal(None))
# Nobody can ask its cluster.
portal = copy_of("_portal")


def asked(**values: object) -> services.RequestInput:
    given = {"ref": REF, "before": "6", "after": "8", "reason": "A model."}
    return services.RequestInput(**given | values)  # type: ignore[arg-type]


# ---------------------------------------------------------------- dates


@pytest.mark.parametrize(
    ("needed_by", "until", "words"),
    [
        pytest.param(NOW - 2 * DAY, None, "has passed", id="needed by in the past"),
        pytest.param(NOW + 3 * DAY, NOW + DAY, "end before it is needed", id="end before"),
        pytest.param(NOW + DAY, NOW + DAY, "end before it is needed", id="end at once"),
        pytest.param(NOW - DAY / 2, NOW + DAY, "", id="needed today"),
    ],
)
def test_the_dates_of_a_request_fit_one_another(
    needed_by: datetime, until: datetime | None, words: str, portal: Portal
) -> None:
    if not words:
        assert portal.draft(needed_by=needed_by, until=until)
        return
    with pytest.raises(services.RequestRefused, match=words) as refused:
        portal.draft(needed_by=needed_by, until=until)
    assert refused.value.fix


def test_a_day_that_passed_meanwhile_keeps_nobody_from_editing_the_rest(portal: Portal) -> None:
    pk = portal.draft(needed_by=NOW + DAY)
    portal.wait(days=5)
    ada, same = portal.actor("ada"), portal.of(pk).needed_by
    edited = services.Edited(reason="More of it.", needed_by=same)
    services.edit(pk, edited, by=ada, version=1, now=portal.now)
    later = services.Edited(needed_by=NOW + 2 * DAY)
    with pytest.raises(services.RequestRefused, match="has passed"):
        services.edit(pk, later, by=ada, version=2, now=portal.now)
    early = services.Edited(until=portal.now + DAY, needed_by=portal.now + 2 * DAY)
    with pytest.raises(services.RequestRefused, match="before it is needed"):
        services.edit(pk, early, by=ada, version=2, now=portal.now)


def test_a_draft_whose_end_has_passed_is_not_submitted(portal: Portal) -> None:
    pk = portal.draft(until=NOW + DAY)
    portal.wait(days=2)
    with pytest.raises(services.RequestRefused, match="must lie ahead"):
        services.submit(pk, by=portal.actor("ada"), version=1, now=portal.now)
    assert portal.of(pk).state == RequestState.DRAFT


def test_the_same_moment_of_another_zone_is_no_change_in_the_audit(portal: Portal) -> None:
    end = NOW + 9 * DAY
    pk = portal.draft(until=end.astimezone(timezone(timedelta(hours=1))), needed_by=NOW + DAY)
    edited = services.Edited(reason="More.", until=end.astimezone(timezone(timedelta(hours=5))))
    services.edit(pk, edited, by=portal.actor("ada"), version=1, now=portal.now)
    first, last = AuditEntry.objects.order_by("number")
    assert json.loads(first.after)["until"] == end.astimezone(UTC).isoformat()
    assert "until" not in json.loads(last.after)


# ---------------------------------------------------------------- twice


def test_the_same_asked_for_once_is_written_once(portal: Portal) -> None:
    ada, cleo = portal.actor("ada"), portal.actor("cleo")

    def once(of: services.RequestInput, by: Actor, *, after: timedelta = timedelta(0)) -> int:
        return services.create(of, by=by, now=portal.now + after, once=True)

    first = once(asked(), ada)
    assert once(asked(), ada, after=timedelta(minutes=5)) == first
    assert once(asked(after="9"), ada) != first
    assert once(asked(reason="Another."), ada) != first
    assert once(asked(), cleo) != first
    assert once(asked(), ada, after=timedelta(hours=1)) != first
    assert services.create(asked(), by=ada, now=portal.now) != first


# ---------------------------------------------------------------- offers


def test_an_offer_of_an_earlier_round_is_no_offer_any_more(portal: Portal) -> None:
    pk = portal.submitted()
    cleo, ada = portal.actor("cleo"), portal.actor("ada")
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    portal.wait(minutes=1)
    services.ask_changes(pk, "7 would fit.", by=cleo, now=portal.now, offer="7")
    detail = request_detail(pk, ada)
    assert detail is not None
    assert detail.offer == "7"
    portal.wait(minutes=1)
    services.submit(pk, by=ada, version=portal.of(pk).version, now=portal.now)
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    portal.wait(minutes=1)
    services.ask_changes(pk, "What is it for?", by=cleo, now=portal.now)
    detail = request_detail(pk, ada)
    assert detail is not None
    assert detail.offer == ""
    assert "accept_offer" not in detail.actions
    with pytest.raises(services.RequestRefused, match="no open counter-offer"):
        services.accept_offer(pk, by=ada, version=portal.of(pk).version, now=portal.now)


# ---------------------------------------------------------------- the queue


def waiting(portal: Portal, name: str, **values: object) -> int:
    """Put a request for a quota of its own into the queue."""
    given = {"name": name, "state": "submitted", "submitted_at": NOW, "created_at": NOW}
    mine: dict[str, object] = {"cluster": portal.cluster, "team": portal.vision}
    mine |= {"source": "ResourceQuota", "namespace": "team-vision", "key": KEY}
    mine |= {"before": "6", "after": "8", "reason": "A model.", "authors": ["ada"]}
    mine |= {"changed_at": NOW, "changed_by": "ada"}
    return ChangeRequest.objects.create(**mine | given | values).pk


def test_what_is_needed_soonest_is_decided_on_first(portal: Portal) -> None:
    pks = {
        "late": waiting(portal, "a", submitted_at=NOW - DAY),
        "old": waiting(portal, "b", submitted_at=NOW - 9 * DAY),
        "far": waiting(portal, "c", needed_by=NOW + 9 * DAY),
        "soon": waiting(portal, "d", needed_by=NOW + DAY),
        "soon, older": waiting(portal, "e", needed_by=NOW + DAY, submitted_at=NOW - DAY),
        "never handed in": waiting(portal, "f", submitted_at=None, created_at=NOW - 99 * DAY),
    }
    order = ["soon, older", "soon", "far", "never handed in", "old", "late"]
    cleo, found, cursor = portal.actor("cleo"), [], None
    for _ in order:
        page = review_queue(cleo, cursor=cursor, page_size=1)
        found += [row.row.id for row in page.rows]
        cursor = page.next_cursor
    assert found == [pks[name] for name in order]
    assert cursor is None


def test_an_address_of_the_queue_that_was_made_up_is_refused(portal: Portal) -> None:
    cleo = portal.actor("cleo")
    for key in ((5,), ("", "no time", 1), ("never", NOW.isoformat(), 1)):
        with pytest.raises(CursorRefused):
            review_queue(cleo, cursor=encode_cursor("quota-review", key))


@override_settings(REQUESTS_TWO_FROM_GPUS=2.0)
def test_who_gave_the_first_approval_is_not_asked_again(portal: Portal) -> None:
    pk = portal.submitted()
    cleo, carl = portal.actor("cleo"), portal.actor("carl")
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    assert (pending_count(cleo), pending_count(carl)) == (1, 1)
    services.approve(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    assert (pending_count(cleo), pending_count(carl)) == (0, 1)
    assert [row.row.id for row in review_queue(carl).rows] == [pk]


def test_a_long_queue_takes_no_more_queries_than_a_short_one(portal: Portal) -> None:
    cleo = portal.actor("cleo")
    for n in range(200):
        waiting(portal, f"quota-{n}", needed_by=NOW + n % 7 * DAY if n % 2 else None)
    with CaptureQueriesContext(
        connection,
    ) as few:
        assert len(review_queue(cleo, page_size=1).rows) == 1
    with CaptureQueriesContext(connection) as many:
        assert len(review_queue(cleo, page_size=200).rows) == 200
    assert len(many) == len(few) == 4
