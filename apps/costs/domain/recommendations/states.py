"""The states of a recommendation, and how they follow one another."""

from enum import StrEnum


class RecommendationState(StrEnum):
    """`gone`: open, and no longer found. `done`: accepted, and its saving came."""

    OPEN = "open"
    ACCEPTED = "accepted"
    DISMISSED = "dismissed"
    DONE = "done"
    GONE = "gone"


DECIDABLE = (RecommendationState.OPEN, RecommendationState.ACCEPTED, RecommendationState.DISMISSED)
"""What somebody may still accept or dismiss; also to think again."""
FROZEN = (RecommendationState.ACCEPTED,)
"""Its figures stand still: they are what was promised."""


def found_again(state: RecommendationState) -> RecommendationState:
    """Return the state of one that the rules find (again).

    What was dismissed stays so, however often it is found; what went, or was done, is open again.
    """
    return (
        RecommendationState.OPEN
        if state in (RecommendationState.GONE, RecommendationState.DONE)
        else state
    )


def not_found(state: RecommendationState) -> RecommendationState:
    """Return the state of one that the rules do not find any more."""
    return RecommendationState.GONE if state is RecommendationState.OPEN else state
