"""Requests to the API server under the account that may change quotas, and dry runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster
from apps.clusters.ports import (
    ClusterSource,
    QuotaWriter,
    SourceRejected,
    SourceUnavailable,
    Unanswered,
)
from apps.quota_requests.domain.execution.executor import OtherOwner, other_owners
from apps.quota_requests.domain.execution.kube_requests import (
    KUEUE,
    VOLCANO,
    AfterAnswer,
    AnswerMeaning,
    KubeRequest,
    NoAnswer,
    ServerAnswer,
    ServerStep,
    answer_of,
    meaning,
    object_path,
    patch_request,
    read_request,
    said_once,
)
from apps.quota_requests.domain.execution.patches import (
    Object,
    Operation,
    PatchFile,
    PatchRefused,
    ValueChanged,
    is_object,
    live_amount,
    locate,
    patch_file,
    patch_for,
    uid_of,
)
from apps.quota_requests.domain.quantities import Quantity
from apps.quota_requests.domain.targets import QueueCell, QuotaKeyTarget, Target
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.permissions import is_written_to
from apps.quota_requests.selectors.requests import preview_in

_NO_ANSWERS = {Unanswered.UNSENT: NoAnswer.UNSENT, Unanswered.LOST: NoAnswer.LOST}
KUEUE_GROUP = "/apis/kueue.x-k8s.io"
LiveObject = Mapping[str, Any]

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
    if settings.REQUESTS_GITOPS_ONLY:
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


def ask(writer: QuotaWriter, request: KubeRequest) -> tuple[ServerAnswer, LiveObject]:
    """Send a request; return the answer and its object, empty where none came."""
    reply = writer.send(
        request.method,
        request.path,
        query=request.query,
        headers=request.headers,
        body=request.body,
    )
    if reply.unanswered is not None:
        return ServerAnswer(silence=_NO_ANSWERS[reply.unanswered]), {}
    body = reply.body if isinstance(reply.body, Mapping) else {}
    return answer_of(
        reply.status, body, retry_after=reply.retry_after, warnings=reply.warnings
    ), body


def ask_for(
    writer: QuotaWriter, request: KubeRequest, target: Target
) -> tuple[ServerAnswer, LiveObject]:
    """Send a request about a target; a yes without the target's object is strange, and empty."""
    answer, body = ask(writer, request)
    # A sign-in page answers 200 with HTML; a wrong rewrite answers with another object.
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
) -> AnswerMeaning:
    """Try a patch without making it; a yes that would leave another amount is a no."""
    request = patch_request(target, patch, dry_run=True, version=version)
    answer, body = ask_for(writer, request, target)
    found = meaning(answer, ServerStep.DRY_RUN)
    made = live_amount(target, body)
    # A dry run passes through mutating webhooks, so its answer shows what would be stored.
    if found.then is not AfterAnswer.GO_ON or made == wanted:
        return found
    return AnswerMeaning(
        AfterAnswer.FAILED, f"A rule of the cluster would make {made} of it, not {wanted}."
    )


def served_version(writer: QuotaWriter, target: Target, *, last: str = "") -> str:
    """Return under which version a target's kind is served; empty for what has but one.

    Only Kueue has had more than one. `last` is the version under which the object was seen last:
    it holds where the cluster does not tell now. Raises VersionUnknown.
    """
    if not isinstance(target, QueueCell):
        return "" if isinstance(target, QuotaKeyTarget) else VOLCANO[0]
    request = KubeRequest("GET", KUEUE_GROUP, headers={"Accept": "application/json"})
    answer, body = ask(writer, request)
    # Discovery of a missing API group is a plain 404, without a Status object.
    if answer.status == 404:
        raise VersionUnknown("The cluster does not have Kueue.", lasting=True)
    if answer.is_yes and isinstance(body.get("versions"), list):
        return version_in(body)
    # Discovery failed, not Kueue: the version of the submission is still served.
    if last in KUEUE:
        return last
    raise VersionUnknown(
        "Which version of Kueue the cluster has could not be found out; nothing is written to it "
        "until that is known.",
        lasting=False,
    )


def version_in(group: LiveObject) -> str:
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
    """Return the version under which the object of a request was seen at submission."""
    preview = preview_in(request)
    return preview.api_version.rpartition("/")[2] if preview else ""


def is_gone(answer: ServerAnswer) -> bool:
    """Say whether a server said that the object is not there, and not a proxy in its place."""
    return answer.status == 404 and answer.reason == "NotFound"


class DryRunResult(Struct, frozen=True):
    """What the cluster itself says: the live amount, a dry run, other owners, the patch files.

    `live` is None where it could not be read; `dry_run` is the sentence then, and
    `dry_run_passed` None. `dry_run_detail` has the words of servers and connections, which are
    for administrators. `api_version` is that under which the object was read, `uid` which of all
    of its name it was.
    """

    live: Quantity | None = None
    dry_run_passed: bool | None = None
    dry_run: str = ""
    owners: tuple[OtherOwner, ...] = ()
    patch_file: PatchFile | None = None
    revert_file: PatchFile | None = None
    dry_run_detail: str = ""
    api_version: str = ""
    uid: str = ""


def check(
    cluster: Cluster,
    target: Target,
    *,
    before: Quantity,
    after: Quantity,
    clients: ClusterClients | None = None,
) -> DryRunResult:
    """Read the object and try the change without making it. Raises nothing."""
    why = NoWriter(BY_COMMIT_ONLY)
    if not settings.REQUESTS_GITOPS_ONLY:
        try:
            with writer_of(cluster, clients) as writer:
                return _tried(writer, target, before, after)
        except VersionUnknown as unknown:
            return DryRunResult(dry_run=f"No dry run: {unknown}")
        except NoWriter as missing:
            why = missing
    return _read_only(lambda: read_by_watcher(cluster, target, clients), why, target, before, after)


def _tried(writer: QuotaWriter, target: Target, before: Quantity, after: Quantity) -> DryRunResult:
    version = served_version(writer, target)
    answer, live = ask_for(writer, read_request(target, version), target)
    read = meaning(answer, ServerStep.READ)
    if read.then is not AfterAnswer.GO_ON:
        return DryRunResult(dry_run=f"No dry run: {said_once(read)}", dry_run_detail=read.detail)
    found = _examined(target, live, before, after)
    if found.dry_run_passed is False:
        return found
    patch = patch_for(target, live, reviewed=before, wanted=after)
    return _after_dry_run(found, rehearse(writer, target, patch, wanted=after, version=version))


def _after_dry_run(found: DryRunResult, tried: AnswerMeaning) -> DryRunResult:
    passed = {AfterAnswer.GO_ON: True, AfterAnswer.FAILED: False}.get(tried.then)
    words = said_once(tried)
    if passed:
        warned = ", with a warning" if tried.detail else ""
        words = f"Dry run passed{warned}."
    return replace(found, dry_run_passed=passed, dry_run=words, dry_run_detail=tried.detail)


def _examined(target: Target, live: Object, before: Quantity, after: Quantity) -> DryRunResult:
    seen = DryRunResult(
        live=live_amount(target, live),
        owners=other_owners(target, live),
        api_version=str(live.get("apiVersion") or ""),
        uid=uid_of(live),
    )
    try:
        file = patch_file(target, live, reviewed=before, wanted=after)
    except ValueChanged as changed:
        return replace(seen, live=changed.live, dry_run_passed=False, dry_run=str(changed))
    except PatchRefused as refused:
        return replace(seen, dry_run_passed=False, dry_run=str(refused))
    back = patch_file(target, _with(target, live, after), reviewed=after, wanted=before)
    return replace(seen, patch_file=file, revert_file=back)


def _with(target: Target, live: Object, after: Quantity) -> Object:
    """Return the object as it will be, for the file that takes the change back."""
    steps = locate(target, live).pointer.split("/")[1:]
    replaced: Object = _replaced(live, steps, after.text)
    return replaced


def _replaced(item: Any, steps: Sequence[str], value: str) -> Any:
    if not steps:
        return value
    # In this order (RFC 6901): `~01` means `~1` and not a slash.
    name = steps[0].replace("~1", "/").replace("~0", "~")
    if isinstance(item, list):
        place = int(name)
        return [_replaced(one, steps[1:], value) if n == place else one
                for n, one in enumerate(item)]  # fmt: skip
    # Copies all the way down: the object as it was read is still needed.
    return {**item, name: _replaced(item[name], steps[1:], value)}


def _read_only(
    read: Callable[[], Object | None],
    why: NoWriter,
    target: Target,
    before: Quantity,
    after: Quantity,
) -> DryRunResult:
    """Read with the account that watches, where nothing may be written."""
    words, detail = f"No dry run: {why}", why.detail
    try:
        live = read()
    except VersionUnknown as unknown:
        return DryRunResult(dry_run=f"{words} {unknown}", dry_run_detail=detail)
    except (SourceUnavailable, SourceRejected) as error:
        said = f"{detail} {error}".strip()
        return DryRunResult(dry_run=f"{words} It could not be read either.", dry_run_detail=said)
    if live is None:
        return DryRunResult(dry_run=f"{words} The object is not there.", dry_run_detail=detail)
    found = _examined(target, live, before, after)
    return replace(found, dry_run=f"{words} {found.dry_run}".strip(), dry_run_detail=detail)


def read_by_watcher(
    cluster: Cluster, target: Target, clients: ClusterClients | None = None
) -> Object | None:
    """Return the object as the watching account reads it; None where it is not there.

    Raises SourceUnavailable, SourceRejected and VersionUnknown.
    """
    source = (clients or ClusterClients()).kubernetes(cluster)
    if source is None:
        raise SourceRejected("the catalog gives no account that reads this cluster")
    try:
        return _read(source, target)
    finally:
        source.close()


def _read(source: ClusterSource, target: Target) -> Object | None:
    """Return the object with no more than the account needs to read."""
    kind = {"kind": target.source.value}
    if not isinstance(target, QueueCell):
        live = source.get(object_path(target))
        return None if live is None else {**live, **kind}
    group = source.get(KUEUE_GROUP)
    if group is None:
        raise VersionUnknown("The cluster does not have Kueue.", lasting=True)
    version = version_in(group)
    live = source.get(object_path(target, version))
    named = {"apiVersion": f"{KUEUE_GROUP.removeprefix('/apis/')}/{version}"}
    return None if live is None else {**live, **kind, **named}
