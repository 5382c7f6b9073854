"""Policy simulations: asked for on a page, replayed by a worker, and kept."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from celery import current_app
from django.db import transaction
from msgspec import Struct, to_builtins

from apps.accounts.domain.structs import replace
from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING, visibility_of
from apps.accounts.services import leases
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.planning.domain.cluster_replay.inputs import ReplayAssumption, ReplayPolicy
from apps.planning.domain.policy_change import (
    LimitChange,
    PolicyChange,
    PolicyRefused,
    check_change,
)
from apps.planning.domain.policy_effects import PolicyEffects, RecordedWeeks, policy_effects
from apps.planning.domain.policy_wording import assumed_keys
from apps.planning.models import PolicySimulation
from apps.planning.selectors import (
    NothingRecorded,
    RecordedDemand,
    recorded_demand,
    recorded_window,
)
from apps.planning.selectors.backtests import usual_packing
from apps.planning.selectors.policy_inputs import (
    idle_before_end,
    least_other_limits,
    limits_to_change,
    team_shares,
    with_others,
)
from apps.quotas.domain.keys import QuotaRef, QuotaSource

REPLAYED_DAYS = 14
MOST_QUEUED = 3
"""Of one author: each takes a worker some seconds."""
MOST_PARTS = 1000
RETENTION_DAYS = 90
TASK = "planning.simulate_policies"
_LEASE = timedelta(minutes=15)


class LimitInput(Struct, frozen=True):
    """A limit as somebody wants it, in units of its resource."""

    ref: QuotaRef
    after: float


def start_simulation(
    user: User, cluster: str, change: PolicyChange, limits: Sequence[LimitInput], *, now: datetime
) -> int:
    """Have the recorded demand of a cluster replayed with a change; return the number.

    `limits` are added to the change, with their amounts of now. Nothing of the cluster is changed.
    Raises PolicyRefused, also for limits and clusters that the user does not see.
    """
    if len(limits) + len(change.shares) > MOST_PARTS:
        raise PolicyRefused(f"At most {MOST_PARTS} limits and entitlements are changed at once.")
    found = Cluster.objects.filter(name=cluster, active=True).first()
    if found is None:
        raise PolicyRefused(f"There is no cluster {cluster}.")
    change = replace(change, limits=_limit_changes(user, cluster, limits, now))
    check_change(change)
    _check_shares(change, now)
    queued = PolicySimulation.objects.filter(author=user.username, computed_at__isnull=True)
    if queued.count() >= MOST_QUEUED:
        raise PolicyRefused(f"{MOST_QUEUED} of your simulations are queued: wait for one.")
    with transaction.atomic():
        made = PolicySimulation.objects.create(
            cluster=found,
            author=user.username,
            created_at=now,
            change=msgspec.to_builtins(change),
        )
        transaction.on_commit(lambda: current_app.send_task(TASK), robust=True)
    return made.pk


def _limit_changes(
    user: User, cluster: str, limits: Sequence[LimitInput], now: datetime
) -> tuple[LimitChange, ...]:
    if not limits:
        return ()
    rows = limits_to_change(cluster, now, visibility=visibility_of(user))
    known = {row.ref: row for row in rows}
    others = least_other_limits(cluster, now)
    found = []
    for one in limits:
        # By the limits that the user sees: others are refused as if they did not exist.
        row = known.get(one.ref._replace(cluster=cluster))
        if row is None:
            raise PolicyRefused(f"{one.ref.key} of {one.ref.name} is no limit that you can change.")
        # A form sends every limit that it shows: those as they are ask for nothing.
        if row.hard == one.after:
            continue
        limit = LimitChange(
            *(row.source, row.namespace, row.name, row.key, row.hard, one.after),
            team=row.team or "",
        )
        is_of_namespace = row.source == QuotaSource.RESOURCE_QUOTA
        found.append(with_others(limit, others) if is_of_namespace else limit)
    return tuple(found)


def _check_shares(change: PolicyChange, now: datetime) -> None:
    if change.shares:
        known = team_shares(now, visibility=EVERYTHING)
        for one in change.shares:
            if (one.team, one.tier) not in known:
                raise PolicyRefused(f"{one.team} has no entitlement in {one.tier}.")


def simulate_policies(*, now: datetime) -> int:
    """Replay the simulations that are due, the oldest first; return how many.

    Those of more than 90 days ago are deleted.
    """
    done = 0
    due = PolicySimulation.objects.filter(computed_at__isnull=True).order_by("pk")
    # One by one with a lease: two workers share what is due, and a dead one's is taken over.
    while held := leases.take(due, now, lease_until=now + _LEASE):
        values: dict[str, Any] = {"computed_at": now, "lease_until": None}
        change = msgspec.convert(held.change, PolicyChange)
        try:
            weeks, demand = recorded_weeks(held.cluster, change, now=now)
            values |= _computed(policy_effects(weeks, change), demand, change)
        except (NothingRecorded, PolicyRefused) as error:
            # Computed all the same: an answer that says why there is none is not tried again.
            values["error"] = str(error)
        PolicySimulation.objects.filter(pk=held.pk).update(**values)
        done += 1
    PolicySimulation.objects.filter(created_at__lt=now - timedelta(days=RETENTION_DAYS)).delete()
    return done


def recorded_weeks(
    cluster: Cluster, change: PolicyChange, *, now: datetime
) -> tuple[RecordedWeeks, RecordedDemand]:
    """Return the last two weeks of a cluster, as policies are replayed on them; fewer days where
    fewer are known. Raises NothingRecorded.
    """
    end = now.replace(minute=0, second=0, microsecond=0)
    window = recorded_window(cluster.name, Window(end - timedelta(days=REPLAYED_DAYS), end))
    demand = recorded_demand(cluster.name, window, visibility=EVERYTHING)
    limited = change.idle_minutes is not None
    idle = idle_before_end(demand, cluster.name) if limited else [0.0] * len(demand.works)
    weeks = RecordedWeeks(
        works=demand.works,
        happened=[life.times for life in demand.lives],
        idle_seconds=idle,
        cluster=demand.cluster,
        shares=team_shares(now, visibility=EVERYTHING),
        policy=ReplayPolicy(packing=usual_packing(cluster.pk), recorded_nodes=True),
        start=window.start_seconds,
        end=window.end_seconds,
    )
    return weeks, demand


def _computed(found: PolicyEffects, demand: RecordedDemand, change: PolicyChange) -> dict[str, Any]:
    unsaid = {ReplayAssumption.NO_FAIR_SHARING} if change.fair_sharing else set()
    return {
        "start": demand.window.start,
        "end": demand.window.end,
        "works": len(demand.works),
        "rows": [to_builtins(row) for row in found.rows],
        "left_out": dict(demand.left_out),
        "assumptions": assumed_keys(
            (*demand.assumptions, *found.assumed_before),
            (*(one for one in demand.assumptions if one not in unsaid), *found.assumed_after),
        ),
    }


def note_requests(pk: int, requests: Sequence[int], *, now: datetime) -> bool:
    """Keep which quota requests were made of a simulation; False where others were before."""
    own = PolicySimulation.objects.filter(pk=pk, requested_at__isnull=True)
    return bool(own.update(requests=list(requests), requested_at=now))
