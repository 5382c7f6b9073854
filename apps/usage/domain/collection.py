"""The states of an hour's collection."""

from enum import StrEnum


class CollectionState(StrEnum):
    """`waiting` is enqueued or at work; the other three are the outcome of the last attempt."""

    WAITING = "waiting"
    COMPLETE = "complete"
    PARTIAL = "partial"
    FAILED = "failed"
