"""A policy simulation as quota requests: one draft for each limit that it changes."""

from datetime import datetime

from django.db import transaction

from apps.planning.selectors import SimulationReport, SimulationState
from apps.planning.services import note_requests
from apps.quota_requests.permissions import Actor
from apps.quota_requests.services.requests import RequestInput, RequestRefused, create
from apps.quotas.domain.keys import QuotaRef


def request_limits(
    simulation: SimulationReport, *, reason: str, team: str, by: Actor, now: datetime
) -> list[int]:
    """Write a draft for each limit of a simulation and return their numbers; all of them or none.

    `team` asks where several use a queue. Other parts of a simulation are no quota, and stay out.
    Raises RequestRefused, TargetRefused and NotAllowed as `create` does.
    """
    if simulation.state != SimulationState.DONE:
        raise RequestRefused("This simulation has no result.")
    if not simulation.change.limits:
        raise RequestRefused("This simulation changes no limit.")
    with transaction.atomic():
        made = [
            create(
                RequestInput(
                    ref=QuotaRef(one.source, one.namespace, one.name, one.key, simulation.cluster),
                    # 15 digits: as many of a decimal as every float holds.
                    before=f"{one.before:.15g}",
                    after=f"{one.after:.15g}",
                    reason=reason,
                    team=one.team or team or None,
                ),
                by=by,
                now=now,
            )
            for one in simulation.change.limits
        ]
        # In the same transaction: of two people at once, the drafts of the later are undone.
        if not note_requests(simulation.pk, made, now=now):
            raise RequestRefused("Quota requests were made of this simulation already.")
    return made
