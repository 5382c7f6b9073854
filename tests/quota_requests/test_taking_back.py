"""Raises that end: on their date, by hand, on top of one another, and over nobody."""

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.models import ChangeRequest
from tests.quota_requests import recorded
from tests.quota_requests.portal import KEY, NOW, served_portal
from tests.quota_requests.test_timing import DAY, on_top, said

pytestmark = pytest.mark.django_db


def test_a_time_boxed_raise_is_announced_and_goes_back_on_its_date() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + 10 * DAY)
        for _ in range(12 * 4):
            portal.wait(hours=6)
            services.revert_due(now=portal.now)
            if portal.of(pk).state == RequestState.REVERTING:
                break
        assert portal.now == NOW + 10 * DAY
        words = "The quota goes back to 6 on 26 Nov 12:00 UTC."
        assert said("announce_revert") == [words, words]
        assert portal.live() == "8"
        portal.carry_out(pk)
        assert (portal.of(pk).state, portal.live()) == (RequestState.REVERTED, "6")
        assert services.revert_due(now=portal.now) == 0


def test_raises_whose_end_is_far_cost_no_query_each(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + 10 * DAY)
        with django_assert_num_queries(2):
            assert services.revert_due(now=portal.now) == 0
        # Once its announcement was made, it costs nothing more until the next one.
        portal.now = NOW + 4 * DAY
        services.revert_due(now=portal.now)
        assert portal.of(pk).announced == 1
        for number in range(3):
            copy = portal.of(pk)
            copy.pk, copy.key = None, f"requests.nvidia.com/mig-{number}g.5gb"
            copy.save(force_insert=True)
        assert ChangeRequest.objects.filter(reverts_at__gt=portal.now).count() == 4
        with django_assert_num_queries(2):
            services.revert_due(now=portal.now)


def test_a_raise_that_somebody_changed_is_not_taken_back_over_them() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + DAY)
        portal.api.live = recorded.quota("gpu") | {"spec": {"hard": {KEY: "10"}}}
        portal.wait(days=1)
        assert services.revert_due(now=portal.now) == 1
        portal.carry_out(pk)
        request = portal.of(pk)
        assert (request.state, portal.live()) == (RequestState.APPLIED, "10")
        assert "shows 10 where 8 was reviewed" in request.outcome
        assert "does not revert automatically" in request.outcome
        portal.wait(days=1)
        assert services.revert_due(now=portal.now) == 0, "people decide from here on"


def test_a_revert_that_could_not_be_made_is_tried_again() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + DAY)
        portal.wait(days=1)
        services.revert_due(now=portal.now)
        portal.write_to("http://127.0.0.1:9")
        assert portal.carry_through(pk) == "failed"
        assert portal.of(pk).state == RequestState.APPLIED
        portal.write_to(portal.address())
        portal.wait(hours=1)
        assert services.revert_due(now=portal.now) == 1
        portal.carry_out(pk)
        assert (portal.of(pk).state, portal.live()) == (RequestState.REVERTED, "6")


def test_a_revert_by_hand_that_failed_leaves_the_date_as_it_was() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + 10 * DAY)
        portal.write_to("http://127.0.0.1:9")
        portal.wait(days=1)
        services.revert(pk, by=portal.actor("cleo"), now=portal.now)
        assert portal.carry_through(pk) == "failed"
        request = portal.of(pk)
        assert (request.state, request.reverts_at) == (RequestState.APPLIED, NOW + 10 * DAY)
        assert "It reverts automatically on 26 Nov 12:00 UTC" in request.outcome
        portal.write_to(portal.address())
        portal.wait(days=1)
        assert services.revert_due(now=portal.now) == 0
        assert portal.live() == "8"


def test_a_revert_by_hand_of_what_somebody_changed_leaves_the_date_as_it_was() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + 10 * DAY)
        raised, portal.api.live = portal.api.live, changed_to("9")
        services.revert(pk, by=portal.actor("cleo"), now=portal.now)
        assert portal.carry_out(pk) == "back to review"
        portal.api.live = raised
        portal.now = NOW + 10 * DAY
        assert services.revert_due(now=portal.now) == 1
        portal.carry_out(pk)
        assert (portal.of(pk).state, portal.live()) == (RequestState.REVERTED, "6")


def changed_to(amount: str) -> dict[str, Any]:
    return recorded.quota("gpu") | {"spec": {"hard": {KEY: amount}}}


def test_a_revert_that_keeps_failing_is_tried_less_and_less_often() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + DAY)
        portal.api.live = None
        portal.wait(days=1)
        pauses = []
        for _ in range(7):
            assert services.revert_due(now=portal.now) == 1
            assert portal.carry_out(pk) == "failed"
            due = portal.of(pk).reverts_at
            assert due is not None
            pauses.append((due - portal.now).total_seconds() / 3600)
            portal.now = due
        assert pauses == [1, 2, 4, 8, 16, 24, 24]


def test_a_raise_whose_end_passed_while_the_portal_was_down_goes_back_at_once() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + DAY)
        portal.now = NOW + 30 * DAY
        assert services.revert_due(now=portal.now) == 1
        portal.carry_out(pk)
        assert (portal.of(pk).state, portal.live()) == (RequestState.REVERTED, "6")
        assert said("announce_revert") == []


def test_a_raise_that_went_back_by_hand_is_not_taken_back_on_its_date() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + DAY)
        services.revert(pk, by=portal.actor("cleo"), now=portal.now)
        assert portal.carry_out(pk) == "applied"
        portal.now = NOW + DAY
        assert services.revert_due(now=portal.now) == 0
        assert portal.of(pk).reverts_at is None


def test_a_revert_does_not_wait_for_who_requests_more() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + DAY)
        portal.see(8)
        other = portal.approved(before="8", after="9")
        portal.wait(days=1)
        assert services.revert_due(now=portal.now) == 1
        assert portal.carry_out(pk) == "applied"
        assert (portal.of(pk).state, portal.live()) == (RequestState.REVERTED, "6")
        # What was approved was a change from 8, which is not there any more.
        portal.start(other)
        portal.carry_out(other)
        assert (portal.of(other).state, portal.live()) == (RequestState.IN_REVIEW, "6")


def test_a_revert_waits_while_another_change_of_the_key_is_made() -> None:
    with served_portal() as portal:
        pk = portal.applied(until=NOW + DAY)
        portal.see(8)
        other = portal.started(before="8", after="9")
        portal.wait(days=1)
        for _ in range(3):
            assert services.revert_due(now=portal.now) == 0
            portal.wait(hours=2)
        assert f"Request {other} for the same quota key is open" in portal.of(pk).outcome
        assert len(said("put_off_revert")) == 1


# ---------------------------------------------------------------- one on top of the other


def test_a_raise_that_ends_under_a_permanent_change_takes_nothing_back() -> None:
    with served_portal() as portal:
        box = portal.applied(until=NOW + DAY)
        for before, after in (("8", "9"), ("9", "8")):
            last = on_top(portal, before, after)
        portal.now = NOW + DAY
        assert services.revert_due(now=portal.now) == 0
        request = portal.of(box)
        assert (request.state, request.reverts_at, portal.live()) == (
            RequestState.EXPIRED,
            None,
            "8",
        )
        assert f"request {last} changed the quota since, to 8" in request.outcome
        assert services.revert_due(now=portal.now + DAY) == 0


def test_the_last_of_two_raises_with_an_end_goes_back_to_before_both() -> None:
    with served_portal() as portal:
        first = portal.applied(until=NOW + DAY)
        second = on_top(portal, "8", "10", until=NOW + 3 * DAY)
        portal.now = NOW + DAY
        services.revert_due(now=portal.now)
        assert (portal.of(first).state, portal.live()) == (RequestState.EXPIRED, "10")
        portal.now = NOW + 2 * DAY
        services.revert_due(now=portal.now)
        assert "goes back to 6" in said("announce_revert")[-1]
        portal.now = NOW + 3 * DAY
        assert services.revert_due(now=portal.now) == 1
        assert portal.carry_out(second) == "applied"
        assert (portal.of(second).state, portal.live()) == (RequestState.REVERTED, "6")


def test_of_two_raises_the_later_may_end_first() -> None:
    with served_portal() as portal:
        first = portal.applied(until=NOW + 3 * DAY)
        second = on_top(portal, "8", "10", until=NOW + DAY)
        for pk, day, live in ((second, 1, "8"), (first, 3, "6")):
            portal.now = NOW + day * DAY
            assert services.revert_due(now=portal.now) == 1
            assert portal.carry_out(pk) == "applied"
            assert (portal.of(pk).state, portal.live()) == (RequestState.REVERTED, live)


def test_what_lies_under_another_change_is_not_taken_back_by_hand() -> None:
    with served_portal() as portal:
        first = portal.applied()
        second = on_top(portal, "8", "10")
        with pytest.raises(services.Superseded, match=f"Request {second} changed this quota"):
            services.revert(first, by=portal.actor("cleo"), now=portal.now)
        assert portal.of(first).state == RequestState.APPLIED


def test_a_commit_that_takes_back_what_was_stacked_has_the_amount_beneath() -> None:
    with served_portal() as portal:
        portal.applied(until=NOW + DAY)
        portal.wait(hours=1)
        portal.see("8")
        second = portal.approved(before="8", after="10")
        portal.start(second, gitops=True)
        portal.api.live = recorded.quota("gpu") | {"spec": {"hard": {KEY: "10"}}}
        portal.wait(minutes=5)
        portal.see("10")
        services.watch_gitops(now=portal.now)
        portal.now = NOW + DAY
        services.revert_due(now=portal.now)
        services.revert(second, by=portal.actor("cleo"), now=portal.now)
        text = portal.execution(second).patch_file["text"]
        assert '"requests.nvidia.com/gpu": "6"' in text
