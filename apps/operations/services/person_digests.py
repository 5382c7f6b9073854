"""What is said to one person alone, on their own channels: their week, and a cap exceeded."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings

from apps.accounts.domain.formats import day_words
from apps.accounts.models import User
from apps.accounts.permissions import visibility_of
from apps.alerts.domain.alerts import AlertKind, IdleChoice, Threshold
from apps.alerts.selectors import IdleFinding, readers_of
from apps.alerts.services import Measurement, NewAlert, evaluate, go_on, page_address
from apps.clusters.domain.resources import gpus
from apps.clusters.domain.window import Window
from apps.clusters.selectors import people_of
from apps.costs.selectors import (
    PersonWork,
    cap_text,
    has_metrics,
    held_now,
    is_over_cap,
    last_week,
    person_workloads,
)
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.selectors import FactsState

# The last hours of Sunday are collected in the first ones of Monday, late samples included.
_SETTLED = timedelta(hours=6)
_MOMENT = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_ANSWERS = (
    ("Keep it", IdleChoice.KEEP),
    ("Stop asking", IdleChoice.SILENCE),
    ("Release it", IdleChoice.RELEASE),
)


def gather_person_digests(now: datetime, zone: ZoneInfo) -> int:
    """Say to each person what their week was, once it is over; nothing where that is off."""
    if settings.PEOPLE is None:
        return 0
    week = last_week(now - _SETTLED, zone)
    number = int(week.end.timestamp())

    def read(position: int) -> tuple[Iterable[NewAlert], int]:
        if position >= number:
            return (), position
        found = (_digest(user, week, now, zone) for user in readers_of(AlertKind.DIGEST))
        return [said for said in found if said is not None], number

    return go_on("person digests", read, now=now, zone=zone)


def gather_over_cap(now: datetime, zone: ZoneInfo) -> int:
    """Say to each person that they hold more GPUs than one may; nothing where there is no cap."""
    people = settings.PEOPLE
    if people is None or people.cap_gpus is None:
        return 0
    cap = people.cap_gpus
    measured = [
        Measurement(_over_cap(user, held, cap), 1.0 if is_over_cap(held) else 0.0)
        for user in readers_of(AlertKind.CAP)
        for held in [held_now(people_of(user), visibility=visibility_of(user), now=now)]
    ]
    # A pod that ends and comes again around the cap is one alert a day.
    threshold = Threshold(AlertKind.CAP, (1.0,), again_after=_DAY)
    return evaluate(threshold, measured, now=now, zone=zone)


def _over_cap(user: User, held: float, cap: float) -> NewAlert:
    return NewAlert(
        kind=AlertKind.CAP,
        subject=f"person:{user.pk}",
        team_id=None,
        person_id=user.pk,
        # Logs of deliveries show titles: this one tells nothing of the work.
        title="Over cap",
        text=cap_text(held, cap),
        path="/my/workloads/#findings",
    )


def _digest(user: User, week: Window, now: datetime, zone: ZoneInfo) -> NewAlert | None:
    """Return the week of a person; None of who had no pod in it and has none now."""
    work = person_workloads(
        week,
        people=people_of(user),
        reader=user,
        visibility=visibility_of(user),
        now=now,
        zone=zone,
    )
    if not work.rows:
        return None
    first, last = (at.astimezone(zone).date() for at in (week.start, week.end - _MOMENT))
    return NewAlert(
        kind=AlertKind.DIGEST,
        subject=f"person:{user.pk}",
        team_id=None,
        person_id=user.pk,
        # Logs of deliveries show titles: this one tells nothing of the work.
        title=f"Your GPU week from {day_words(week.start, zone, now=now)}",
        text="\n".join(_sentences(work)),
        path=f"/my/workloads/?first={first}&last={last}",
        occasion=(f"{first}",),
    )


def _sentences(work: PersonWork) -> Iterable[str]:
    total = work.total
    if work.state is not FactsState.KNOWN:
        # Sums of no hour are zeros, and would praise or blame a week without data.
        yield "No hour of that week is collected: what you used is not known."
    else:
        yield from _usage_sentences(total)
    if work.waited:
        yield f"Pods that requested GPUs were pending for {hours(work.waited):,.0f} GPU-hours."
    yield f"Now: {gpus(work.running_gpus)} allocated."
    if work.is_over_cap and settings.PEOPLE is not None and settings.PEOPLE.cap_gpus is not None:
        yield f"That is more than the {gpus(settings.PEOPLE.cap_gpus)} that one person may hold."
    if work.fix:
        yield f"To fix: {work.fix}"
    yield from _how_to_answer(work)


def _usage_sentences(total: Amounts) -> Iterable[str]:
    allocated = f"{hours(total.allocated):,.0f} GPU-hours were allocated to you"
    # Of a week without metrics nothing was seen to be active, and nothing to be unused.
    is_known = has_metrics(total)
    if is_known:
        used = f"{hours(total.busy):,.0f} active, {hours(total.not_used):,.0f} unused"
        yield f"{allocated}: {used}."
    else:
        yield f"{allocated}. They have no metrics."
    if is_known and total.unmeasured:
        yield f"{hours(total.unmeasured):,.0f} GPU-hours have no metrics."


def _how_to_answer(work: PersonWork) -> Iterable[str]:
    """Say how to answer, with a link for each answer where the portal knows its address.

    A link opens a page with that answer on top, after signing in: mail scanners open links too,
    and must answer nothing.
    """
    asked = [one for one in work.findings if one.is_open]
    if not asked:
        return
    first = next((one for one in asked if _is_fix(one, work)), asked[0])
    links = [
        (label, page_address(f"/my/workloads/{first.alert_id}/?choice={choice}"))
        for label, choice in _ANSWERS
    ]
    if not all(address for _, address in links):
        yield "Answer on My workloads with one click: keep, stop asking or release."
        return
    yield f"Answer for {first.workload.partition('/')[2]}:"
    yield from (f"{label}: {address}" for label, address in links)
    if len(asked) > 1:
        yield f"{len(asked) - 1} more on My workloads."


def _is_fix(one: IdleFinding, work: PersonWork) -> bool:
    return work.fix.startswith(f"{one.workload.partition('/')[2]} is idle")
