"""Computing what follows from collected hours.

Each step asks its own room for what is due, so that nothing is done twice, in whatever order and
by however many processes it is asked for. A step that fails is left to beat's next round.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db import InterfaceError, OperationalError, connection

from apps.clusters.ports import SourceRejected, SourceUnavailable
from apps.clusters.services import active_clusters, store_device_states
from apps.costs import services as costs
from apps.costs.services import note_money_alerts, store_recommendations
from apps.fairness import services as fairness
from apps.goodput import services as goodput
from apps.operations.services.alerting import gather_alerts
from apps.operations.services.doctor.diagnosis import run_doctor
from apps.pending import services as pending
from apps.planning import services as planning
from apps.quota_requests import services as changes
from apps.quotas import services as quotas
from apps.usage import services as usage

logger = logging.getLogger(__name__)

Clock = Callable[[], datetime]

_MOST_ROUNDS = 200
"""Of a step that does a part at a time; it is far more than years of hours need."""
_ALL_HOURS = 100_000


class DerivingStep(NamedTuple):
    """What one room computes, as of a time; it returns how much there was to do.

    `partly` does a part of what is due and is asked again until nothing is.
    """

    name: str
    run: Callable[[datetime], int]
    partly: bool = False


class StepRun(NamedTuple):
    """A step that ran: how much it did and how long it took; `done` is None where it failed."""

    step: str
    done: int | None
    seconds: float


def _store_device_states(now: datetime) -> int:
    return sum(store_device_states(pk, now) for pk in active_clusters())


def _refresh_pending(now: datetime) -> int:
    return sum(pending.refresh(pk, now=now) for pk in active_clusters())


def _take_in_pods(now: datetime) -> int:
    return pending.take_in_pods(active_clusters(), now=now)


_OF_NOW: Sequence[DerivingStep] = (
    DerivingStep("pending workloads", _refresh_pending),
    DerivingStep("pending history", lambda now: pending.roll_days(now=now)),
    DerivingStep("GPUs", _store_device_states),
    DerivingStep("data quality", lambda now: len(run_doctor(now).findings)),
)
_OF_HOURS: Sequence[DerivingStep] = (
    DerivingStep("days", lambda now: usage.roll_days(now=now)),
    DerivingStep("costs", lambda now: costs.price_hours(now=now), partly=True),
    DerivingStep("pending pods", _take_in_pods),
    DerivingStep("fairness", lambda now: fairness.compute_hours(now=now, at_most=_ALL_HOURS)),
    DerivingStep("fairness by day", lambda now: fairness.roll_days(now=now)),
    DerivingStep("quotas", lambda now: quotas.roll_hours(now=now), partly=True),
    DerivingStep("slots", lambda now: planning.store_slots(now=now), partly=True),
)
_OF_HISTORY: Sequence[DerivingStep] = (
    DerivingStep("recommendations", lambda now: store_recommendations(now=now)),
    DerivingStep("capacity plan", lambda now: planning.plan_capacity(now=now)),
    DerivingStep("losses", lambda now: goodput.keep_losses(now=now)),
    DerivingStep("reliability", lambda now: goodput.judge_nodes(now=now)),
    DerivingStep("budgets", lambda now: quotas.note_budget_alerts(now=now)),
    DerivingStep("budgets in money", lambda now: note_money_alerts(now=now)),
    DerivingStep("audit", lambda now: int(bool(changes.check_audit_when_due(now=now)))),
    DerivingStep("alerts", lambda now: gather_alerts(now=now)),
)

_OF_REPLAYS: Sequence[DerivingStep] = (
    DerivingStep("capacity plan", lambda now: planning.plan_capacity(now=now, anew=True)),
    DerivingStep("backtest", lambda now: planning.backtest_clusters(now=now, anew=True)),
    DerivingStep("layouts", lambda now: planning.advise_layouts(now=now, anew=True)),
    DerivingStep(
        "replayed recommendations", lambda now: planning.replay_recommendations(now=now, anew=True)
    ),
)


def derive_now(clock: Clock) -> list[StepRun]:
    """Look at what is there now, for which no hour need be collected."""
    return list(run_steps(_OF_NOW, clock))


def derive_after_hours(clock: Clock) -> list[StepRun]:
    """Compute what follows from the hours of a batch that was just collected."""
    return list(run_steps(_OF_HOURS, clock))


def derive_after_history(clock: Clock) -> list[StepRun]:
    """Compute all that follows from a history: its hours, and what looks at many days together."""
    return list(run_steps((*_OF_NOW, *_OF_HOURS, *_OF_HISTORY), clock))


def derive_replays(clock: Clock) -> list[StepRun]:
    """Replay what was recorded of the last weeks, also where that was done today already.

    Beat does it once a day, and again as more days are known. After all were collected it is not
    put off until beat's next round.
    """
    return list(run_steps(_OF_REPLAYS, clock))


def run_steps(steps: Sequence[DerivingStep], clock: Clock) -> Iterator[StepRun]:
    """Run steps one after another; one that fails keeps no other from it."""
    for step in steps:
        started = time.monotonic()
        done = _done(step, clock)
        yield StepRun(step.name, done, time.monotonic() - started)


def _done(step: DerivingStep, clock: Clock) -> int | None:
    """Run a step until nothing is due; None where it failed, which keeps no other from running."""
    done = 0
    try:
        for _ in range(_MOST_ROUNDS if step.partly else 1):
            more = step.run(clock())
            done += more
            if not more:
                break
    except (SourceUnavailable, SourceRejected) as error:
        logger.warning("%s: %s", step.name, error)
        return None
    except OperationalError as error:
        if not connection.is_usable():
            raise  # the database is away
        # SQLite has one writer: a locked database is no fault of the step, its next run does it.
        logger.warning("%s gave way to another writer: %s", step.name, error)
        return None
    # Without a connection each further step would fail, with a traceback of its own.
    except InterfaceError:
        raise
    except Exception:
        logger.exception("%s could not be computed", step.name)
        return None
    return done
