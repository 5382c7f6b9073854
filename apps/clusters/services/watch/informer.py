"""From what the API server shows, in whatever order it arrives, to the rows of the ledger."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import DataError, IntegrityError

from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.devices.pod_claims import NO_CLAIMS, PodClaims
from apps.clusters.domain.node_offers import NodeOffer, NodeOffers
from apps.clusters.domain.observed.extract import ExtractionContext
from apps.clusters.domain.observed.objects import ObservedKind, ObservedObject
from apps.clusters.domain.pods.kube_objects import (
    NodeState,
    Run,
    assumed_runs,
    deletion_time,
    lacks_finish,
    node_state,
    pod_record,
    ready_since,
)
from apps.clusters.domain.pods.ledger import (
    ClaimAllocationRecord,
    ClaimedDevice,
    OfferedDevice,
    Owner,
)
from apps.clusters.domain.pods.owners import nearest_owner
from apps.clusters.ports import ClusterSource
from apps.clusters.services.claims import claim_writer
from apps.clusters.services.claims.claim_watch import CLAIMS, ClaimWatch
from apps.clusters.services.names import NameRegistry
from apps.clusters.services.objects import writer
from apps.clusters.services.objects.collections import NO_SOURCES, Sources
from apps.clusters.services.objects.object_watch import ObjectWatch, SyncContext
from apps.clusters.services.pods import inferred_pods, ledger_writer
from apps.clusters.services.pods.node_store import NodeStore
from apps.clusters.services.pods.pod_store import PodObservation, PodStore, TrackedPod
from apps.clusters.services.tier_history import Assigned, TierHistory
from apps.clusters.services.watch.coverage import StreamCoverage
from apps.clusters.services.watch.owner_lookup import OwnerLookup
from apps.clusters.services.watch.versions import Versions
from apps.clusters.services.watch.watch_events import (
    Item,
    Relisted,
    WatchClosed,
    WatchEvent,
    WatchForbidden,
    WatchSilent,
)

logger = logging.getLogger(__name__)

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/pods"
COLLECTIONS = (NODES, NAMESPACES, PODS)

_RULES_SECONDS = 30.0
_KINDS = frozenset({"ADDED", "MODIFIED", "DELETED"})


# Pod uid → the runs to assume of a pod seen for the first time.
Assumed = Mapping[str, tuple[Run, ...]]


@dataclass(slots=True)
class _Pods:
    """The GPU pods of each item of a batch, and by uid the runs to assume of new ones.

    `again` are those seen before whose claims are known differently now.
    """

    of_item: list[list[PodObservation]]
    again: list[PodObservation]
    assumed: Assumed


class Informer:
    """The state of one cluster's ledger in memory, and how it gets into the database.

    `apply` reads in a batch and `write` stores what changed; either may be called again after a
    database error and then does what it would have done. Only one thread may use it. `claims`
    are the collections of dynamic resource allocation that the server has, `sources` those that
    tell why things wait.
    """

    def __init__(
        self,
        cluster_id: int,
        source: ClusterSource,
        claims: Sequence[str] = (),
        sources: Sources = NO_SOURCES,
    ) -> None:
        self._cluster = cluster_id
        self._owners = OwnerLookup(source)
        self._names = NameRegistry(cluster_id)
        self._tiers = TierHistory.load()
        self._tiers_at = 0.0
        self._nodes = NodeStore(ledger_writer.open_intervals(cluster_id))
        self._pods = PodStore(ledger_writer.present_pods(cluster_id))
        self._last_watched = ledger_writer.last_watched(cluster_id)
        self._dra = ClaimWatch(claims, claim_writer.open_claims(cluster_id) if claims else ())
        self._states: dict[str, NodeState] = {}
        self._notes = claim_writer.notes(cluster_id)
        self._listed_pods = False
        self._coverage = StreamCoverage((NODES, PODS, *claims))
        self._versions: dict[str, Versions] = defaultdict(Versions)
        self._relist_wanted = False
        self._namespaces: set[str] = set()
        self._now = 0.0
        self._nodes_known: NodeOffers | None = None
        self._gpu_classes: frozenset[str] = frozenset()
        self._tops: dict[str, Owner] = {}
        around = SyncContext(
            context=self._context,
            owners=self._owners.top_owners,
            offered=self._devices_offered,
            held=self._devices_held,
            is_ledger_pod=lambda uid: uid in self._pods.pods,
        )
        present = writer.present_objects(cluster_id)
        self._objects = ObjectWatch(sources, around, present)

    @property
    def counts(self) -> tuple[int, int]:
        """How many GPU nodes and GPU pods there are."""
        return len(self._nodes.open), len(self._pods.pods)

    # ------------------------------------------------------------ taking in

    def apply(self, batch: Sequence[Item]) -> bool:
        """Take in a batch, in order. Return whether the catalog now needs everything listed anew.

        That is so when tiers name other resources or node labels than before: objects that were
        of no interest then may be now.
        """
        if not batch:
            return False
        now = max(item.at for item in batch)
        self._refresh_tiers(now)
        # First, so that the pods and nodes of this batch are read with what they need.
        ours = [item for item in batch if self._dra.follows(item.path)]
        for item in sorted(ours, key=lambda item: self._dra.place(item.path)):
            self._apply_claims(item)
        self._dra.settle(self._tiers.device_classes, now)
        beside = [item for item in batch if self._objects.follows(item.path)]
        for item in beside:
            if self._objects.is_of_templates(item.path):
                self._apply_object(item)
        batch = [
            item
            for item in batch
            if not self._dra.follows(item.path) and not self._objects.follows(item.path)
        ]
        pods = self._prepared(batch)
        for item, observations in zip(batch, pods.of_item, strict=True):
            self._apply_item(item, observations, pods.assumed)
        self._now = max(self._now, now)
        naming = {str(pod["metadata"]["uid"]) for pod in self._dra.pods_to_see()}
        touched = self._reassess(pods, now)
        self._apply_observed(beside, naming, touched, now)
        relist, self._relist_wanted = self._relist_wanted, False
        return relist

    def _apply_item(self, item: Item, observations: list[PodObservation], assumed: Assumed) -> None:
        if isinstance(item, Relisted):
            self._apply_list(item, observations, assumed)
        elif isinstance(item, WatchEvent) and item.change.type != "BOOKMARK":
            self._apply_change(item, observations, assumed)
        elif isinstance(item, WatchEvent | WatchClosed):
            self._coverage.caught_up(item.path, item.at, item.asked)

    def _apply_claims(self, item: Item) -> None:
        """Take in what is told of slices, classes and claims. The same twice changes nothing."""
        path, proof = item.path, self._coverage.last_proof(item.path)
        if isinstance(item, WatchForbidden):
            self._coverage.waive(path)
            self._dra.refused(path, item.why)
        elif isinstance(item, Relisted):
            self._coverage.listed(path, item.at)
            self._versions[path].listed(item.items)
            last_seen = self._last_watched if proof is None else proof
            self._dra.listed(path, item.items, item.at, last_seen)
            if path.endswith(CLAIMS):
                self._objects.objects(ObservedKind.RESOURCE_CLAIM, item.items, item.at)
                self._objects.keep_only(ObservedKind.RESOURCE_CLAIM, _uids(item.items), item.at)
        elif isinstance(item, WatchEvent) and item.change.type != "BOOKMARK":
            late = self._coverage.arrived(path, item.at, item.asked)
            thing, deleted = item.change.object, item.change.type == "DELETED"
            if item.change.type not in _KINDS or self._versions[path].is_stale(thing, gone=deleted):
                return
            after = item.at if proof is None else proof
            gone = deletion_time(thing, after=after, at=item.at) if late else item.at
            self._dra.changed(path, thing, item.at, gone if deleted else None)
            if path.endswith(CLAIMS):
                self._observe(ObservedKind.RESOURCE_CLAIM, thing, item.at, deleted=deleted)
        elif isinstance(item, WatchEvent | WatchClosed):
            self._coverage.caught_up(path, item.at, item.asked)

    def _reassess(self, pods: _Pods, at: float) -> set[str]:
        """See nodes whose devices changed, which are returned, and pods whose claims did."""
        touched = set(self._dra.nodes_to_see(self._states.keys()))
        for name in sorted(touched):
            self._nodes.seen(self._offering(self._states[name]), at)
        if self._nodes.changed:
            # What waits weighs what it would on the nodes there are.
            self._nodes_known = None
            self._pods.look_again({""})
        for observation in pods.again:
            if self._dra.is_there(observation.record.uid):
                self._pods.seen(
                    observation, at, assumed=pods.assumed.get(observation.record.uid, ())
                )
        self._pods.doubt({observation.record.uid for observation in pods.again})
        self._dra.pods_seen()
        return touched

    def _refresh_tiers(self, now: float) -> None:
        """Read the catalog's rules now and then; note when everything must be listed anew.

        The note is kept until `apply` succeeds: the database may go away in between.
        """
        if now - self._tiers_at < _RULES_SECONDS:
            return
        before, self._tiers, self._tiers_at = self._tiers, TierHistory.load(), now
        if self._tiers != before:
            self._pods.look_again()
        self._relist_wanted = self._relist_wanted or not (
            self._tiers.resources <= before.resources
            and self._tiers.label_keys <= before.label_keys
        )

    def _prepared(self, batch: Sequence[Item]) -> _Pods:
        """Parse the batch's pods, find their owners and load the rows that may exist of them.

        All that can fail for want of a database or an API server happens here, before anything
        in memory changes.
        """
        if any(isinstance(item, Relisted) and item.path == PODS for item in batch):
            self._owners.forget()
        parsed = [list(self._parse(_pods_of(item))) for item in batch]
        again = list(self._parse((pod, None) for pod in self._dra.pods_to_see()))
        found = [pair for pairs in (*parsed, again) for pair in pairs]
        tops = self._owners.top_owners(pod for pod, _ in found)
        new = self._pods.unknown(observation.record.uid for _, observation in found)
        self._pods.adopt(ledger_writer.known_pods(self._cluster, new))
        unseen = frozenset(new)
        return _Pods(
            of_item=[
                [_with_top_owner(observation, tops) for _, observation in pairs] for pairs in parsed
            ],
            again=[_with_top_owner(observation, tops) for _, observation in again],
            assumed={
                observation.record.uid: assumed_runs(pod, self._tiers.resources, self._claims(pod))
                for pod, observation in found
                if observation.record.uid in unseen
            },
        )

    def _parse(
        self, pods: Iterable[tuple[Mapping[str, Any], float | None]]
    ) -> Iterator[tuple[Mapping[str, Any], PodObservation]]:
        """Yield those pods that ask for GPU, each with the observation at it that this is."""
        named = self._tiers.resources
        for pod, deleted in pods:
            claims = self._claims(pod)
            owner = nearest_owner(pod)
            record = pod_record(pod, owner=owner, named=named, deleted=deleted, claims=claims)
            if record is not None:
                yield pod, PodObservation(record, vague=lacks_finish(pod, named, claims))

    def _claims(self, pod: Mapping[str, Any]) -> PodClaims:
        known = self._pods.pods.get(str(pod["metadata"]["uid"]))
        return self._dra.claims_of(pod, None if known is None else known.record)

    def _apply_list(
        self, listed: Relisted, observations: list[PodObservation], assumed: Assumed
    ) -> None:
        proof = self._coverage.last_proof(listed.path)
        last_seen = proof if proof is not None else self._last_watched
        self._coverage.listed(listed.path, listed.at)
        self._versions[listed.path].listed(listed.items)
        if listed.path == NODES:
            self._states.clear()
            states = [self._state(item) for item in listed.items]
            self._nodes.listed(states, listed.at, last_seen)
            self._pods.look_again({state.name for state in states})
            self._objects.objects(ObservedKind.NODE, listed.items, listed.at)
            self._objects.keep_only(ObservedKind.NODE, _uids(listed.items), listed.at)
        elif listed.path == PODS:
            self._listed_pods = True
            for observation in observations:
                self._pods.seen(
                    observation, listed.at, assumed=assumed.get(observation.record.uid, ())
                )
            self._pods.listed(
                {observation.record.uid for observation in observations}, listed.at, last_seen
            )
            self._dra.keep_only(_uids(listed.items))
            self._observe_pods(listed, observations)
        else:
            self._namespaces.update(str(i["metadata"]["name"]) for i in listed.items)

    def _apply_change(
        self, seen: WatchEvent, observations: list[PodObservation], assumed: Assumed
    ) -> None:
        item, kind = seen.change.object, seen.change.type
        proof = self._coverage.last_proof(seen.path)
        after = seen.at if proof is None else proof
        late = self._coverage.arrived(seen.path, seen.at, seen.asked)
        deleted = kind == "DELETED"
        if kind not in _KINDS or self._versions[seen.path].is_stale(item, gone=deleted):
            return
        gone = deletion_time(item, after=after, at=seen.at) if late else seen.at
        if seen.path == NODES:
            self._apply_node(item, seen.at, after, gone if deleted else None)
        elif seen.path == PODS:
            for observation in observations:
                record = (
                    replace(observation.record, deleted=gone) if deleted else observation.record
                )
                runs = assumed.get(record.uid, ())
                self._pods.seen(observation._replace(record=record), seen.at, assumed=runs)
            if deleted:
                self._dra.forget(str(item["metadata"]["uid"]))
            else:
                # A list of the same batch dropped the pods that it did not have.
                self._dra.keep(item)
            self._tops = {
                observation.record.uid: observation.record.owner for observation in observations
            }
            self._observe(ObservedKind.POD, item, seen.at, deleted=deleted)
        elif not deleted:
            self._namespaces.add(str(item["metadata"]["name"]))

    def _apply_node(
        self, item: Mapping[str, Any], at: float, after: float, gone: float | None
    ) -> None:
        state = self._state(item)
        self._observe(ObservedKind.NODE, item, at, deleted=gone is not None)
        if gone is not None:
            self._nodes.gone(state.name, gone)
            self._states.pop(state.name, None)
            return
        ready_at = ready_since(item)
        if ready_at is not None and ready_at <= after:
            ready_at = None
        self._nodes.seen(state, at, ready_at=ready_at)
        self._pods.look_again({state.name})

    def _state(self, node: Mapping[str, Any]) -> NodeState:
        resources, keys = self._tiers.resources, self._tiers.label_keys
        state = node_state(node, named=resources, label_keys=keys)
        self._states[state.name] = state
        return self._offering(state)

    def _offering(self, state: NodeState) -> NodeState:
        """Return a node's state with its devices; while no slice was seen, with those known."""
        devices = self._dra.of_node(state.name)
        if devices is None:
            interval = self._nodes.open.get(state.name)
            devices = () if interval is None else interval.state.devices
        return replace(state, devices=devices)

    # ------------------------------------------------------------ what explains waiting

    def _observe_pods(self, listed: Relisted, observations: list[PodObservation]) -> None:
        uids = _uids(listed.items)
        self._tops = {
            observation.record.uid: observation.record.owner for observation in observations
        }
        for pod in listed.items:
            self._objects.use.seen(pod)
        self._objects.use.keep_only(uids)
        self._objects.objects(ObservedKind.POD, listed.items, listed.at)
        self._objects.keep_only(ObservedKind.POD, uids, listed.at)

    def _observe(
        self, kind: ObservedKind, item: Mapping[str, Any], at: float, *, deleted: bool
    ) -> None:
        uid = str(item["metadata"].get("uid", ""))
        if deleted:
            self._objects.gone(kind, uid, at)
        else:
            self._objects.objects(kind, [item], at)
        if kind is ObservedKind.POD and deleted:
            self._objects.use.gone(uid)
        elif kind is ObservedKind.POD:
            self._objects.use.seen(item)

    def _apply_observed(
        self, items: Sequence[Item], naming: set[str], touched: set[str], at: float
    ) -> None:
        """Take in what is read to explain waiting, and what follows for nodes and claims.

        `naming` are pods whose claims were seen differently, `touched` nodes whose devices were.
        None of this counts for the span watched.
        """
        for item in items:
            if not self._objects.is_of_templates(item.path):
                self._apply_object(item)
        classes = self._dra.devices.gpu_classes | self._tiers.device_classes
        other, self._gpu_classes = classes != self._gpu_classes, classes
        self._objects.claims_changed(at, everything=other, pods=naming)
        holders = {record.node for record in self._dra.claims.changed.values()}
        self._objects.settle(at, self._states.keys() if "" in holders else touched | holders)

    def _apply_object(self, item: Item) -> None:
        if isinstance(item, Relisted):
            self._versions[item.path].listed(item.items)
            self._objects.listed(item.path, item.items, item.at)
        elif isinstance(item, WatchForbidden):
            self._objects.refused(item.path, item.why)
        elif isinstance(item, WatchSilent):
            self._objects.unanswered(item.path, item.why)
        else:
            self._apply_object_change(item)

    def _apply_object_change(self, item: WatchEvent | WatchClosed) -> None:
        self._objects.answered(item.path)
        if isinstance(item, WatchEvent) and item.change.type in _KINDS:
            deleted = item.change.type == "DELETED"
            if not self._versions[item.path].is_stale(item.change.object, gone=deleted):
                self._objects.changed(item.path, item.change.object, item.at, gone=deleted)

    def _context(self, kind: ObservedKind, item: Mapping[str, Any]) -> ExtractionContext:
        is_pod = kind is ObservedKind.POD
        return ExtractionContext(
            named=self._tiers.resources,
            owner=self._tops.get(str(item["metadata"].get("uid", ""))) if is_pod else None,
            claims=self._claims(item) if is_pod else NO_CLAIMS,
            is_gpu_class=self._dra.is_gpu,
            template_classes=self._objects.templates,
        )

    def _devices_offered(self, node: str) -> tuple[OfferedDevice, ...]:
        return self._dra.of_node(node) or ()

    def _devices_held(self) -> Iterator[ClaimedDevice]:
        return (d for record in self._dra.claims.open.values() for d in record.devices)

    # ------------------------------------------------------------ writing

    def write(self) -> int:
        """Write what changed; return how many rows of the ledger that were. Else no query.

        The span watched is written after the ledger: it never vouches for what is not in the
        database. What explains waiting comes last, and holds up nothing.
        """
        try:
            rows = self._write()
        except IntegrityError:
            # A namespace or workload was deleted beside us: its id must be made anew.
            self._names = NameRegistry(self._cluster)
            rows = self._write()
        self._write_objects()
        return rows

    def _write_objects(self) -> None:
        store = self._objects.store
        try:
            writer.write_objects(self._cluster, list(store.changed.values()))
        except (DataError, IntegrityError):
            # One that no database takes must neither stop the others nor come back for ever.
            for one in store.changed.values():
                self._write_alone(one)
        store.written()

    def _write_alone(self, one: ObservedObject) -> None:
        try:
            writer.write_objects(self._cluster, [one])
        except (DataError, IntegrityError):
            logger.exception("what was seen of %s %s is not written", one.kind, one.uid)

    def _write(self) -> int:
        self._pods.assign(self._assigned)
        uids = sorted(self._pods.changed)
        pods = [self._pods.pods[uid] for uid in uids]
        self._names.namespaces(self._namespaces)
        ledger_writer.write_pods(self._cluster, pods, self._names)
        claims = list(self._dra.claims.changed.values())
        if claims:
            claim_writer.write_claims(self._cluster, claims, self._names, self._assigned_claim)
        notes = {**self._dra.notes(), **self._objects.notes()}
        if notes != self._notes:
            claim_writer.write_notes(self._cluster, notes, self._now)
        intervals = dict(self._nodes.changed)
        ledger_writer.write_intervals(intervals, self._names)
        spans = self._coverage.unwritten
        ledger_writer.write_spans(self._cluster, spans)
        if self._listed_pods and spans:
            inferred_pods.end_unlisted(self._cluster, self._names)
            self._listed_pods = False
        self._pods.written(uids)
        self._nodes.changed.clear()
        self._dra.claims.changed.clear()
        self._notes = notes
        self._coverage.written()
        self._namespaces.clear()
        return len(pods) + len(intervals) + len(claims)

    def _assigned(self, tracked: TrackedPod) -> Assigned | None:
        """Return what a pod counts as: by its node's labels once bound, until then as it asks.

        None where there is nothing new to say: its node has gone.
        """
        interval = self._nodes.open.get(tracked.record.node)
        if tracked.record.bound is not None and interval is None and tracked.assigned is not None:
            return None
        labels = None if interval is None else interval.state.labels
        devices = self._dra.devices_of(tracked.record.claims)
        offers = self._offers() if tracked.record.bound is None else None
        return self._tiers.assign(tracked.record, labels, self._now, devices, offers)

    def _offers(self) -> NodeOffers:
        """Return the nodes that pods may come to, made anew when one of them changed."""
        if self._nodes_known is None:
            self._nodes_known = NodeOffers(
                [_node_offer(interval.state) for _, interval in sorted(self._nodes.open.items())]
            )
        return self._nodes_known

    def _assigned_claim(self, tracked: TrackedPod, claim: ClaimAllocationRecord) -> Assigned:
        """Return what a claim counts as that no pod uses."""
        interval = self._nodes.open.get(claim.node)
        labels = None if interval is None else interval.state.labels
        return self._tiers.assign(tracked.record, labels, self._now, claim.devices)


def _node_offer(state: NodeState) -> NodeOffer:
    amounts = (*state.capacity.items(), *state.allocatable.items())
    offers = {resource for resource, units in amounts if units > 0}
    parts: dict[str, Counter[float]] = defaultdict(Counter)
    for device in state.devices:
        for name in device.classes:
            parts[name][mig_part(device.profile, device.model)] += 1
    usual = {name: max(of, key=lambda part: (of[part], part)) for name, of in parts.items()}
    return NodeOffer(state.labels, offers | usual.keys(), usual)


def _uids(items: Iterable[Mapping[str, Any]]) -> set[str]:
    return {str(item["metadata"].get("uid", "")) for item in items}


def _with_top_owner(observation: PodObservation, tops: Mapping[str, Owner]) -> PodObservation:
    record = observation.record
    top = tops.get(record.uid, record.owner)
    return (
        observation
        if top == record.owner
        else observation._replace(record=replace(record, owner=top))
    )


def _pods_of(item: Item) -> Iterator[tuple[Mapping[str, Any], float | None]]:
    """Yield each pod of an item, and when it was seen to go if it was."""
    if isinstance(item, WatchClosed | WatchForbidden | WatchSilent) or item.path != PODS:
        return
    if isinstance(item, Relisted):
        yield from ((pod, None) for pod in item.items)
    elif item.change.type in _KINDS:
        yield item.change.object, item.at if item.change.type == "DELETED" else None
