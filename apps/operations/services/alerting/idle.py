"""Workloads that hold GPUs and do nothing with them, unless somebody answered that they shall."""

from datetime import datetime
from urllib.parse import quote
from zoneinfo import ZoneInfo

from django.conf import settings

from apps.accounts.selectors import team_names
from apps.alerts.domain.idle import is_due
from apps.alerts.domain.thresholds import AlertKind, Threshold
from apps.alerts.selectors import answers_to
from apps.alerts.services import Measurement, NewAlert, evaluate
from apps.clusters.domain.quantities import gpus
from apps.usage.selectors import IdleWorkload, idle_workloads

_HOUR = 3600.0


def idle(now: datetime, zone: ZoneInfo) -> int:
    """Hold the hours without work of every workload that holds GPUs against the levels.

    One that was answered for is as one that works, until its answer is over.
    """
    known = idle_workloads(now)
    found = known.workloads
    names = team_names()
    answers = answers_to([_subject(one) for one in found])
    measured = []
    for one in found:
        hours = (one.until - one.since).total_seconds() / _HOUR
        due = is_due(
            idle_since=one.since,
            busy_since=one.worked_at,
            answer=answers.get(_subject(one)),
            now=now,
        )
        measured.append(Measurement(_said(one, hours, names), hours if due else 0.0))
    threshold = Threshold(AlertKind.IDLE, settings.ALERTS_IDLE_HOURS)
    prefixes = tuple(f"workload:{name}/" for name in known.clusters)
    return evaluate(
        threshold, measured, now=now, zone=zone, over=lambda subject: subject.startswith(prefixes)
    )


def _subject(one: IdleWorkload) -> str:
    return f"workload:{one.cluster}/{one.namespace}/{one.kind}/{one.name}"


def _said(one: IdleWorkload, hours: float, names: dict[int, str]) -> NewAlert:
    more = " or longer" if one.since_at_least else ""
    parts = (one.cluster, one.namespace, one.kind, one.name)
    return NewAlert(
        kind=AlertKind.IDLE,
        subject=_subject(one),
        team_id=one.team_id if one.team_id in names else None,
        title=f"{one.namespace}/{one.name} holds {gpus(one.gpus)} idle for {hours:.0f} hours",
        text=(
            f"{one.kind} {one.namespace}/{one.name} on {one.cluster} has done nothing with its "
            f"GPUs for {hours:.0f} hours{more}. Stop it, or answer in the portal until when it "
            "is kept, and why."
        ),
        path=f"/workloads/{'/'.join(quote(part, safe='') for part in parts)}/",
    )
