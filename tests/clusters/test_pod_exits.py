"""Exits and checkpoints of pods: from what the API server sends, through the watch's decoder."""

from collections.abc import Mapping
from typing import Any

import msgspec

from apps.clusters.adapters.kubernetes.shapes import Decoders
from apps.clusters.domain.pods.history import updated
from apps.clusters.domain.pods.kube_objects import pod_record
from apps.clusters.domain.pods.ledger import CHECKPOINT_ANNOTATION, PodRecord, nearest_owner
from tests.clusters.kube_factories import T0, container, pod, rfc3339, running, status, terminated

BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}


def record(*statuses: Mapping[str, Any], saved: str = "", **fields: Any) -> PodRecord:
    """Return the record of a running pod with these container statuses."""
    names = [one["name"] for one in statuses]
    item = pod(
        bound=0,
        node="one",
        **{"phase": "Running", **fields},
        containers=[container(name) for name in names],
        statuses=statuses,
    )
    if saved:
        item["metadata"]["annotations"] = {CHECKPOINT_ANNOTATION: saved, "example.com/other": "x"}
    decoded: dict[str, Any] = Decoders("pods").item.decode(msgspec.json.encode(item))
    found = pod_record(decoded, owner=nearest_owner(decoded))
    assert found is not None
    return found


def exits(found: PodRecord) -> list[tuple[float, str]]:
    return [(one.at - T0, one.reason) for one in found.exits]


def saved_at(found: PodRecord) -> list[float]:
    return [at - T0 for at in found.checkpoints]


def test_a_restart_is_known_by_the_exit_before_it() -> None:
    killed = terminated(5, 100, "OOMKilled", 137)
    known = record(status(state=running(110), last=killed, restarts=1))
    assert exits(known) == [(100, "OOMKilled")]
    failed = terminated(110, 200, "", 1)
    backs_off = record(status(state=BACK_OFF, last=failed, restarts=1))
    # The status tells the last exit alone: earlier ones are kept.
    assert exits(updated(known, backs_off, at=T0 + 210)) == [(100, "OOMKilled"), (200, "Error")]
    assert exits(updated(known, known, at=T0 + 120)) == [(100, "OOMKilled")]


def test_the_end_of_a_pod_is_no_exit_of_its_own() -> None:
    state = terminated(5, 100, "Error", 1)
    alone = record(status(state=state))
    assert exits(alone) == [(100, "Error")]
    over = record(status(state=state), phase="Failed")
    assert (exits(over), over.end_reason) == ([], "Error")
    assert exits(updated(alone, over, at=T0 + 110)) == []


def test_a_container_that_ends_beside_another_one_ends_no_work() -> None:
    ended = terminated(5, 100, "Error", 1)
    assert exits(record(status("a", running(5)), status("b", ended))) == []
    assert exits(record(status("a", running(101)), status("b", ended))) == [(100, "Error")]


def test_what_the_deletion_of_a_pod_stops_has_not_failed() -> None:
    for code in (137, 143):
        stopped = status(state=terminated(5, 100, "Error", code))
        gone = record(stopped, grace_ends=120)
        assert exits(gone) == []
        over = record(stopped, grace_ends=120, phase="Failed")
        assert over.end_reason == "Failed"
    failed = record(status(state=terminated(5, 100, "Error", 1)), grace_ends=120, phase="Failed")
    assert failed.end_reason == "Error"
    killed = status(state=terminated(5, 100, "OOMKilled", 137))
    assert record(killed, grace_ends=120, phase="Failed").end_reason == "OOMKilled"


def test_checkpoints_are_read_from_the_annotation_the_last_of_each_run() -> None:
    first = running(5)
    known = record(status(state=first), saved=rfc3339(T0 + 60))
    assert saved_at(known) == [60]
    known = updated(known, record(status(state=first), saved=rfc3339(T0 + 90)), at=T0 + 91)
    assert saved_at(known) == [90]
    crashed = status(state=running(130), last=terminated(5, 120, "Error", 1), restarts=1)
    # The annotation stays as it is until the next run saves its state.
    known = updated(known, record(crashed, saved=rfc3339(T0 + 90)), at=T0 + 131)
    assert saved_at(known) == [90]
    known = updated(known, record(crashed, saved=rfc3339(T0 + 150)), at=T0 + 151)
    known = updated(known, record(crashed, saved=rfc3339(T0 + 170)), at=T0 + 171)
    assert saved_at(known) == [90, 170]
    # One that is taken off is known all the same, and rubbish is none.
    assert saved_at(updated(known, record(crashed), at=T0 + 180)) == [90, 170]
    assert saved_at(record(crashed, saved="yesterday")) == []
