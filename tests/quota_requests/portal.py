"""A portal with a cluster whose one quota can be changed, and the people who do so."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django.utils import timezone
from msgspec import to_builtins

from apps.accounts.domain.identity import Role
from apps.accounts.models import Team, User
from apps.clusters.domain.observed.objects import NodeSnapshot, ObservedKind, QuotaSnapshot
from apps.clusters.gateways import ClusterClients, quota_writer
from apps.clusters.models import Cluster, ObservedObject, Tier, WatchCoverage
from apps.clusters.ports import QuotaWriter, Reply
from apps.quota_requests import services
from apps.quota_requests.domain.execution.kube_requests import object_path
from apps.quota_requests.domain.execution.patches import live_amount
from apps.quota_requests.domain.targets import QuotaKeyTarget
from apps.quota_requests.models import ChangeRequest, Execution
from apps.quota_requests.permissions import Actor, actor_of
from apps.quotas.domain.keys import QuotaRef
from tests.factories import (
    ensure_builtin,
    make_cluster,
    make_report,
    make_team,
    make_tier,
    make_user,
)
from tests.quota_requests import recorded
from tests.quota_requests.quota_api import QuotaApi, Trouble, serving

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
KEY = "requests.nvidia.com/gpu"
TARGET = QuotaKeyTarget("team-vision", "gpu", KEY)
REF = QuotaRef("ResourceQuota", "team-vision", "gpu", KEY, "west")
OWNER = "recorder"
"""The field manager that made the recorded quota."""
A100 = "NVIDIA-A100-SXM4-80GB"


def make_sighting(
    cluster: Cluster,
    kind: ObservedKind,
    name: str,
    body: Any,
    *,
    namespace: str = "",
    at: datetime = NOW,
) -> ObservedObject:
    """Make an object as watch saw it; of a kind with history it replaces the setting before."""
    uid = f"uid-{kind}-{namespace}-{name}"
    there = ObservedObject.objects.filter(cluster=cluster, kind=kind.value, uid=uid, gone_at=None)
    there.update(gone_at=at)
    return ObservedObject.objects.create(
        cluster=cluster,
        kind=kind.value,
        uid=uid,
        namespace=namespace,
        name=name,
        first_at=at,
        changed_at=at,
        body=to_builtins(body),
    )


@dataclass
class Portal:
    """Ada leads vision, Ben is on it, Cleo and Carl are admins, Dan leads speech."""

    cluster: Cluster
    vision: Team
    speech: Team
    tier: Tier
    people: dict[str, User]
    now: datetime = NOW
    api: QuotaApi = field(init=False, repr=False, compare=False)

    def actor(self, name: str) -> Actor:
        return actor_of(self.people[name], origin="127.0.0.1")

    def clock(self) -> datetime:
        return self.now

    def wait(self, **time: float) -> None:
        self.now += timedelta(**time)

    def see(self, hard: str | float | None, *, used: float = 0.0) -> None:
        """Let watch see the quota with a limit, without the key, or (None) not at all."""
        own = {"kind": ObservedKind.RESOURCE_QUOTA.value, "name": "gpu", "gone_at": None}
        if hard is None:
            ObservedObject.objects.filter(cluster=self.cluster, **own).update(gone_at=self.now)
        else:
            amounts = {} if hard == "" else {KEY: float(hard)}
            body = QuotaSnapshot(amounts, amounts, {KEY: used} if amounts else {})
            make_sighting(
                *(self.cluster, ObservedKind.RESOURCE_QUOTA, "gpu", body),
                namespace="team-vision",
                at=self.now,
            )
        self.watched()

    def watched(self) -> None:
        """Let watch have been there until now."""
        WatchCoverage.objects.update_or_create(
            cluster=self.cluster, start=NOW - timedelta(days=60), defaults={"end": self.now}
        )

    # ------------------------------------------------------------ what people do

    def draft(self, by: str = "ada", **values: Any) -> int:
        names = {name: values.pop(name) for name in QuotaRef._fields if name in values}
        asked: dict[str, Any] = {
            "ref": REF._replace(**names),
            "before": "6",
            "after": "8",
            "reason": "A larger model.",
        }
        return services.create(
            services.RequestInput(**asked | values), by=self.actor(by), now=self.now
        )

    def submitted(self, **values: Any) -> int:
        pk = self.draft(**values)
        services.submit(pk, by=self.actor("ada"), version=self.of(pk).version, now=self.now)
        return pk

    def approved(self, **values: Any) -> int:
        pk = self.submitted(**values)
        cleo = self.actor("cleo")
        services.take(pk, by=cleo, version=self.of(pk).version, now=self.now)
        version = self.of(pk).version
        # Of a booking: with the owner of the recorded quota overruled, as `start` does of others.
        services.approve(pk, by=cleo, version=version, now=self.now, confirmed=[OWNER])
        return pk

    def started(self, **values: Any) -> int:
        pk = self.approved(**values)
        self.start(pk)
        return pk

    def start(self, pk: int, **values: Any) -> None:
        """Begin to apply, having confirmed that the recorded quota's owner may be overruled."""
        given: dict[str, Any] = {"confirmed": [OWNER], "version": self.of(pk).version} | values
        services.start(pk, by=self.actor("cleo"), now=self.now, **given)

    def applied(self, **values: Any) -> int:
        pk = self.started(**values)
        assert self.carry_out(pk) == "applied"
        return pk

    def write_to(self, address: str | None) -> None:
        """Let the account that may write be at another address, or (None) take it away."""
        kubernetes = dict(self.cluster.kubernetes or {})
        kubernetes["writer"] = {"api_server": address} if address else None
        self.cluster.kubernetes = kubernetes
        self.cluster.save()

    def address(self) -> str:
        return f"http://127.0.0.1:{self.api.port}"

    def of(self, pk: int) -> ChangeRequest:
        return ChangeRequest.objects.get(pk=pk)

    def execution(self, pk: int) -> Execution:
        return Execution.objects.filter(request=pk).latest("pk")

    def carry_out(self, pk: int) -> str:
        return services.carry_out(self.execution(pk).pk, clock=self.clock)

    def carry_through(self, pk: int, *, turns: int = 40) -> str:
        """Carry on as beat would, wait after wait, until there is an end."""
        for _ in range(turns):
            ended = self.carry_out(pk)
            if ended not in {"wait", ""}:
                return ended
            self.wait(minutes=11)
        raise AssertionError(f"it never ends: {self.execution(pk).sentence}")

    def live(self) -> str | None:
        """Return what the API server has."""
        amount = live_amount(TARGET, self.api.live)
        return None if amount is None else amount.text


def make_portal(url: str | None, *, writer: bool = True) -> Portal:
    """Make a portal whose cluster is at an address; None: nobody may be asked anything."""
    make_report("UTC")
    ensure_builtin()
    tier = make_tier("whole", model=A100)
    vision = make_team("vision", "team-vision")
    speech = make_team("speech", "team-speech")
    kubernetes: dict[str, Any] = {"api_server": url or "http://127.0.0.1:9"}
    if writer:
        kubernetes["writer"] = {"api_server": kubernetes["api_server"]}
    cluster = make_cluster("west", kubernetes=kubernetes)
    labels = {"nvidia.com/gpu.product": A100}
    gpus = {"nvidia.com/gpu": 8.0}
    node = NodeSnapshot(labels=labels, allocatable=gpus, used={"nvidia.com/gpu": 6.0})
    make_sighting(cluster, ObservedKind.NODE, "node-1", node)
    people = {
        "ada": make_user("ada", leads=[vision]),
        "ben": make_user("ben", teams=[vision]),
        "cleo": make_user("cleo", Role.ADMIN),
        "carl": make_user("carl", Role.ADMIN),
        "dan": make_user("dan", leads=[speech]),
        "finn": make_user("finn", Role.FINANCE),
    }
    portal = Portal(cluster, vision, speech, tier, people, now=NOW - timedelta(days=1))
    portal.see(6, used=6.0)
    portal.now = NOW
    portal.watched()
    return portal


def as_of_now(portal: Portal) -> Portal:
    """Let the quota have been seen just now: pages and the API read the clock."""
    portal.now = timezone.now().replace(microsecond=0)
    portal.see(6, used=6.0)
    return portal


@contextmanager
def served_portal(*troubles: Trouble, live: Any = ..., writer: bool = True) -> Iterator[Portal]:
    """Serve the recorded quota of 6 GPUs, which the portal may change."""
    shown = recorded.quota("gpu") if live is ... else live
    with serving(object_path(TARGET), shown, *troubles) as api:
        portal = make_portal(f"http://127.0.0.1:{api.port}", writer=writer)
        portal.api = api
        yield portal


def clients_through(send: Callable[..., Reply]) -> ClusterClients:
    """Return clients whose writers hand each request to `send`, with what really sends it."""

    class Through:
        def __init__(self, inner: QuotaWriter) -> None:
            self.send = partial(send, inner.send)
            self.close = inner.close

    def writer(cluster: Cluster) -> QuotaWriter | None:
        found = quota_writer(cluster)
        return None if found is None else Through(found)

    return ClusterClients(writer=writer)
