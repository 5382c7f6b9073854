"""Answers that are well formed and wrong: of another hour, or with values that nothing has."""

import json
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any
from urllib.parse import parse_qs

import pytest

from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow
from tests.faults.collecting import HOURS, collecting
from tests.faults.facts import Facts, differences
from tests.faults.proxy import Proxy, Rewrite

pytestmark = [pytest.mark.django_db, pytest.mark.long, pytest.mark.usefixtures("no_pauses")]

Points = list[list[Any]]


def with_points(change: Callable[[Points], None]) -> Rewrite:
    """Return what changes the (time, value) of every series of Prometheus."""

    def rewrite(path: str, _: bytes, body: bytes) -> bytes:
        answer = json.loads(body) if "/api/v1/query" in path else {}
        series = (answer.get("data") or {}).get("result")
        if not isinstance(series, list):
            return body
        for one in series:
            change(one["values"] if "values" in one else [one["value"]])
        return json.dumps(answer).encode()

    return rewrite


def found_after(door: Proxy, rewrite: Rewrite) -> tuple[Facts, list[str]]:
    """Return the facts, and why no hour had any while answers were rewritten."""
    with collecting(door) as portal:
        door.rewrite = rewrite
        portal.move_to(HOURS[-1].end + timedelta(minutes=10))
        for hour in HOURS:
            assert portal.collect(hour).state is CollectionState.FAILED
        errors = list(CollectionWindow.objects.order_by("hour").values_list("error", flat=True))
        door.rewrite = None
        portal.collect_due()
        return portal.finish(HOURS[-1].end), errors


def test_a_cache_that_does_not_read_bodies_of_requests_costs_no_fact(
    door: Proxy, quiet_series: Facts
) -> None:
    first: dict[str, bytes] = {}

    def same_again(path: str, asked: bytes, body: bytes) -> bytes:
        if "/api/v1/query" not in path:
            return body
        return first.setdefault(parse_qs(asked.decode())["query"][0], body)

    found, errors = found_after(door, same_again)
    assert all("a cache that does not read bodies of requests" in error for error in errors)
    assert differences(quiet_series, found) == []


@pytest.mark.parametrize("hours", [1, pytest.param(-1, marks=pytest.mark.exhaustive)])
def test_answers_of_another_hour_are_refused(door: Proxy, quiet_series: Facts, hours: int) -> None:
    def moved(points: Points) -> None:
        for point in points:
            point[0] += hours * 3600

    found, errors = found_after(door, with_points(moved))
    assert all("where it was asked for" in error for error in errors)
    assert differences(quiet_series, found) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", [0.02, 1.0])
@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e+308", "-5"])
def test_values_that_nothing_has_are_no_fact(
    door: Proxy, quiet_series: Facts, value: str, share: float
) -> None:
    chosen = Random(1)  # noqa: S311 - no secret

    def spoiled(points: Points) -> None:
        for point in points:
            if chosen.random() < share:
                point[1] = value

    found, errors = found_after(door, with_points(spoiled))
    assert all("which counts samples" in error for error in errors)
    assert differences(quiet_series, found) == []


def test_series_that_come_twice_in_every_answer_count_once(
    door: Proxy, quiet_series: Facts
) -> None:
    def rewrite(path: str, _: bytes, body: bytes) -> bytes:
        answer = json.loads(body) if "/api/v1/query" in path else {}
        series = (answer.get("data") or {}).get("result")
        if not isinstance(series, list):
            return body
        series += series[::-1]
        return json.dumps(answer).encode()

    with collecting(door) as portal:
        door.rewrite = rewrite
        portal.move_to(HOURS[-1].end + timedelta(minutes=10))
        for hour in HOURS:
            portal.collect(hour)
        found = portal.finish(HOURS[-1].end)
    assert differences(quiet_series, found) == []
