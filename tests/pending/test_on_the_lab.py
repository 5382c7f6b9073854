"""The whole way on the lab's obstacle course: every cause comes, clears and is remembered."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile

import pytest

from apps.accounts.permissions import EVERYTHING
from apps.lab.course import site
from apps.pending.domain.causes import Cause
from apps.pending.models import CauseSpell, Episode
from apps.pending.selectors import SuggestionRow, pending_now
from tests.lab.applying import NotApplied, apply
from tests.lab.client import serving
from tests.lab.on_course import OnCourse, at_minute
from tests.lab.test_applying import running, soon
from tests.pending.watched_lab import WatchedLab, watched_lab

MINUTES = range(2, 120, 2)


@pytest.fixture(scope="module")
def on_course() -> OnCourse:
    return OnCourse()


@pytest.mark.django_db
def test_every_cause_comes_clears_and_is_remembered(on_course: OnCourse) -> None:
    with watched_lab(on_course, at_minute(0)) as lab:
        lab.look()
        for _ in MINUTES:
            lab.served.clock.advance(120)
            lab.look()
        seen = set(CauseSpell.objects.values_list("cause", flat=True))
        assert seen == {cause.value for cause in Cause}
        # Two hours on the cluster's events are gone; what they explained is not.
        lab.served.clock.advance(site.CYCLE_SECONDS)
        lab.look()
        lab.look()
        began = lab.now() - timedelta(seconds=site.CYCLE_SECONDS)
        old = Episode.objects.filter(since__lt=began - timedelta(minutes=5))
        assert old.exists()
        assert set(old.filter(until__isnull=True).values_list("name", flat=True)) == set()
        assert not old.filter(outcome="").exists()
        assert set(CauseSpell.objects.filter(episode__in=old).values_list("cause", flat=True)) == {
            cause.value for cause in Cause
        }


@dataclass(frozen=True, slots=True)
class Case:
    """A thing that waits at a minute of the cycle, and the suggestions to be followed together."""

    minute: int
    kind: str
    namespace: str
    name: str
    owner: str
    cause: str
    suggestions: tuple[SuggestionRow, ...]


def first_group(suggestions: Sequence[SuggestionRow]) -> tuple[SuggestionRow, ...]:
    """Return the best suggestion with all that is needed beside it."""
    return (
        *suggestions[:1],
        *takewhile(lambda one: one.text.startswith("Also needed:"), suggestions[1:]),
    )


def cases_of(lab: WatchedLab, minute: int, known: set[tuple[str, ...]]) -> Iterator[Case]:
    """Yield what waits now and was not seen waiting before."""
    for row in pending_now(lab.now(), visibility=EVERYTHING, page_size=500).rows:
        owner = row.workload.partition("/")[2]
        key = (row.kind, row.namespace, owner, row.cause, row.detail)
        if key not in known:
            known.add(key)
            group = first_group(row.suggestions)
            yield Case(minute, row.kind, row.namespace, row.name, owner, row.cause, group)


def follow(scenario: OnCourse, case: Case) -> str:
    """Do what is suggested; return what is wrong, empty where the thing then starts."""
    with serving(scenario, at_minute(case.minute)) as client:
        before = len(running(client, case.namespace, case.owner))
        try:
            for one in case.suggestions:
                apply(
                    client,
                    one.action,
                    one.change,
                    kind=case.kind,
                    namespace=case.namespace,
                    name=case.name,
                )
        except NotApplied as error:
            return f"cannot be applied: {error}"
        if any(soon(client, case.namespace, case.owner, before + 1)):
            return ""
    return "does not start"


@pytest.mark.django_db
def test_what_is_suggested_makes_it_start(on_course: OnCourse) -> None:
    cases: list[Case] = []
    known: set[tuple[str, ...]] = set()
    with watched_lab(on_course, at_minute(0)) as lab:
        for minute in MINUTES:
            lab.served.clock.advance(at_minute(minute) - lab.now().timestamp())
            lab.look()
            cases += cases_of(lab, minute, known)
    assert [case for case in cases if not case.suggestions] == []
    wrong = {
        (case.minute, case.kind, f"{case.namespace}/{case.name}", case.cause): (
            trouble,
            [one.text for one in case.suggestions],
        )
        for case in cases
        if (trouble := follow(on_course, case))
    }
    assert wrong == {}
