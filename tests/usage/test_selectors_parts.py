"""The pods that a figure sums, and a pod's hours."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window
from apps.usage import selectors
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.usage_query import Filters, UsageQuery
from apps.usage.selectors.ledger import PodPart, PodParts, pod_hours, pod_parts
from tests.factories import Portal, make_portal
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 10, 12, tzinfo=UTC)
WINDOW = Window(AT, AT + timedelta(hours=3))
ALL = slice(0, None)


def fill() -> Portal:
    made = make_portal()
    made.collect(WINDOW)
    return made


_portal = shared(fill)
portal = copy_of("_portal")


def only(portal: Portal) -> Visibility:
    return Visibility(everything=False, team_ids=frozenset({portal.vision.pk}))


def pods(
    filters: Filters | None = None,
    *,
    fields: tuple[str, ...] = ("busy",),
    visibility: Visibility = EVERYTHING,
) -> PodParts:
    return pod_parts(WINDOW, fields=fields, filters=filters or Filters(), visibility=visibility)


def parts(filters: Filters | None = None, **asked: Any) -> list[PodPart]:
    return pods(filters, **asked).named(ALL)


def total(found: list[PodPart]) -> Amounts:
    summed = Amounts()
    for part in found:
        summed.add(part.amounts)
    return summed


@pytest.mark.parametrize(
    "filters",
    [
        Filters(),
        Filters(tier=("silver",)),
        Filters(cluster=("west",), team=("vision",)),
        Filters(namespace=("speech",)),
        Filters(workload=("Job/train",)),
        Filters(capacity_type=("spot",)),
    ],
    ids=["everything", "tier", "team of a cluster", "namespace", "workload", "capacity type"],
)
def test_pods_sum_to_the_ledger_that_they_are_parts_of(portal: Portal, filters: Filters) -> None:
    (row,) = selectors.usage_rows(
        UsageQuery(WINDOW, group_by=[], filters=filters), visibility=EVERYTHING
    )
    whole = pods(filters)
    found = whole.named(ALL)
    assert whole.count == len(found) > 0
    assert whole.total == total(found)
    for name in ("allocated", "busy", "idle", "underused", "unmeasured", "not_running"):
        assert getattr(whole.total, name) == getattr(row.amounts, name)


def test_those_come_first_that_hold_most(portal: Portal) -> None:
    busy = [part.amounts.busy for part in parts()]
    assert busy == sorted(busy, reverse=True)
    fields = ("idle", "underused")
    unused = [p.amounts.idle + p.amounts.underused for p in parts(fields=fields)]
    assert unused == sorted(unused, reverse=True)
    assert pods().named(slice(1, 3)) == parts()[1:3]


def test_nothing_is_told_of_teams_that_the_reader_does_not_see(portal: Portal) -> None:
    seen = parts(visibility=only(portal))
    assert {part.namespace for part in seen} <= {"vision", "vision-prod"}
    assert pods(visibility=only(portal)).count == len(seen) < pods().count
    hidden = Filters(namespace=("speech",))
    assert parts(hidden, visibility=only(portal)) == []
    nothing = pods(hidden, visibility=only(portal))
    assert (nothing.count, nothing.total) == (0, Amounts())


def test_the_hours_of_a_pod_sum_to_what_it_held(portal: Portal) -> None:
    hours = pod_hours("west", "uid-train-0", window=WINDOW, visibility=EVERYTHING)
    assert [at for at, _ in hours] == [AT + timedelta(hours=n) for n in range(3)]
    row = selectors.pod_row("west", "uid-train-0", window=WINDOW, visibility=EVERYTHING)
    assert row
    assert sum(amounts.busy for _, amounts in hours) == row.amounts.busy
    nobody = Visibility(everything=False)
    assert pod_hours("west", "uid-train-0", window=WINDOW, visibility=nobody) == []


@pytest.mark.parametrize("fields", [(), ("capacity",), ("nonsense",)])
def test_pods_have_no_rank_by_what_they_do_not_have(fields: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="pods have no"):
        parts(fields=fields)


def test_more_pods_need_no_more_queries(
    portal: Portal, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        found = pods()
    for rows in (slice(0, 1), ALL):
        with django_assert_num_queries(1):
            found.named(rows)
