"""The whole way on the simulator's fault scenarios: every cause comes, clears and is remembered."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import takewhile

import pytest
from msgspec import Struct

from apps.accounts.permissions import EVERYTHING
from apps.pending.domain.diagnosis import FROM_SERIES, Cause
from apps.pending.models import CauseInterval, Episode
from apps.pending.selectors import PendingPage, PendingRow, SuggestionRow, pending_now
from simulator.fault_scenarios import site
from tests.pending.watched_lab import WatchedLab, watched_lab
from tests.simulator.applying import Kube, NotApplied, apply
from tests.simulator.client import Served, serving
from tests.simulator.only_faults import OnlyFaults, at_minute, faults_once
from tests.simulator.test_applying import LATER_SECONDS, running

pytestmark = pytest.mark.long

MINUTES = range(2, 120, 2)


@pytest.fixture(scope="module")
def only_faults() -> OnlyFaults:
    return faults_once()


class Case(Struct, frozen=True):
    """A thing that waits at a minute of the cycle, and the suggestions to be followed together."""

    minute: int
    row: PendingRow
    suggestions: tuple[SuggestionRow, ...]

    @property
    def owner(self) -> str:
        return self.row.workload.partition("/")[2]

    @property
    def only_waits(self) -> bool:
        """Say whether nothing is to be done but to wait."""
        return [one.action for one in self.suggestions] == ["wait"]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(one.text for one in self.suggestions)

    def __str__(self) -> str:
        row = self.row
        named = f"{self.minute} {row.kind} {row.namespace}/{row.name}: {row.cause}, {row.detail}"
        return "\n  ".join([named, *self.texts])


def first_group(suggestions: Sequence[SuggestionRow]) -> tuple[SuggestionRow, ...]:
    """Return the best suggestion with all that is needed beside it."""
    return (
        *suggestions[:1],
        *takewhile(lambda one: one.text.startswith("Also needed:"), suggestions[1:]),
    )


def cases_of(lab: WatchedLab, minute: int, known: set[tuple[str, ...]]) -> Iterator[Case]:
    """Yield what waits now and was not seen pending for the same reason before."""
    for row in pending_now(lab.now(), visibility=EVERYTHING, page=PendingPage(size=500)).rows:
        key = (row.kind, row.namespace, row.workload, row.cause, row.detail)
        if key not in known:
            known.add(key)
            yield Case(minute, row, first_group(row.suggestions))


def follow(scenario: OnlyFaults, case: Case) -> str:
    """Do what is suggested; return what is wrong, empty where the thing then starts."""
    row = case.row
    with serving(scenario, at_minute(case.minute)) as client:
        before = started(client, case)
        try:
            for one in case.suggestions:
                thing = {"kind": row.kind, "namespace": row.namespace, "name": row.name}
                apply(client, one.action, one.change, **thing)
        except NotApplied as error:
            return f"cannot be applied: {error}"
        for seconds in LATER_SECONDS:
            client.clock.advance(seconds)
            if started(client, case) - before:
                return ""
    return "does not start"


def started(client: Served, case: Case) -> set[str]:
    """Return the names of the running pods of a thing; of a claim its own once it is allocated."""
    row = case.row
    if row.kind != "ResourceClaim":
        return set(running(client, row.namespace, case.owner))
    claim = Kube(client).get(row.kind, row.namespace, row.name)
    return {row.name} if "allocation" in claim.get("status", {}) else set()


def came_to_something(case: Case) -> bool:
    """Say whether what was only to wait started within ten minutes, or waits for another reason."""
    intervals = CauseInterval.objects.filter(episode=case.row.id).order_by("start", "pk")
    mine = intervals.get(cause=case.row.cause, detail=case.row.detail)
    in_time = mine.end is not None and mine.end <= mine.start + timedelta(minutes=10)
    episode = Episode.objects.get(pk=case.row.id)
    return in_time and (mine.end != episode.until or episode.outcome == "started")


@pytest.mark.django_db
def test_every_cause_comes_clears_and_is_remembered_and_suggestions_help(
    only_faults: OnlyFaults,
) -> None:
    cases: list[Case] = []
    known: set[tuple[str, ...]] = set()
    with watched_lab(only_faults, at_minute(0)) as lab:
        for minute in MINUTES:
            lab.served.clock.advance(at_minute(minute) - lab.now().timestamp())
            lab.look()
            cases += cases_of(lab, minute, known)
        assert [str(case) for case in cases if not case.suggestions] == []
        patient = [case for case in cases if case.only_waits]
        assert [str(case) for case in patient if not came_to_something(case)] == []
        check_remembered(lab)
    # What is asked for the same thing of one workload, as of a claim and its pod, is done once.
    wishes = {(c.minute, c.row.workload, c.texts): c for c in cases if not c.only_waits}
    troubles = {str(case): follow(only_faults, case) for case in wishes.values()}
    assert {name: trouble for name, trouble in troubles.items() if trouble} == {}


def check_remembered(lab: WatchedLab) -> None:
    """Every cause came; two hours on events are gone, and what they explained is not."""
    watched = {cause.value for cause in Cause} - {cause.value for cause in FROM_SERIES}
    assert set(CauseInterval.objects.values_list("cause", flat=True)) == watched
    lab.served.clock.advance(site.CYCLE_SECONDS)
    lab.look()
    lab.look()
    began = lab.now() - timedelta(seconds=site.CYCLE_SECONDS)
    old = Episode.objects.filter(since__lt=began - timedelta(minutes=5))
    assert old.exists()
    assert set(old.filter(until__isnull=True).values_list("name", flat=True)) == set()
    assert not old.filter(outcome="").exists()
    kept = CauseInterval.objects.filter(episode__in=old).values_list("cause", flat=True)
    assert set(kept) == watched
