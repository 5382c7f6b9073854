"""How collected hours ended, in lines of a command."""

from collections import Counter
from collections.abc import Sequence

from apps.clusters.domain.resources import counted
from apps.usage.domain.collection import CollectionState
from apps.usage.services import HourOutcome

_SHOWN_ERRORS = 5


def outcome_line(outcome: HourOutcome) -> str:
    """Return one hour in a line: when, state, coverage, and what to do where it went wrong."""
    words = [outcome.hour.isoformat(), outcome.state.value]
    if outcome.coverage_ratio is not None:
        words.append(f"coverage {outcome.coverage_ratio:.1%}")
    if outcome.error:
        words.append(outcome.error)
    return "  ".join(words)


def outcome_counts(outcomes: Sequence[HourOutcome]) -> str:
    """Return how many hours ended how, as `24 hours: 23 complete, 1 failed`."""
    states = Counter(outcome.state for outcome in outcomes)
    parts = [f"{states[state]} {state.value}" for state in CollectionState if states[state]]
    return ": ".join([counted(len(outcomes), "hour"), *([", ".join(parts)] if parts else [])])


def failed_outcomes(outcomes: Sequence[HourOutcome]) -> list[HourOutcome]:
    return [outcome for outcome in outcomes if outcome.state is CollectionState.FAILED]


def outcome_failures(outcomes: Sequence[HourOutcome]) -> str:
    """Return each different error once, with the hours it struck; empty when none failed."""
    struck: dict[str, list[HourOutcome]] = {}
    for outcome in failed_outcomes(outcomes):
        struck.setdefault(outcome.error, []).append(outcome)
    lines = []
    for error, hours in list(struck.items())[:_SHOWN_ERRORS]:
        first = min(outcome.hour for outcome in hours)
        lines.append(f"{len(hours)} of them, the first {first.isoformat()}: {error}")
    more = len(struck) - _SHOWN_ERRORS
    if more > 0:
        lines.append(f"and {more} other errors; Data quality shows each hour's own")
    return "\n".join(lines)
