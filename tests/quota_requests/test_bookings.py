"""Bookings: raises that are applied at their start and reverted at their end."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import AuditEntry
from apps.clusters.domain.window import Window
from apps.planning.domain.capacity_cases import BookedGpus, TierOutlook
from apps.planning.domain.forecast import Forecast
from apps.planning.models import CapacityPlan
from apps.quota_requests import services
from apps.quota_requests.domain.bookings import (
    PlannedChange,
    TierLimits,
    booked_spans,
    planned_amount,
)
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.states import RequestState, TransitionDenied
from apps.quota_requests.selectors import bookings_ahead, team_bookings, tier_bookings
from apps.quota_requests.services import RequestRefused
from apps.quotas.models import Entitlement
from apps.usage.domain.amounts import NANO
from apps.usage.models import TierDay, TierHour
from tests.factories import BEGINNING, make_model, note_collection
from tests.quota_requests.portal import NOW, Portal, make_portal, served_portal

pytestmark = pytest.mark.django_db

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def change(before: int, after: int, start: int | None, end: int | None) -> PlannedChange:
    """Return a change from so many days on until so many; `start` None: it is applied."""
    begins = None if start is None else NOW + start * DAY
    ends = None if end is None else NOW + end * DAY
    return PlannedChange(quantity(str(before)), quantity(str(after)), begins, ends)


@pytest.mark.parametrize(
    ("current", "changes", "planned"),
    [
        pytest.param(6, [], {1: 6}, id="nothing planned"),
        pytest.param(8, [(6, 8, None, 3)], {2: 8, 3: 6}, id="what is applied ends"),
        pytest.param(6, [(6, 8, 1, 3)], {0: 6, 1: 8, 3: 6}, id="a booking"),
        pytest.param(6, [(6, 8, 1, 3), (6, 9, 3, 4)], {3: 9, 4: 6}, id="one after the other"),
        pytest.param(6, [(6, 8, 1, 5), (8, 9, 2, 3)], {2: 9, 3: 8, 5: 6}, id="one inside"),
        pytest.param(6, [(6, 8, 1, 3), (8, 9, 2, 5)], {3: 9, 5: 6}, id="one that ends later"),
        pytest.param(6, [(7, 8, 1, 3)], {2: 6, 4: 6}, id="reviewed from another amount"),
        pytest.param(7, [(6, 8, None, 3)], {4: 7}, id="somebody else set it"),
    ],
)
def test_a_key_is_planned_by_what_is_applied_and_scheduled(
    current: int, changes: list[tuple[int, int, int | None, int | None]], planned: dict[int, int]
) -> None:
    known = [change(*one) for one in changes]
    for day, amount in planned.items():
        found = planned_amount(quantity(str(current)), known, NOW + day * DAY)
        assert found == quantity(str(amount)), day


def test_spans_of_a_tier_tell_where_bookings_do_not_fit() -> None:
    booked = [
        BookedGpus(4, NOW + DAY, NOW + 3 * DAY),
        BookedGpus(4, NOW + 2 * DAY, NOW + 9 * DAY),
        BookedGpus(9, NOW - 2 * DAY, NOW),
    ]
    tier = TierLimits(capacity=16, entitled=10, limits=11)
    spans = booked_spans(booked, tier, start=NOW, end=NOW + 4 * DAY)
    assert [(one.booked, one.clashes, one.overcommitted) for one in spans] == [
        (0, False, False),
        (4, False, False),
        (8, True, True),
        (4, False, False),
    ]
    assert [one.start for one in spans] == [NOW, NOW + DAY, NOW + 2 * DAY, NOW + 3 * DAY]


def test_without_a_known_capacity_nothing_clashes() -> None:
    tier = TierLimits(capacity=None, entitled=10, limits=None)
    (span,) = booked_spans([BookedGpus(99, NOW, NOW + DAY)], tier, start=NOW, end=NOW + DAY)
    assert (span.booked, span.clashes, span.overcommitted) == (99, False, False)


# ---------------------------------------------------------------- from request to end


def notes(action: str) -> list[str]:
    rows = AuditEntry.objects.filter(action=action).order_by("number")
    return list(rows.values_list("note", flat=True))


def booked(portal: Portal, **values: Any) -> int:
    """Return a booking from tomorrow until three days later, approved."""
    return portal.approved(**{"starts_at": NOW + DAY, "until": NOW + 4 * DAY, **values})


def begin(portal: Portal) -> int:
    return services.start_due(now=portal.now)


def test_a_booking_is_applied_at_its_start_and_reverted_at_its_end() -> None:
    with served_portal() as portal:
        pk = booked(portal)
        assert portal.of(pk).state == RequestState.SCHEDULED
        assert begin(portal) == 0, "not before its start"
        assert portal.api.writes == 0
        portal.wait(days=1)
        assert begin(portal) == 1
        portal.carry_out(pk)
        assert portal.of(pk).state == RequestState.APPLIED
        assert portal.of(pk).reverts_at == NOW + 4 * DAY
        assert begin(portal) == 0
        portal.wait(days=3)
        assert services.revert_due(now=portal.now) == 1
        portal.carry_out(pk)
        assert portal.of(pk).state == RequestState.REVERTED
        assert notes("apply") == [""]


def test_people_apply_no_booking_before_its_start() -> None:
    with served_portal() as portal:
        pk = booked(portal)
        with pytest.raises(TransitionDenied, match="Only the portal may do this"):
            portal.start(pk)
        services.withdraw(pk, by=portal.actor("ada"), now=portal.now)
        portal.wait(days=1)
        assert begin(portal) == 0
        assert portal.of(pk).state == RequestState.WITHDRAWN


def test_a_portal_that_was_down_begins_late_and_says_so() -> None:
    with served_portal() as portal:
        pk = booked(portal)
        portal.wait(days=1, hours=3)
        assert begin(portal) == 1
        assert notes("apply") == ["Started 3h 0m after its start."]
        portal.carry_out(pk)
        assert portal.of(pk).state == RequestState.APPLIED


def test_a_portal_that_was_down_until_the_end_changes_nothing() -> None:
    with served_portal() as portal:
        pk = booked(portal)
        portal.wait(days=5)
        assert begin(portal) == 0
        assert services.expire(now=portal.now) == 1
        assert portal.of(pk).outcome == "Expired: its end has passed; nothing was changed."
        assert portal.api.writes == 0


def test_a_quota_that_changed_meanwhile_is_not_overwritten() -> None:
    with served_portal() as portal:
        pk = booked(portal, before="6", after="8")
        other = portal.applied(before="6", after="7")
        assert portal.of(other).state == RequestState.APPLIED
        writes = portal.api.writes
        portal.wait(days=1)
        assert begin(portal) == 1
        portal.carry_out(pk)
        assert portal.of(pk).state == RequestState.IN_REVIEW
        assert portal.api.writes == writes
        assert "7" in portal.of(pk).outcome


def test_two_bookings_of_a_key_lie_one_on_the_other() -> None:
    with served_portal() as portal:
        first = booked(portal)
        # The amount of now is written, and that of its start is what it begins from.
        second = booked(portal, after="10", starts_at=NOW + 2 * DAY, until=NOW + 6 * DAY)
        assert (portal.of(second).before, portal.of(second).after) == ("8", "10")
        for pk in (first, second):
            portal.wait(days=1)
            assert begin(portal) == 1
            portal.carry_out(pk)
            assert portal.of(pk).state == RequestState.APPLIED
        portal.wait(days=2)
        services.revert_due(now=portal.now)
        assert portal.of(first).state == RequestState.EXPIRED, "the later one stands on top"
        portal.wait(days=2)
        assert services.revert_due(now=portal.now) == 1
        portal.carry_out(second)
        assert portal.of(second).state == RequestState.REVERTED
        assert portal.of(second).executions.latest("pk").wanted == "6"


def test_a_booking_that_waits_blocks_no_other_request() -> None:
    with served_portal() as portal:
        booked(portal)
        assert portal.of(portal.submitted(after="7")).state == RequestState.SUBMITTED
        assert portal.of(portal.submitted(after="9", starts_at=NOW + 2 * DAY,
                                          until=NOW + 3 * DAY)).before == "8"  # fmt: skip


def test_a_booking_that_the_portal_may_not_write_is_handed_to_people() -> None:
    portal = make_portal(None)
    pk = booked(portal)
    portal.write_to(None)
    portal.wait(days=1)
    assert begin(portal) == 0
    assert portal.of(pk).state == RequestState.APPROVED
    assert "the portal could not apply it" in portal.of(pk).outcome


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"until": None}, "needs its end", id="no end"),
        pytest.param({"until": NOW + HOUR}, "must lie ahead|before it starts", id="ends before"),
        pytest.param({"starts_at": NOW - HOUR}, "must lie ahead", id="in the past"),
        pytest.param({"after": "5"}, "A booking raises a limit", id="no raise"),
    ],
)
def test_a_booking_that_cannot_be_is_refused(values: dict[str, Any], words: str) -> None:
    portal = make_portal(None)
    with pytest.raises(RequestRefused, match=words):
        portal.draft(**{"starts_at": NOW + DAY, "until": NOW + 4 * DAY, **values})


def test_the_start_of_a_booking_can_be_edited_and_taken_away() -> None:
    portal = make_portal(None)
    pk = portal.draft(starts_at=NOW + DAY, until=NOW + 4 * DAY)
    actor = portal.actor("ada")
    later = services.Edited(starts_at=NOW + 2 * DAY)
    version = services.edit(pk, later, by=actor, version=1, now=portal.now)
    assert portal.of(pk).starts_at == NOW + 2 * DAY
    none = services.Edited(clear=frozenset({"starts_at"}))
    services.edit(pk, none, by=actor, version=version, now=portal.now)
    assert portal.of(pk).starts_at is None


# ---------------------------------------------------------------- the calendar of a tier

WEEK = Window(NOW - 7 * DAY, NOW + 14 * DAY)


def test_the_calendar_names_bookings_to_those_who_may_know_of_them() -> None:
    portal = make_portal(None)
    pk = booked(portal)
    asked = portal.submitted(after="9", starts_at=NOW + 2 * DAY, until=NOW + 3 * DAY)
    portal.draft(after="10", starts_at=NOW + 2 * DAY, until=NOW + 3 * DAY)

    def rows(name: str) -> list[tuple[int | None, str, float, bool]]:
        found = tier_bookings("whole", WEEK, actor=portal.actor(name), now=portal.now)
        return [(row.id, row.team, row.gpus, row.approved) for row in found.rows]

    assert rows("ada") == rows("cleo") == [(pk, "vision", 2.0, True), (asked, "vision", 1.0, False)]
    assert rows("dan") == [(None, "", 2.0, True), (None, "", 1.0, False)]
    # What is only asked for is not in the sums, which everybody may see.
    found = tier_bookings("whole", WEEK, actor=portal.actor("dan"), now=portal.now)
    assert [one.booked for one in found.spans] == [0, 2, 0]


def test_a_team_has_its_bookings_that_run_or_are_to_come() -> None:
    portal = make_portal(None)
    pk = booked(portal)
    asked = portal.submitted(after="9", starts_at=NOW + 2 * DAY, until=NOW + 3 * DAY)

    def ids(team: str, name: str, start: datetime) -> list[int | None]:
        window = Window(start, start + 14 * DAY)
        return [row.id for row in team_bookings([team], window, actor=portal.actor(name))]

    assert ids("vision", "ada", NOW) == ids("vision", "cleo", NOW) == [pk, asked]
    assert ids("vision", "dan", NOW) == ids("speech", "cleo", NOW) == []
    assert ids("vision", "ada", NOW + 20 * DAY) == [], "what is over is not to come"
    (row, _) = team_bookings(["vision"], WEEK, actor=portal.actor("ada"))
    assert (row.tiers, row.gpus) == (("whole",), 2.0)


def test_the_calendar_needs_as_many_queries_however_many_bookings(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    portal = make_portal(None)
    actor = portal.actor("cleo")
    for number, count in ((0, 1), (1, 2), (2, 3)):
        booked(portal, starts_at=NOW + (1 + 2 * number) * DAY, until=NOW + (2 + 2 * number) * DAY)
        with django_assert_num_queries(15):
            found = tier_bookings("whole", WEEK, actor=actor, now=portal.now)
        assert len(found.rows) == count


def test_the_capacity_plan_knows_bookings_that_have_not_begun(
    django_assert_num_queries: DjangoAssertNumQueries,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    portal = make_portal(None)
    monkeypatch.setattr("django.utils.timezone.now", portal.clock)
    booked(portal)
    booked(portal, after="9", starts_at=NOW + 2 * DAY, until=NOW + 3 * DAY)
    portal.submitted(after="99", starts_at=NOW + DAY, until=NOW + 2 * DAY)
    with django_assert_num_queries(3):
        found = bookings_ahead(now=portal.now)
    assert [(one.gpus, one.start - NOW) for one in found["whole"]] == [(2, DAY), (1, 2 * DAY)]
    assert bookings_ahead(now=NOW + DAY)["whole"] == found["whole"][1:]
    flat = (6.0,) * 21
    outlook = TierOutlook(
        "whole", "2025-11-01", flat, flat, 8.0, forecast=Forecast(*(flat,) * 3, None)
    )
    CapacityPlan.objects.create(
        tier=portal.tier,
        through=(NOW - DAY).date(),
        days=21,
        computed_at=NOW,
        outlook=msgspec.to_builtins(outlook),
    )
    admin = Client()
    admin.force_login(portal.people["cleo"])
    page = admin.get("/capacity/plan/whole/").content.decode()
    assert "the highest daily average is 8.5 GPUs, above the capacity of 8" in page
    (row,) = admin.get("/api/v1/capacity-plan").json()["results"]
    assert row["booked_peak_gpus"] == 8.5  # two on the whole day, one from noon on


def test_a_clash_with_capacity_is_told_before_approval() -> None:
    portal = make_portal(None)
    hour = NOW.replace(hour=11)
    given: dict[str, Any] = {"cluster": portal.cluster, "tier": portal.tier}
    given["gpu_model"] = make_model()
    for number in range(24):
        at = hour - number * HOUR
        TierHour.objects.create(
            hour=at, capacity_type="on-demand", capacity=8 * NANO, capacity_first=4 * NANO, **given
        )
        note_collection(portal.cluster, at, "complete", collected_at=at + HOUR, coverage_ratio=1.0)
    TierDay.objects.get_or_create(day=NOW.date(), capacity_type="on-demand", **given)
    Entitlement.objects.create(
        team=portal.vision, tier=portal.tier, gpus=5, weight=5, valid_from=BEGINNING
    )
    booked(portal)
    pk = portal.submitted(after="10", starts_at=NOW + 2 * DAY, until=NOW + 6 * DAY)
    assert portal.of(pk).preview["conflicts"] == [
        "whole from 18 Nov 12:00 UTC to 20 Nov 12:00 UTC: 4 GPUs are booked and 5 entitled, of 8."
    ]
