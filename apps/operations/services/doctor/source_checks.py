"""Looking at the sources of a cluster, in the time that the doctor has; no database."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.credentials import Credential
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.tiers import TierRule
from apps.clusters.domain.window import SLOT_SECONDS, Window
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster
from apps.clusters.ports import (
    ClusterSource,
    MetricsSource,
    QuotaWriter,
    SourceRejected,
    SourceUnavailable,
)
from apps.clusters.services import discovered_sources
from apps.operations.adapters.metric_queries import answers
from apps.operations.domain.observations import (
    ANYTHING,
    READER_EXCESS,
    WRITER_EXCESS,
    ApiObservations,
    MetricsObservations,
    ObservedDevice,
    QuotaRow,
    Right,
    SourceTrouble,
    WriterRights,
    changing,
    explaining,
    needed,
)
from apps.operations.ports import ReviewsAccess, ShowsCredentials, TakesQuestions

DEADLINE_SECONDS = 45.0
# No object has this name: the answer tells only whether the account may look for it.
_ABSENT = "gpuportal-doctor"
_UNKNOWN_ACCOUNTS = ("HTTP 401", "system:anonymous")
"""Texts of refusals of an account that is not known or not shown: there no right is missing."""
_MUST_BE_REFUSED = b'{"metadata": {"annotations": {"gpuportal/doctor": "must be refused"}}}'
_POLICY = "ValidatingAdmissionPolicy"
QUEUES = "clusterqueues/"
_CLUSTER_WIDE = frozenset({"nodes", "namespaces", "resourceslices", "deviceclasses"})

# What a source may raise, and what unforeseen data makes Python raise: either way the other
# clusters are still looked at.
_FAILURES = (
    *(SourceUnavailable, SourceRejected),
    *(ArithmeticError, LookupError, TypeError, ValueError),
)

Found = TypeVar("Found")
logger = logging.getLogger(__name__)


class SourceAnswers(Struct, frozen=True):
    """What the sources of a cluster show; `pods` are those that kube-state-metrics knows."""

    metrics: MetricsObservations
    api: ApiObservations | None = None
    pods: Sequence[PodRecord] = ()


class WriterCheck(Struct, frozen=True):
    """A cluster whose writer is to be looked at.

    `quota` is the path of one of its ResourceQuotas, or a ClusterQueue as `clusterqueues/NAME`,
    in whichever version of Kueue the server has.
    """

    cluster: Cluster
    quota: str = ""


def check_writers(
    checks: Iterable[WriterCheck], *, clients: ClusterClients, deadline_seconds: float
) -> "list[WriterRights | None]":
    """Look at the accounts that change quotas, at the same time; None where there is none."""
    deadline = _Deadline(deadline_seconds)
    coming = [_in_thread(partial(_writer, clients, check)) for check in checks]
    return [_awaited(deadline, one) for one in coming]


def _awaited(deadline: "_Deadline", coming: "Future[WriterRights | None]") -> WriterRights | None:
    try:
        return deadline.result(coming)
    except _FAILURES as error:
        return WriterRights(trouble=_trouble(error))


def check_sources(
    clusters: Iterable[tuple[WriterCheck, Sequence[TierRule]]],
    *,
    clients: ClusterClients,
    now: datetime,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> list[SourceAnswers]:
    """Look at clusters at the same time, each with its tier rules; return answers in their order.

    A source that has not answered by the deadline counts as unavailable: it must not hide what
    others show.
    """
    deadline = _Deadline(deadline_seconds)
    observed_clusters = [_ClusterCheck(check, rules, clients, now) for check, rules in clusters]
    return [observed.seen(deadline) for observed in observed_clusters]


class _Deadline:
    """The deadline for all answers together, which are fetched one after the other."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def result(self, coming: "Future[Found]") -> Found:
        """Return what comes; raises what its source raised, SourceUnavailable when it is late."""
        try:
            return coming.result(max(0.0, self._until - time.monotonic()))
        except TimeoutError as error:
            raise SourceUnavailable(f"no answer within {self._seconds:g} s") from error


class _ClusterCheck:
    """The two sources of one cluster and its writer, asked at the same time."""

    def __init__(
        self, check: WriterCheck, rules: Sequence[TierRule], clients: ClusterClients, now: datetime
    ) -> None:
        cluster = check.cluster
        self._elsewhere = elsewhere = clients.accounts_elsewhere(cluster)
        self._metrics = _in_thread(lambda: _metrics(clients.metrics(cluster), now, rules))
        self._api: Future[ApiObservations | None] = _in_thread(
            lambda: _api(clients.kubernetes(cluster), rules, judged="reader" not in elsewhere)
        )
        self._writer = (
            None if "writer" in elsewhere else _in_thread(partial(_writer, clients, check))
        )

    def seen(self, deadline: _Deadline) -> SourceAnswers:
        pods: Sequence[PodRecord] = ()
        try:
            metrics, pods = deadline.result(self._metrics)
        except _FAILURES as error:
            metrics = MetricsObservations(trouble=_trouble(error))
        try:
            api = deadline.result(self._api)
        except _FAILURES as error:
            api = ApiObservations(trouble=_trouble(error))
        if api is not None:
            writer = _awaited(deadline, self._writer) if self._writer else None
            api = replace(api, writer=writer, elsewhere=self._elsewhere)
        return SourceAnswers(metrics, api, pods)


def _in_thread(call: Callable[[], Found]) -> "Future[Found]":
    """Run a call in a thread that ends with the process, so that a hung source blocks no other."""
    coming: Future[Found] = Future()

    def run() -> None:
        try:
            coming.set_result(call())
        # Whatever it is must reach the reader, who would else sit out the whole deadline.
        except BaseException as error:
            coming.set_exception(error)

    # No executor: Python joins its threads at exit, so a hung source would keep the command alive.
    threading.Thread(target=run, name="doctor", daemon=True).start()
    return coming


def _trouble(error: Exception) -> SourceTrouble:
    if isinstance(error, SourceUnavailable | SourceRejected):
        return SourceTrouble(str(error), passing=isinstance(error, SourceUnavailable))
    logger.error("the doctor met what it cannot read", exc_info=error)
    return SourceTrouble(
        f"the source shows something that cannot be read ({type(error).__name__}: {error}); the "
        "log has where: please report it",
        passing=False,
    )


# ---------------------------------------------------------------- metrics


def _metrics(
    source: MetricsSource, now: datetime, rules: Sequence[TierRule]
) -> tuple[MetricsObservations, Sequence[PodRecord]]:
    """Read the newest closed slot, which costs half of collecting an hour."""
    version = source.health().version
    # The slot that still runs has only part of its samples and pods.
    window = newest_slot(now)
    devices = source.devices(window)
    ledger = source.ledger(
        window,
        gpu_resources=sorted({resource for rule in rules for resource in rule.resources}),
        label_keys=sorted({key for rule in rules for key in rule.node_selector}),
    )
    quotas = [QuotaRow(q.namespace, q.quota, q.key, q.hard) for q in source.quotas(window).rows]
    asked = answers(source, time.time) if isinstance(source, TakesQuestions) else None
    return MetricsObservations(
        version=version,
        devices=observed_devices(devices.rows),
        interval_seconds=devices.scrape_interval_seconds,
        remarks=devices.findings_of(window.slots()),
        profile=devices.profile,
        kube_state=any(ledger.covered.values()) or bool(ledger.nodes or ledger.pods),
        nodes=ledger.nodes,
        quotas=quotas,
        answers=asked[0] if asked else None,
        unasked=asked[1] if asked else ("taints, clocks, copies and room on nodes",),
        credentials=_credentials(source),
    ), ledger.pods


def newest_slot(now: datetime) -> Window:
    """Return the newest half hour that was over at `now`."""
    end = now.timestamp() // SLOT_SECONDS * SLOT_SECONDS
    at = datetime.fromtimestamp(end, UTC)
    return Window(at - timedelta(seconds=SLOT_SECONDS), at)


def observed_devices(rows: Iterable[DeviceSlot]) -> list[ObservedDevice]:
    """Return each device of some rows once, by UUID and instance."""
    by_device: dict[tuple[str, str], list[DeviceSlot]] = defaultdict(list)
    for row in rows:
        by_device[row.uuid, row.gpu_instance].append(row)
    return [
        _observed_device(uuid, instance, some)
        for (uuid, instance), some in sorted(by_device.items())
    ]


def _observed_device(uuid: str, instance: str, rows: Sequence[DeviceSlot]) -> ObservedDevice:
    named = [row for row in rows if row.pod]
    return ObservedDevice(
        uuid=uuid,
        gpu_instance=instance,
        model=next((row.model for row in rows if row.model), ""),
        node=next((row.node for row in rows if row.node), ""),
        samples=sum(row.samples for row in rows),
        named=sum(row.samples for row in named),
        pods=len({(row.namespace, row.pod) for row in named}),
        activity=any(row.activity_sum is not None for row in rows),
        memory=any(row.memory_used_peak_mib is not None for row in rows),
        energy=any(row.energy_wh is not None for row in rows),
    )


# ---------------------------------------------------------------- the Kubernetes API


def _api(
    source: ClusterSource | None, rules: Sequence[TierRule], *, judged: bool
) -> ApiObservations | None:
    """Read what the API shows; of an account that is not `judged`, not what is its own."""
    if source is None:
        return None
    try:
        version = source.health().version
        denied = tuple(right for right in needed(rules) if not _may(source, right))
        kinds = discovered_sources(source, ()).kinds
        follow = explaining(kinds)
        unexplained = tuple(right for right in follow if not _may(source, right))
        # A refused list would end the whole check, and the missing right is reported anyway.
        labels = {} if any(right.resource == "nodes" for right in denied) else _labels(source)
        excess = tuple(_excess(source, READER_EXCESS)) if judged else ()
        signed = _credentials(source) if judged else ()
    finally:
        source.close()
    return ApiObservations(
        version=version,
        denied=denied,
        unexplained=unexplained,
        excess=excess,
        labels=labels,
        credentials=signed,
    )


def _credentials(source: object) -> tuple[Credential, ...]:
    """Return what is known of the credentials of a source; empty where it tells none."""
    return tuple(source.credentials()) if isinstance(source, ShowsCredentials) else ()


def _writer(clients: ClusterClients, check: WriterCheck) -> WriterRights | None:
    """Ask what the account that changes quotas may do; what fails here hides nothing else."""
    try:
        source = clients.writer_account(check.cluster)
        if source is None:
            return None
        try:
            served = discovered_sources(source, ()).kinds
            wanted = tuple(changing(served))
            allowed = {right: _reviewed(source, right) for right in wanted}
            excess = tuple(_excess(source, WRITER_EXCESS))
            signed = _credentials(source)
        finally:
            source.close()
        limited = _limited(clients.writer(check.cluster), _served(check.quota, served))
    except (SourceUnavailable, SourceRejected) as error:
        return WriterRights(trouble=_trouble(error))
    # What a server does not tell is not held against the account.
    return WriterRights(
        denied=tuple(r for r in wanted if allowed[r] is False),
        excess=excess,
        limited=limited,
        credentials=signed,
    )


def _served(quota: str, served: Iterable[str]) -> str:
    """Return the path of a quota; empty for a ClusterQueue where the server has none."""
    if not quota.startswith(QUEUES):
        return quota
    name = quota.removeprefix(QUEUES)
    return next((f"{path}/{name}" for path in served if path.endswith("/clusterqueues")), "")


def _limited(writer: QuotaWriter | None, quota: str) -> bool | None:
    """Say whether a policy refuses the writer to annotate a quota, which the portal never does.

    The server only says what it would do: nothing is changed. None where it cannot be told, as
    without a quota, or where something else refused it.
    """
    if writer is None or not quota:
        return None
    try:
        reply = writer.send(
            "PATCH",
            quota,
            query={"dryRun": "All", "fieldManager": "gpuportal"},
            headers={"Content-Type": "application/merge-patch+json", "Accept": "application/json"},
            body=_MUST_BE_REFUSED,
        )
    finally:
        writer.close()
    if reply.status == HTTPStatus.OK:
        return False
    refused = isinstance(reply.body, Mapping) and _POLICY in str(reply.body.get("message"))
    return True if refused else None


def _excess(source: ClusterSource, beyond: Sequence[Right]) -> Iterator[Right]:
    """Yield which of these rights an account has; of one that may do everything that alone."""
    if _reviewed(source, ANYTHING):
        yield ANYTHING
        return
    yield from (right for right in beyond if _reviewed(source, right))


def _reviewed(source: ClusterSource, right: Right) -> bool | None:
    """Say whether an account has a right; None where the server cannot be asked that.

    Raises SourceUnavailable, and SourceRejected for an account that is not known.
    """
    if not isinstance(source, ReviewsAccess):
        return None
    try:
        return source.may(*right)
    except SourceRejected as error:
        if _is_unknown(error):
            raise
        return None


def _is_unknown(error: SourceRejected) -> bool:
    return any(one in str(error) for one in _UNKNOWN_ACCOUNTS)


def _labels(source: ClusterSource) -> dict[str, Mapping[str, str]]:
    """Return the labels of every node."""
    found = (node["metadata"] for node in source.list("/api/v1/nodes").items)
    return {str(metadata["name"]): metadata.get("labels") or {} for metadata in found}


def _may(source: ClusterSource, right: Right) -> bool:
    """Say whether the portal's account has a right.

    Where the server cannot be asked that, or does not answer it, an object that is not there is
    looked for: rights are checked before names, and manifests give the verbs of reading together.
    """
    if isinstance(source, ReviewsAccess):
        try:
            return source.may(*right)
        except SourceRejected as error:
            if _is_unknown(error):
                raise
    group = f"/apis/{right.group}/v1" if right.group else "/api/v1"
    named = f"/namespaces/{right.namespace or 'default'}"
    place = "" if right.resource in _CLUSTER_WIDE else named
    try:
        source.get(f"{group}{place}/{right.resource}/{right.name or _ABSENT}")
    except SourceRejected as error:
        # An account that is not known at all has no right to miss: that is another fault.
        if _is_unknown(error):
            raise
        return False
    return True
