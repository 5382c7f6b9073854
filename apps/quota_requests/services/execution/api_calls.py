"""Asking the API server of a cluster, under the account that may change quotas."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from django.conf import settings

from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster
from apps.clusters.ports import QuotaWriter, SourceRejected, Unanswered
from apps.quota_requests.domain.execution.kube_requests import (
    KUEUE,
    VOLCANO,
    KubeRequest,
    patch_request,
)
from apps.quota_requests.domain.execution.outcomes import (
    Meaning,
    ServerAnswer,
    ServerStep,
    Silence,
    Then,
    answer_of,
    meaning,
)
from apps.quota_requests.domain.execution.patches import Operation, is_object, live_amount
from apps.quota_requests.domain.quantities import Quantity
from apps.quota_requests.domain.targets import QueueCell, QuotaKeyTarget, Target
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.permissions import is_written_to
from apps.quota_requests.selectors.snapshots import preview_in

_SILENCES = {Unanswered.UNSENT: Silence.UNSENT, Unanswered.LOST: Silence.LOST}
KUEUE_GROUP = "/apis/kueue.x-k8s.io"
Object = Mapping[str, Any]

NO_WRITER = (
    "The portal has no account that may change quotas in this cluster (kubernetes.writer in the "
    "catalog): use GitOps mode."
)


RETIRED = "Cluster {} is no longer in the catalog: nothing is changed in it."
BY_COMMIT_ONLY = "Here quotas are changed by commits alone: use GitOps mode."
UNUSABLE = "The account that may change quotas in this cluster cannot be used: it has to be mended."


class NoWriter(Exception):
    """A cluster's quotas cannot be changed by the portal; the message says why.

    `detail` has what is wrong with the account, for administrators.
    """

    def __init__(self, sentence: str, *, detail: str = "") -> None:
        super().__init__(sentence)
        self.detail = detail


class VersionUnknown(Exception):
    """Under which version the cluster has an object is not known, so that nothing is written.

    `lasting`: the cluster has none that the portal knows; else it could not be asked.
    """

    def __init__(self, sentence: str, *, lasting: bool) -> None:
        super().__init__(sentence)
        self.lasting = lasting


def why_not(cluster: Cluster) -> str:
    """Return why the portal writes nothing to a cluster; empty where it may."""
    if settings.CHANGES_GITOPS_ONLY:
        return BY_COMMIT_ONLY
    if not cluster.active:
        return RETIRED.format(cluster.name)
    return "" if is_written_to(cluster) else NO_WRITER


@contextmanager
def writer_of(cluster: Cluster, clients: ClusterClients | None = None) -> Iterator[QuotaWriter]:
    """Yield the way to change a cluster's quotas. Raises NoWriter."""
    try:
        writer = (clients or ClusterClients()).writer(cluster)
    except SourceRejected as error:
        raise NoWriter(UNUSABLE, detail=str(error)) from error
    if writer is None:
        raise NoWriter(NO_WRITER)
    try:
        yield writer
    finally:
        writer.close()


def ask(writer: QuotaWriter, request: KubeRequest) -> tuple[ServerAnswer, Object]:
    """Send a request; return the answer and its object, empty where none came."""
    reply = writer.send(
        request.method,
        request.path,
        query=request.query,
        headers=request.headers,
        body=request.body,
    )
    if reply.unanswered is not None:
        return ServerAnswer(silence=_SILENCES[reply.unanswered]), {}
    body = reply.body if isinstance(reply.body, Mapping) else {}
    return answer_of(
        reply.status, body, retry_after=reply.retry_after, warnings=reply.warnings
    ), body


def ask_for(
    writer: QuotaWriter, request: KubeRequest, target: Target
) -> tuple[ServerAnswer, Object]:
    """Send a request about a target; a yes without the target's object is strange, and empty."""
    answer, body = ask(writer, request)
    if answer.is_yes and not is_object(target, body):
        return replace(answer, strange=True), {}
    return answer, body


def rehearse(
    writer: QuotaWriter,
    target: Target,
    patch: Sequence[Operation],
    *,
    wanted: Quantity,
    version: str,
) -> Meaning:
    """Try a patch without making it; a yes that would leave another amount is a no."""
    request = patch_request(target, patch, dry_run=True, version=version)
    answer, body = ask_for(writer, request, target)
    found = meaning(answer, ServerStep.DRY_RUN)
    made = live_amount(target, body)
    if found.then is not Then.GO_ON or made == wanted:
        return found
    return Meaning(Then.FAILED, f"A rule of the cluster would make {made} of it, not {wanted}.")


def served_version(writer: QuotaWriter, target: Target, *, last: str = "") -> str:
    """Return under which version a target's kind is served; empty for what has but one.

    Only Kueue has had more than one. `last` is the version under which the object was seen last:
    it holds where the cluster does not tell now. Raises VersionUnknown.
    """
    if not isinstance(target, QueueCell):
        return "" if isinstance(target, QuotaKeyTarget) else VOLCANO[0]
    request = KubeRequest("GET", KUEUE_GROUP, headers={"Accept": "application/json"})
    answer, body = ask(writer, request)
    if answer.status == 404:
        raise VersionUnknown("The cluster does not have Kueue.", lasting=True)
    if answer.is_yes and isinstance(body.get("versions"), list):
        return version_in(body)
    if last in KUEUE:
        return last
    raise VersionUnknown(
        "Which version of Kueue the cluster has could not be found out; nothing is written to it "
        "until that is known.",
        lasting=False,
    )


def version_in(group: Object) -> str:
    """Return the best version of Kueue in what discovery said. Raises VersionUnknown."""
    listed = group.get("versions")
    offered = {
        one.get("version")
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, Mapping)
    }
    found = next((version for version in KUEUE if version in offered), "")
    if not found:
        known = " or ".join(KUEUE)
        raise VersionUnknown(f"The cluster does not offer Kueue as {known}.", lasting=True)
    return found


def last_version(request: ChangeRequest) -> str:
    """Return the version under which the object of a request was seen when it was handed in."""
    preview = preview_in(request)
    return preview.api_version.rpartition("/")[2] if preview else ""


def is_gone(answer: ServerAnswer) -> bool:
    """Say whether a server said that the object is not there, and not a proxy in its place."""
    return answer.status == 404 and answer.reason == "NotFound"
