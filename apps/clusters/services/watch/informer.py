"""From what the API server shows, in whatever order it arrives, to the rows of the ledger."""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.db import DataError, IntegrityError

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.devices.resource_claims import NO_CLAIMS, PodClaims
from apps.clusters.domain.kube_json import KubePod
from apps.clusters.domain.observed.objects import ObservedKind, ObservedObject
from apps.clusters.domain.observed.pods import ExtractionContext
from apps.clusters.domain.pods.kube_objects import (
    NodeState,
    assumed_runs,
    deletion_time,
    lacks_finish,
    may_hide_runs,
    node_state,
    pod_record,
    ready_since,
)
from apps.clusters.domain.pods.ledger import (
    ClaimAllocationRecord,
    ClaimedDevice,
    OfferedDevice,
    Owner,
    nearest_owner,
)
from apps.clusters.domain.resources import counted
from apps.clusters.domain.tiers import NodeOffer, NodeOffers
from apps.clusters.ports import ClusterSource
from apps.clusters.services.catalog import TierAssignment, TierHistory
from apps.clusters.services.pods import inferred_pods, node_store, pod_store
from apps.clusters.services.pods.ledger_rows import NameRegistry
from apps.clusters.services.pods.node_store import NodeStore
from apps.clusters.services.pods.pod_store import PodObservation, PodStore, TrackedPod
from apps.clusters.services.watch.claims import (
    CLAIMS,
    ClaimWatch,
    open_claims,
    stored_notes,
    write_claims,
    write_notes,
)
from apps.clusters.services.watch.collections import (
    CHANGE_TYPES,
    COLLECTIONS,
    NO_SOURCES,
    NODES,
    PODS,
    Item,
    Relisted,
    Sources,
    Versions,
    WatchEvent,
    WatchForbidden,
    WatchSilent,
    uid_of,
)
from apps.clusters.services.watch.object_rows import observed_objects, write_objects
from apps.clusters.services.watch.observed_objects import ObjectWatch, SyncContext
from apps.clusters.services.watch.owner_lookup import OwnerLookup
from apps.clusters.services.watch.people_watch import PeopleWatch
from apps.clusters.services.watch.shared_gpus import SharedGpus, pods_of
from apps.clusters.services.watch.streams import StreamCoverage
from gpuportal.garbage import gc_paused

logger = logging.getLogger(__name__)

# A catalog may be loaded while the watch runs; batches come every second.
_RULES_SECONDS = 30.0
_MOST_NAMED = 5


class Informer:
    """The state of one cluster's ledger in memory, and how it gets into the database.

    `apply` reads in a batch and `write` stores what changed; either may be called again after a
    database error and then does what it would have done. Only one thread may use it. `claims` are
    the collections of dynamic resource allocation that the server has, `sources` those that explain
    pending work.
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
        self._nodes = NodeStore(node_store.open_intervals(cluster_id))
        self._pods = PodStore(pod_store.present_pods(cluster_id))
        self._last_watched = pod_store.last_watched(cluster_id)
        self._dra = ClaimWatch(claims, open_claims(cluster_id) if claims else ())
        self._states: dict[str, NodeState] = {}
        self._notes = stored_notes(cluster_id)
        self._listed_pods = False
        self._coverage = StreamCoverage((NODES, PODS, *claims))
        self._versions: dict[str, Versions] = defaultdict(Versions)
        self._relist_wanted = False
        self._namespaces: set[str] = set()
        self._now = 0.0
        self._nodes_known: NodeOffers | None = None
        self._gpu_classes: frozenset[str] = frozenset()
        self._tops: dict[str, Owner] = {}
        self._people = PeopleWatch()
        self._unread: dict[str, str] = {}
        self._shared_gpus = SharedGpus()
        around = SyncContext(
            context=self._context,
            owners=self._owners.top_owners,
            offered=self._devices_offered,
            held=self._devices_held,
            is_ledger_pod=self._pods.__contains__,
        )
        present = observed_objects(cluster_id, list(ObservedKind))
        self._objects = ObjectWatch(sources, around, present)

    @property
    def counts(self) -> tuple[int, int]:
        """How many GPU nodes and GPU pods there are."""
        return len(self._nodes), len(self._pods)

    # ------------------------------------------------------------ taking in

    def serve(self, sources: Sources) -> None:
        """Take in that the server has other collections that explain pending work than before."""
        self._objects.serve(sources)

    @gc_paused()
    def apply(self, batch: Sequence[Item]) -> bool:
        """Apply a batch, in order. Return whether the catalog now needs everything listed anew.

        That is so when tiers name other resources or node labels than before: objects that were
        of no interest then may be now.
        """
        if not batch:
            return False
        now = max(item.at for item in batch)
        self._refresh_tiers(now)
        # First, so that the pods and nodes of this batch are read with what they need.
        claims = [item for item in batch if self._dra.follows(item.path)]
        for item in sorted(claims, key=lambda item: self._dra.place(item.path)):
            self._apply_item(item)
        self._dra.settle(self._tiers.device_classes, now)
        # Templates come before pods: a pod whose claim is not made yet is read with its template.
        observed = [item for item in batch if self._objects.follows(item.path)]
        for item in observed:
            if self._objects.is_of_templates(item.path):
                self._apply_item(item)
        ledger = [_decoded(item) for item in batch if item.path in COLLECTIONS]
        self._people.apply([*observed, *ledger], self._objects.kind_of)
        # Before pods are read: HAMi's registration of a node confirms what its pods were given, and
        # the pod that reserves a GPU for KAI tells which GPU it is.
        self._shared_gpus.apply(ledger)
        pods, again = self._prepared(ledger)
        for item, seen in zip(ledger, pods, strict=True):
            self._apply_item(item, seen)
        self._now = max(self._now, now)
        # Asked before `_reassess`, which notes that these pods were looked at.
        naming = {uid_of(pod) for pod in self._dra.pods_to_see()}
        sharing = self._shared_gpus.pods_to_see()
        touched = self._reassess(again, now)
        self._objects.apply_objects(ObservedKind.POD, sharing, now)
        self._apply_observed(observed, naming, touched, now)
        relist, self._relist_wanted = self._relist_wanted, False
        return relist

    def _apply_item(self, item: Item, pods: Sequence[PodObservation] = ()) -> None:
        """Apply what a stream tells; `pods` are the GPU pods of it. The same twice changes nothing.

        Collections that explain pending work count for no span: the coverage does not require them.
        """
        path = item.path
        if isinstance(item, WatchSilent):
            if self._objects.follows(path):
                self._objects.unanswered(path, item.why)
        elif isinstance(item, WatchForbidden):
            self._coverage.waive(path)
            refused = self._dra.refused if self._dra.follows(path) else self._objects.refused
            refused(path, item.why)
        elif isinstance(item, Relisted):
            proof = self._coverage.last_proof(path)
            self._coverage.listed(path, item.at)
            self._versions[path].listed(item.items)
            self._relist(item, self._last_watched if proof is None else proof, pods)
        elif isinstance(item, WatchEvent) and item.change.type != "BOOKMARK":
            self._objects.answered(path)
            self._apply_event(item, pods)
        else:
            self._objects.answered(path)
            self._coverage.caught_up(path, item.at, item.requested_at)

    def _relist(
        self, listed: Relisted, last_seen: float | None, pods: Sequence[PodObservation]
    ) -> None:
        path, items, at = listed.path, listed.items, listed.at
        if self._objects.follows(path):
            self._objects.relist(path, items, at)
        elif self._dra.follows(path):
            self._dra.relist(path, items, at, last_seen)
            if path.endswith(CLAIMS):
                self._objects.relist_objects(ObservedKind.RESOURCE_CLAIM, items, at)
        elif path == NODES:
            self._states.clear()
            states = [self._state(item) for item in items]
            self._nodes.relist(states, at, last_seen)
            self._pods.reassess({state.name for state in states})
            self._objects.relist_objects(ObservedKind.NODE, items, at)
        elif path == PODS:
            self._listed_pods = True
            for seen in pods:
                self._pods.apply(seen, at, listed=True)
            there = {uid_of(item) for item in items}
            self._unread = {uid: name for uid, name in self._unread.items() if uid in there}
            # One that could not be read is there all the same: it did not end.
            known = {seen.record.uid for seen in pods} | self._unread.keys()
            self._pods.relist(known, at, last_seen)
            self._dra.keep_only(there)
            self._shared_gpus.keep_only(items)
            self._objects.relist_objects(ObservedKind.POD, items, at)
        else:
            self._namespaces.update(str(item["metadata"]["name"]) for item in items)

    def _apply_event(self, event: WatchEvent, pods: Sequence[PodObservation]) -> None:
        path, item, at = event.path, event.change.object, event.at
        proof = self._coverage.last_proof(path)
        # Before the check for stale versions: even a stale line proves that the stream is alive.
        late = self._coverage.arrived(path, at, event.requested_at)
        deleted = event.change.type == "DELETED"
        if event.change.type not in CHANGE_TYPES or self._versions[path].is_stale(
            item, gone=deleted
        ):
            return
        after = at if proof is None else proof
        gone = None
        if deleted:
            # A late line tells that an object went, not when: only its grace period limits the
            # time.
            gone = deletion_time(item, after=after, at=at) if late else at
        if self._objects.follows(path):
            self._objects.apply(path, item, at, gone=deleted)
        elif self._dra.follows(path):
            self._dra.apply(path, item, at, gone)
            if path.endswith(CLAIMS):
                self._objects.apply_object(ObservedKind.RESOURCE_CLAIM, item, at, gone=deleted)
        else:
            self._apply_ledger(event, pods, after, gone)

    def _apply_ledger(
        self, event: WatchEvent, pods: Sequence[PodObservation], after: float, gone: float | None
    ) -> None:
        """Apply a node, pod or namespace; `gone` is when it went, None while it is there."""
        item, at = event.change.object, event.at
        if event.path == NODES:
            self._objects.apply_object(ObservedKind.NODE, item, at, gone=gone is not None)
            self._apply_node(item, at, after, gone)
        elif event.path == PODS:
            for seen in pods:
                if gone is not None:
                    seen = seen._replace(record=replace(seen.record, deleted=gone))
                self._pods.apply(seen, at)
            if gone is not None:
                self._dra.forget(uid_of(item))
                self._shared_gpus.forget(uid_of(item))
            else:
                # A list of the same batch dropped the pods that it did not have.
                self._dra.keep(item)
                self._shared_gpus.keep(item)
            self._objects.apply_object(ObservedKind.POD, item, at, gone=gone is not None)
        elif gone is None:
            self._namespaces.add(str(item["metadata"]["name"]))

    def _reassess(self, again: Sequence[PodObservation], at: float) -> set[str]:
        """Apply nodes whose devices changed, which are returned, and pods whose claims did."""
        touched = set(self._dra.nodes_to_see(self._states.keys()))
        for name in sorted(touched):
            self._nodes.apply(self._offering(self._states[name]), at)
        if self._nodes.changed:
            # Pending work has the weight that it would have on the present nodes.
            self._nodes_known = None
            self._pods.reassess({""})
        for seen in again:
            uid = seen.record.uid
            if self._dra.is_there(uid) or self._shared_gpus.is_there(uid):
                self._pods.apply(seen, at)
        self._pods.doubt({seen.record.uid for seen in again})
        self._dra.pods_seen()
        self._shared_gpus.pods_seen()
        return touched

    def _refresh_tiers(self, now: float) -> None:
        """Read the catalog's rules now and then; note when everything must be listed anew.

        The note is kept until `apply` succeeds: the database may go away in between.
        """
        if now - self._tiers_at < _RULES_SECONDS:
            return
        before, self._tiers, self._tiers_at = self._tiers, TierHistory.load(), now
        if self._tiers != before:
            self._pods.reassess()
        self._relist_wanted = self._relist_wanted or not (
            self._tiers.resources <= before.resources
            and self._tiers.label_keys <= before.label_keys
        )

    def _prepared(
        self, batch: Sequence[Item]
    ) -> tuple[list[list[PodObservation]], list[PodObservation]]:
        """Return the GPU pods of each item, and those seen before that are weighed anew now.

        Their claims changed since, or the memory that HAMi registered of their GPUs.

        Parses them, finds their owners and loads the rows that may exist of them. All that can
        fail for want of a database or an API server happens here, before anything in memory
        changes.
        """
        if any(isinstance(item, Relisted) and item.path == PODS for item in batch):
            self._owners.forget()
        parsed = [list(self._parse(pods_of(item))) for item in batch]
        to_see = [*self._dra.pods_to_see(), *self._shared_gpus.pods_to_see()]
        parsed.append(list(self._parse((pod, None) for pod in to_see)))
        found = [pair for pairs in parsed for pair in pairs]
        self._tops = self._owners.top_owners(pod for pod, _ in found)
        # Pods that are new to this process may have rows of an earlier watch: these go on.
        new = self._pods.unknown(seen.record.uid for _, seen in found)
        self._pods.adopt(pod_store.known_pods(self._cluster, new))
        unseen = frozenset(new)
        *pods, again = [[self._completed(*pair, unseen) for pair in pairs] for pairs in parsed]
        return pods, again

    def _parse(
        self, pods: Iterable[tuple[Mapping[str, Any], float | None]]
    ) -> Iterator[tuple[Mapping[str, Any], PodObservation]]:
        """Yield those pods that ask for GPU, each as it is observed."""
        for pod, deleted in pods:
            uid = uid_of(pod)
            self._unread.pop(uid, None)
            try:
                seen = self._observation(pod, deleted)
            except (ValueError, ArithmeticError):
                # A user who may create pods may write anything into one: a pod that cannot be read
                # must not stop the watch of the whole cluster.
                logger.exception("a pod cannot be read and is passed over: %s", uid)
                if deleted is None:
                    self._unread[uid] = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                continue
            if seen is not None:
                yield pod, seen

    def _observation(self, pod: Mapping[str, Any], deleted: float | None) -> PodObservation | None:
        """Return what is observed of a pod; None of one that requests no GPU."""
        named, claims, owner = self._tiers.resources, self._claims(pod), nearest_owner(pod)
        each = self._shared_gpus.memory(KubePod.of(pod))
        record = pod_record(
            pod, owner=owner, named=named, deleted=deleted, claims=claims, each=each
        )
        if record is None:
            return None
        gpus = self._shared_gpus.of_pod(pod["metadata"], record)
        if gpus != record.gpus:  # of most pods nothing is known: to copy each record takes longer
            record = replace(record, gpus=gpus)
        vague = lacks_finish(pod, named, claims)
        return PodObservation(record, vague=vague, person=self._people.of_pod(pod))

    def _unread_notes(self) -> dict[str, str]:
        if not self._unread:
            return {}
        shown = ", ".join(sorted(self._unread.values())[:_MOST_NAMED])
        return {
            "pods-unreadable": f"{counted(len(self._unread), 'pod')} cannot be read, counted as "
            f"before ({shown}): look at the annotations."
        }

    def _completed(
        self, pod: Mapping[str, Any], seen: PodObservation, unseen: Collection[str]
    ) -> PodObservation:
        """Return an observation with the top owner and, of a new pod, with hidden runs."""
        record, top = seen.record, self._tops.get(seen.record.uid, seen.record.owner)
        # Few were restarted more than once: of the others nothing is hidden.
        if record.uid in unseen and may_hide_runs(pod):
            runs = assumed_runs(pod, self._tiers.resources, self._claims(pod))
            seen = seen._replace(assumed=runs)
        return seen if top == record.owner else seen._replace(record=replace(record, owner=top))

    def _claims(self, pod: Mapping[str, Any]) -> PodClaims:
        known = self._pods.get(str(pod["metadata"]["uid"]))
        return self._dra.claims_of(pod, None if known is None else known.record)

    def _apply_node(
        self, item: Mapping[str, Any], at: float, after: float, gone: float | None
    ) -> None:
        state = self._state(item)
        if gone is not None:
            self._nodes.delete(state.name, gone)
            self._states.pop(state.name, None)
            return
        ready_at = ready_since(item)
        # At `after` the node was known: an older turn of its condition is no news.
        if ready_at is not None and ready_at <= after:
            ready_at = None
        self._nodes.apply(state, at, ready_at=ready_at)
        self._pods.reassess({state.name})

    def _state(self, node: Mapping[str, Any]) -> NodeState:
        resources, keys = self._tiers.resources, self._tiers.label_keys
        state = node_state(node, named=resources, label_keys=keys)
        self._states[state.name] = state
        return self._offering(state)

    def _offering(self, state: NodeState) -> NodeState:
        """Return a node's state with its devices; while no slice was seen, with those known."""
        devices = self._dra.of_node(state.name)
        if devices is None:
            interval = self._nodes.get(state.name)
            devices = () if interval is None else interval.state.devices
        return replace(state, devices=devices)

    # ------------------------------------------------------------ what explains pending work

    def _apply_observed(
        self, items: Sequence[Item], naming: set[str], touched: set[str], at: float
    ) -> None:
        """Apply a batch of objects that explain pending work, and its effects on nodes and claims.

        `naming` are pods whose claims were seen differently, `touched` nodes whose devices were.
        None of this counts for the span watched.
        """
        for item in items:
            if not self._objects.is_of_templates(item.path):
                self._apply_item(item)
        classes = self._dra.devices.gpu_classes | self._tiers.device_classes
        other, self._gpu_classes = classes != self._gpu_classes, classes
        self._objects.claims_changed(at, everything=other, pods=naming)
        holders = {record.node for record in self._dra.claims.changed.values()}
        self._objects.settle(at, self._states.keys() if "" in holders else touched | holders)

    def _context(self, kind: ObservedKind, item: Mapping[str, Any]) -> ExtractionContext:
        is_pod = kind is ObservedKind.POD
        return ExtractionContext(
            named=self._tiers.resources,
            owner=self._tops.get(str(item["metadata"].get("uid", ""))) if is_pod else None,
            gpu_memory=self._shared_gpus.memory(KubePod.of(item)) if is_pod else 0.0,
            claims=self._claims(item) if is_pod else NO_CLAIMS,
            is_gpu_class=self._dra.is_gpu,
            template_classes=self._objects.templates,
        )

    def _devices_offered(self, node: str) -> tuple[OfferedDevice, ...]:
        return self._dra.of_node(node) or ()

    def _devices_held(self) -> Iterator[ClaimedDevice]:
        return (d for record in self._dra.claims.items.values() for d in record.devices)

    # ------------------------------------------------------------ writing

    @gc_paused()
    def write(self) -> int:
        """Write what changed; return how many rows of the ledger that were. Else no query.

        The span watched is written after the ledger: it never covers what is not in the database.
        Objects that explain pending work come last, and delay nothing.
        """
        try:
            rows = self._write()
        except IntegrityError:
            # A namespace or workload was deleted beside us: its id must be made anew.
            self._names = NameRegistry(self._cluster)
            rows = self._write()
        self._write_objects()
        self._people.write(self._cluster)
        return rows

    def _write_objects(self) -> None:
        store = self._objects.store
        try:
            write_objects(self._cluster, list(store.changed.values()))
        except (DataError, IntegrityError):
            # One that no database takes must neither stop the others nor come back for ever.
            for one in store.changed.values():
                self._write_alone(one)
        store.written()

    def _write_alone(self, one: ObservedObject) -> None:
        try:
            write_objects(self._cluster, [one])
        except (DataError, IntegrityError):
            logger.exception("what was seen of %s %s is not written", one.kind, one.uid)

    def _write(self) -> int:
        self._pods.assign(self._assigned)
        uids = sorted(self._pods.changed)
        pods = [self._pods.items[uid] for uid in uids]
        self._names.namespaces(self._namespaces)
        pod_store.write_pods(self._cluster, pods, self._names)
        pod_store.write_people(self._cluster, {**self._people.late, **self._pods.people})
        claims = list(self._dra.claims.changed.values())
        if claims:
            write_claims(self._cluster, claims, self._names, self._assigned_claim)
        notes = {**self._dra.notes(), **self._objects.notes(), **self._unread_notes()}
        if notes != self._notes:
            write_notes(self._cluster, notes, self._now)
        intervals = dict(self._nodes.changed)
        node_store.write_intervals(intervals, self._names)
        # Read only now: the span must not cover what is not written above.
        spans = self._coverage.unwritten
        pod_store.write_spans(self._cluster, spans)
        if self._listed_pods and spans:
            inferred_pods.end_unlisted(self._cluster, self._names)
            self._listed_pods = False
        self._pods.written()
        self._people.late.clear()
        self._nodes.written()
        self._dra.claims.written()
        self._notes = notes
        self._coverage.written()
        self._namespaces.clear()
        return len(pods) + len(intervals) + len(claims)

    def _assigned(self, tracked: TrackedPod) -> TierAssignment | None:
        """Return what a pod counts as: by its node's labels once bound, until then as it asks.

        None where there is nothing new to say: its node has gone.
        """
        interval = self._nodes.get(tracked.record.node)
        if tracked.record.bound is not None and interval is None and tracked.assigned is not None:
            return None
        labels = None if interval is None else interval.state.labels
        devices = self._dra.devices_of(tracked.record.claims)
        # Only a pending pod may come to any node; a bound one weighs what its own node says.
        offers = self._offers() if tracked.record.bound is None else None
        return self._tiers.assign(tracked.record, labels, self._now, devices, offers)

    def _offers(self) -> NodeOffers:
        """Return the nodes that pods may come to, made anew when one of them changed."""
        if self._nodes_known is None:
            self._nodes_known = NodeOffers(
                [_node_offer(interval.state) for _, interval in sorted(self._nodes.items.items())]
            )
        return self._nodes_known

    def _assigned_claim(self, tracked: TrackedPod, claim: ClaimAllocationRecord) -> TierAssignment:
        """Return what a claim counts as that no pod uses."""
        interval = self._nodes.get(claim.node)
        labels = None if interval is None else interval.state.labels
        return self._tiers.assign(tracked.record, labels, self._now, claim.devices)


def _node_offer(state: NodeState) -> NodeOffer:
    amounts = (*state.capacity.items(), *state.allocatable.items())
    offers = {resource for resource, units in amounts if units > 0}
    parts: dict[str, Counter[float]] = defaultdict(Counter)
    for device in state.devices:
        for name in device.classes:
            parts[name][mig_part(device.profile, device.model)] += 1
    # A class may select parts of several sizes: a pending request counts as the usual one.
    usual = {name: max(of, key=lambda part: (of[part], part)) for name, of in parts.items()}
    return NodeOffer(state.labels, offers | usual.keys(), usual)


def _decoded(item: Item) -> Item:
    """Return an item with its pods decoded, once for all who read them."""
    if item.path == PODS and isinstance(item, Relisted):
        return replace(item, items=[KubePod(pod) for pod in item.items])
    if item.path == PODS and isinstance(item, WatchEvent):
        return replace(item, change=replace(item.change, object=KubePod(item.change.object)))
    return item
