"""Policy simulations as pages and the API show them."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec
from django.db.models import Q, QuerySet
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.models import User
from apps.accounts.permissions import visibility_of
from apps.clusters.domain.columns import Column, Counts
from apps.planning.domain.policy_change import PolicyChange
from apps.planning.domain.policy_effects import QueueTimeChange, TeamEffect
from apps.planning.domain.policy_wording import (
    POLICY_ASSUMPTIONS,
    assumed_text,
    change_texts,
    unrequestable_texts,
)
from apps.planning.models import PolicySimulation

MOST_LISTED = 50


class SimulationState(StrEnum):
    """Where a simulation stands."""

    QUEUED = "queued"
    DONE = "done"
    FAILED = "failed"


class SimulatedTeamRow(Struct, frozen=True):
    """A team in a tier, replayed without and with a change."""

    team: Annotated[str, Column("Team", api_note="Null: the sum over teams.", empty_is_null=True)]
    tier: Annotated[str, Column("Tier", api_note="Null: the sum over tiers.", empty_is_null=True)]
    queue_time: Annotated[
        QueueTimeChange,
        Column(
            "Mean queue time",
            help="By GPU-hours pending: shorter, longer or same after the change.",
            values=QueueTimeChange,
        ),
    ]
    pending_gpu_hours: Annotated[float, Column("Pending", "GPU-h", "Without the change.")]
    pending_after_gpu_hours: Annotated[float, Column("Pending after", "GPU-h", "With the change.")]
    wait_p95_seconds: Annotated[
        float | None,
        Column("p95 queue time", "s", "Without the change.", api_note="Null where none started."),
    ]
    wait_p95_after_seconds: Annotated[float | None, Column("p95 after", "s", "With the change.")]
    allocated_gpu_hours: Annotated[float, Column("Allocated", "GPU-h", "Without the change.")]
    allocated_after_gpu_hours: Annotated[
        float, Column("Allocated after", "GPU-h", "With the change.")
    ]
    freed_gpu_hours: Annotated[
        float, Column("Freed", "GPU-h", "Allocation that the idle limit ends.")
    ]


def team_row(one: TeamEffect) -> SimulatedTeamRow:
    """Return an effect as lists show it."""
    was, now = one.before, one.after
    return row_from(
        SimulatedTeamRow,
        one,
        pending_gpu_hours=was.unmet_gpu_hours,
        pending_after_gpu_hours=now.unmet_gpu_hours,
        wait_p95_seconds=was.p95_seconds,
        wait_p95_after_seconds=now.p95_seconds,
        allocated_gpu_hours=was.allocated_gpu_hours,
        allocated_after_gpu_hours=now.allocated_gpu_hours,
    )


class SimulationReport(Struct, frozen=True):
    """A simulation of policies.

    `effects` are empty until it is done. `requests` are the quota requests that were made of it.
    """

    schema: ClassVar[str] = "PolicySimulation"

    pk: Annotated[int, Column("Simulation", key="id")]
    texts: Annotated[tuple[str, ...], Column("Changes", key="changes", help="In words.")]
    cluster: Annotated[str, Column("Cluster")]
    author: Annotated[str, Column("Author")]
    state: Annotated[SimulationState, Column("State", values=SimulationState)]
    created_at: Annotated[datetime, Column("Created")]
    change: Annotated[PolicyChange, Column(api=False)]
    start: Annotated[datetime | None, Column(help="Start of what is replayed.")]
    end: Annotated[datetime | None, Column(help="End of what is replayed.")]
    computed_at: Annotated[datetime | None, Column("Computed")]
    works: Annotated[int, Column(help="Workloads that are replayed.")]
    effects: Annotated[tuple[TeamEffect, ...], Column(api=False)]
    left_out: Annotated[Counts, Column(help="Pods that could not be replayed, by reason.")]
    assumptions: Annotated[tuple[str, ...], Column(help="What the replays take for granted.")]
    error: Annotated[str, Column(help="Why it failed.", empty_is_null=True)]
    requests: Annotated[tuple[int, ...], Column(help="Quota requests that were made of it.")]
    unrequestable: Annotated[
        tuple[str, ...], Column(help="Changes that cannot become quota requests, in words.")
    ]

    def team_rows(self) -> list[SimulatedTeamRow]:
        """Return the effects on teams and tiers, sums first."""
        return [team_row(one) for one in self.effects]


def simulation_reports(user: User) -> list[SimulationReport]:
    """Return the newest simulations that a reader may see, without their rows, newest first.

    Their own, and for who sees everything all of them: limits name namespaces. Two queries.
    """
    # A simulation has a row for each team and tier, which a list does not show.
    rows = _seen_by(user).defer("rows").order_by("-pk")[:MOST_LISTED]
    return [_report(row, ()) for row in rows]


def simulation_report(pk: int, user: User) -> SimulationReport | None:
    """Return one simulation with its rows; None where there is none for the reader."""
    row = _seen_by(user).filter(pk=pk).first()
    return None if row is None else _report(row, row.rows)


def _seen_by(user: User) -> QuerySet[PolicySimulation]:
    rows = PolicySimulation.objects.select_related("cluster")
    # Limits name namespaces of the author, which others may not see.
    own = Q(author=user.username)
    return rows.filter(Q() if visibility_of(user).everything else own)


def _report(row: PolicySimulation, effects: Sequence[object]) -> SimulationReport:
    change = msgspec.convert(row.change, PolicyChange)
    state = SimulationState.FAILED if row.error else SimulationState.QUEUED
    if row.computed_at is not None and not row.error:
        state = SimulationState.DONE
    known = map(assumed_text, row.assumptions)
    return row_from(
        SimulationReport,
        row,
        cluster=row.cluster.name,
        state=state,
        change=change,
        texts=tuple(change_texts(change)),
        effects=tuple(msgspec.convert(effects, list[TeamEffect])),
        assumptions=(*POLICY_ASSUMPTIONS, *known) if row.assumptions else (),
        requests=tuple(row.requests),
        unrequestable=tuple(unrequestable_texts(change)),
    )
