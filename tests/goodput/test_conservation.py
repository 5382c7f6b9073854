"""Whatever becomes of pods, both ledgers sum in every grouping: read from the database."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from django.db import transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.goodput.selectors import GoodputLedger, goodput_ledger
from apps.goodput.services import keep_losses
from apps.usage.domain.amounts import CAPACITY_FIELDS, HELD_FIELDS, NANO, Amounts
from apps.usage.domain.usage_query import Filters, Grouping, UsageQuery, whole_days
from apps.usage.selectors import usage_rows
from tests.factories import NodeGpus, PodFact, Portal, collect, make_portal
from tests.goodput.test_ledger import PodLife, lives
from tests.shared_rows import shared
from tests.usage.equations import broken_equations

pytestmark = pytest.mark.django_db

# Two hours before midnight in Berlin: lives go over the end of a day.
START = datetime(2026, 3, 9, 21, tzinfo=UTC)
LAST = date(2026, 3, 10)
LATER = datetime(2026, 3, 12, 9, tzinfo=UTC)
GROUPINGS: tuple[tuple[Grouping, ...], ...] = (
    *((one,) for one in Grouping),
    tuple(one for one in Grouping if one is not Grouping.NODE),
    tuple(Grouping),
)
portal_of_all = shared(make_portal)


class StoredPod(NamedTuple):
    """What a pod went through, which of the portal's workloads it is of, and its node and team."""

    life: PodLife
    workload: int
    node: int
    team: int
    seen: bool


class Fleet(NamedTuple):
    """Pods, GPUs of each node that were unavailable, and whether losses are kept by the day."""

    pods: Sequence[StoredPod]
    unhealthy: Sequence[int]
    kept: bool


_PODS = st.builds(
    StoredPod, lives(), *[st.integers(0, 5)] * 3, seen=st.sampled_from((True, True, True, False))
)
_FLEETS = st.builds(
    Fleet, st.lists(_PODS, max_size=8), st.tuples(*[st.integers(0, 8)] * 3), kept=st.booleans()
)


def store(portal: Portal, fleet: Fleet) -> None:
    """Write the pods, and the hours in which they were."""
    gpus = [
        # Enough for all of them: what does not fit is a matter of attribution.
        replace(one, gpus=72.0, unhealthy=float(lost))
        for one, lost in zip(portal.node_gpus, fleet.unhealthy, strict=True)
    ]
    facts: dict[datetime, list[PodFact]] = {}
    teams = (portal.vision, portal.speech, portal.unassigned)
    for number, drawn in enumerate(fleet.pods):
        workload = portal.pods[drawn.workload].workload
        of_cluster = [one for one in gpus if one.node.cluster == workload.namespace.cluster]
        node = of_cluster[drawn.node % len(of_cluster)]
        pod = Pod.objects.create(
            **_columns(drawn, node),
            cluster=node.node.cluster,
            workload=workload,
            name=f"drawn-{number}",
            uid=f"drawn-{number}",
        )
        for hour, amounts in drawn.life.hours():
            fact = PodFact(pod, node, teams[drawn.team % len(teams)], amounts)
            facts.setdefault(START + timedelta(seconds=hour), []).append(fact)
    hours = [START + timedelta(hours=number) for number in range(8)]
    collect(hours, gpus, lambda hour: facts.get(hour, []), zone=portal.zone)
    if fleet.kept:
        keep_losses(now=LATER)


def _columns(drawn: StoredPod, node: NodeGpus) -> dict[str, Any]:
    life, start = drawn.life, START.timestamp()
    ended = START + timedelta(seconds=life.end) if life.ended else None
    return {
        "resource": "nvidia.com/gpu",
        "units": life.gpus,
        "gpu_equivalents": life.gpus,
        "source": "api",
        "node_name": node.node.name,
        "tier": node.tier,
        "gpu_model": node.model,
        "created_at": START,
        "bound_at": START,
        "started_at": START,
        "ended_at": ended,
        "end_reason": life.reason,
        "runs": [[start + a, None if b is None else start + b] for a, b in life.spans],
        "exits": [[start + at, why] for at, why in life.exits] or None,
        "checkpoints": [start + at for at in life.checkpoints] or None,
        "observed_until": None if drawn.seen else START + timedelta(seconds=life.end),
    }


@contextmanager
def undone() -> Iterator[None]:
    """Take back what is written within: one example leaves nothing to the next."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def sums(rows: Sequence[Sequence[int | None]]) -> list[int]:
    return [sum(amount or 0 for amount in column) for column in zip(*rows, strict=True)]


def amounts_of(row: Amounts, names: Sequence[str]) -> list[int | None]:
    return [getattr(row, name) for name in names]


def goodput(window: Window, *by: Grouping) -> GoodputLedger:
    return goodput_ledger(window, group_by=by, filters=Filters(), visibility=EVERYTHING)


def check_usage(window: Window, by: tuple[Grouping, ...]) -> None:
    """Check that the capacity ledger sums, with capacity where the grouping has it."""
    (total,) = usage_rows(UsageQuery(window), visibility=EVERYTHING)
    rows = usage_rows(UsageQuery(window, group_by=by), visibility=EVERYTHING)
    assert [list(broken_equations(row.amounts)) for row in rows] == [[]] * len(rows)
    has_capacity = not {Grouping.TEAM, Grouping.NAMESPACE, Grouping.WORKLOAD} & {*by}
    names = (*HELD_FIELDS, *(CAPACITY_FIELDS if has_capacity else ()))
    found = sums([amounts_of(row.amounts, names) for row in rows]) or [0] * len(names)
    assert found == sums([amounts_of(total.amounts, names)])


def check_goodput(window: Window, by: tuple[Grouping, ...]) -> None:
    """Check that the goodput ledger sums, and that its causes have all that was lost."""
    whole, found = goodput(window), goodput(window, *by)
    for row in found.rows:
        assert row.amounts.allocated == sum(row.amounts[1:])
        assert min(row.amounts) >= 0
        assert 0 <= row.unwatched <= row.amounts.allocated
        assert row.goodput_ratio is None or 0 <= row.goodput_ratio <= 1
    assert found.total == whole.total
    assert found.unwatched == whole.unwatched
    assert found.reasons == whole.reasons
    causes = sum(one.lost_gpu_hours for one in whole.reasons)
    assert causes == pytest.approx(whole.total.lost / NANO, abs=1e-6)
    (held,) = usage_rows(UsageQuery(window), visibility=EVERYTHING)
    assert whole.total.allocated == held.amounts.allocated


def test_both_ledgers_sum_in_every_grouping(portal_of_all: Portal) -> None:
    lost = 0

    @given(_FLEETS)
    @settings(max_examples=6)
    def check(fleet: Fleet) -> None:
        nonlocal lost
        portal = deepcopy(portal_of_all)
        with undone():
            store(portal, fleet)
            short = whole_days(LAST, 2, portal.zone)
            for by in GROUPINGS:
                # Longer windows are read by the day, and nodes by the hour alone.
                long = whole_days(LAST, 120, portal.zone)
                window = long if fleet.kept and Grouping.NODE not in by else short
                check_usage(window, by)
                check_goodput(window, by)
            # A part of the lives, cut within runs and hours that are lost.
            part = Window(START + timedelta(hours=1), START + timedelta(hours=4))
            check_usage(part, (Grouping.TIER,))
            check_goodput(part, (Grouping.TIER,))
            lost += goodput(short).total.lost

    check()
    # Of fleets that lose nothing it would say nothing.
    assert lost > 0
