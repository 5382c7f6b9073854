"""Asking the API server of a cluster, under the account that may change quotas."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from apps.changes.domain.kube_requests import KUEUE, VOLCANO, KubeRequest
from apps.changes.domain.outcomes import Answer, Silence, answer_of
from apps.changes.domain.targets import QueueCell, QuotaKey, Target
from apps.clusters.gateways import Doorway
from apps.clusters.models import Cluster
from apps.clusters.ports import QuotaWriter, SourceRejected, Unanswered

_SILENCES = {Unanswered.UNSENT: Silence.UNSENT, Unanswered.LOST: Silence.LOST}
_KUEUE_GROUP = "kueue.x-k8s.io"
Object = Mapping[str, Any]
Ask = Callable[[KubeRequest], tuple[Answer, Object]]

NO_WRITER = (
    "The portal has no account that may change quotas in this cluster (kubernetes.writer in the "
    "catalog): use GitOps mode."
)


class NoWriter(Exception):
    """A cluster's quotas cannot be changed by the portal; the message says why."""


def has_writer(cluster: Cluster) -> bool:
    """Say whether the catalog names an account that may change quotas of the cluster."""
    return bool((cluster.kubernetes or {}).get("writer"))


@contextmanager
def writer_of(cluster: Cluster, doorway: Doorway | None = None) -> Iterator[QuotaWriter]:
    """Yield the way to change a cluster's quotas. Raises NoWriter."""
    try:
        writer = (doorway or Doorway()).writer(cluster)
    except SourceRejected as error:
        raise NoWriter(str(error)) from error
    if writer is None:
        raise NoWriter(NO_WRITER)
    try:
        yield writer
    finally:
        writer.close()


def ask(writer: QuotaWriter, request: KubeRequest) -> tuple[Answer, Object]:
    """Send a request; return the answer and its object, empty where none came."""
    reply = writer.send(
        request.method,
        request.path,
        query=request.query,
        headers=request.headers,
        body=request.body,
    )
    if reply.unanswered is not None:
        return Answer(silence=_SILENCES[reply.unanswered]), {}
    body = reply.body if isinstance(reply.body, Mapping) else {}
    return answer_of(reply.status, body, retry_after=reply.retry_after), body


def served_version(writer: QuotaWriter, target: Target) -> str:
    """Return which version of a target's kind the server offers; empty for the newest known one.

    Only Kueue has had more than one.
    """
    if not isinstance(target, QueueCell):
        return "" if isinstance(target, QuotaKey) else VOLCANO[0]
    request = KubeRequest("GET", f"/apis/{_KUEUE_GROUP}", headers={"Accept": "application/json"})
    _, body = ask(writer, request)
    versions = body.get("versions")
    offered = {
        one.get("version")
        for one in (versions if isinstance(versions, list) else ())
        if isinstance(one, Mapping)
    }
    return next((version for version in KUEUE if version in offered), "")


def is_gone(answer: Answer) -> bool:
    """Say whether a server said that the object is not there, and not a proxy in its place."""
    return answer.status == 404 and answer.reason == "NotFound"
