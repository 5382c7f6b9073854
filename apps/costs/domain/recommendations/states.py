"""The states of a recommendation, and how they follow one another."""

from enum import StrEnum


class State(StrEnum):
    """`gone`: open, and no longer found. `done`: accepted, and its saving came."""

    OPEN = "open"
    ACCEPTED = "accepted"
    DISMISSED = "dismissed"
    DONE = "done"
    GONE = "gone"


DECIDABLE = (State.OPEN, State.ACCEPTED, State.DISMISSED)
"""What somebody may still accept or dismiss; also to think again."""
FROZEN = (State.ACCEPTED,)
"""Its figures stand still: they are what was promised."""


def found_again(state: State) -> State:
    """Return the state of one that the rules find (again).

    What was dismissed stays so, however often it is found; what went, or was done, is open again.
    """
    return State.OPEN if state in (State.GONE, State.DONE) else state


def not_found(state: State) -> State:
    """Return the state of one that the rules do not find any more."""
    return State.GONE if state is State.OPEN else state
