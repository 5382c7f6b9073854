"""Idle workloads that somebody answered for: kept until a day, for a reason."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from apps.alerts.domain.alerts import IdleChoice
from apps.alerts.selectors import answers_to

Workload = tuple[str, str, str]
"""Cluster, namespace, `Kind/name`."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Who keeps a workload though it is idle, before which instant, and why."""

    until: datetime
    reason: str
    person: str


def kept_workloads(workloads: Iterable[Workload], *, now: datetime) -> dict[Workload, Kept]:
    """Return those whose last answer keeps them at `now`. One query, none without workloads.

    Ask only for workloads that the reader sees: what was answered is as they are.
    """
    subjects = {f"workload:{'/'.join(one)}": one for one in workloads}
    if not subjects:
        return {}
    return {
        subjects[subject]: Kept(answer.until, answer.reason, answer.person)
        for subject, answer in answers_to(subjects).items()
        if answer.choice is IdleChoice.KEEP and answer.until is not None and now < answer.until
    }
