"""How long events are kept: while they explain something that is there."""

from typing import Any

import pytest

from apps.clusters.domain.observed.objects import ControllerSnapshot, ObservedKind
from apps.clusters.services.watch.observed_objects import KEEP_SECONDS, EventStore, ObjectStore
from tests.clusters.kube_factories import T0, rfc3339

SUBJECT, EVENT = "u-serve", (ObservedKind.EVENT, "e")
TOLD = T0


def told(reason: str, at: float = TOLD) -> dict[str, Any]:
    time = rfc3339(at)
    return {
        "metadata": {"uid": "e", "namespace": "team", "name": "e", "creationTimestamp": time},
        "involvedObject": {"kind": "StatefulSet", "name": "serve", "uid": SUBJECT},
        "reason": reason,
        "message": "exceeded quota",
        "firstTimestamp": time,
        "lastTimestamp": time,
    }


def stores() -> tuple[ObjectStore, EventStore]:
    """Return a store in which the subject is, and the store of its events."""
    store = ObjectStore()
    body = ControllerSnapshot(created=TOLD - 60, wanted=3, pods=3)
    store.apply(ObservedKind.STATEFUL_SET, SUBJECT, ("team", "serve"), body, TOLD - 60)
    return store, EventStore(store, lambda uid: False)


@pytest.mark.parametrize(
    ("reason", "later", "kept"),
    [
        pytest.param("FailedCreate", KEEP_SECONDS - 1, True, id="a try that failed just now"),
        pytest.param("FailedCreate", KEEP_SECONDS + 1, False, id="a try that failed long ago"),
        pytest.param("FailedScheduling", KEEP_SECONDS * 24, True, id="what holds until it is gone"),
    ],
)
def test_that_a_pod_could_not_be_made_is_kept_for_an_hour(
    reason: str, later: float, *, kept: bool
) -> None:
    store, events = stores()
    events.apply(told(reason), TOLD)
    assert EVENT in store
    events.settle(TOLD + later)
    assert (EVENT in store) is kept


def test_a_try_that_failed_again_is_kept_for_another_hour() -> None:
    store, events = stores()
    events.apply(told("FailedCreate"), TOLD)
    events.apply(told("FailedCreate", TOLD + 1800), TOLD + 1800)
    events.settle(TOLD + KEEP_SECONDS + 1)
    assert EVENT in store
