"""From what the API server shows, in whatever order it arrives, to the rows of the ledger."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import IntegrityError

from apps.clusters.domain.kube_objects import (
    NodeState,
    Run,
    assumed_runs,
    deletion_time,
    lacks_finish,
    node_state,
    pod_record,
    ready_since,
)
from apps.clusters.domain.ledger import Owner, PodRecord
from apps.clusters.domain.owners import nearest_owner
from apps.clusters.ports import Change, ClusterSource
from apps.clusters.services import ledger_writer
from apps.clusters.services.coverage import Coverage
from apps.clusters.services.names import Names
from apps.clusters.services.node_book import NodeBook
from apps.clusters.services.owner_lookup import OwnerLookup
from apps.clusters.services.pod_book import Look, PodBook, TrackedPod
from apps.clusters.services.tier_history import Assigned, TierHistory
from apps.clusters.services.versions import Versions

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/pods"
COLLECTIONS = (NODES, NAMESPACES, PODS)

_RULES_SECONDS = 30.0
_KINDS = frozenset({"ADDED", "MODIFIED", "DELETED"})


@dataclass(frozen=True, slots=True)
class Listed:
    """A whole collection, asked for at `at` (Unix seconds)."""

    path: str
    items: Sequence[Mapping[str, Any]]
    at: float


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of a collection's watch, when it arrived and when that watch was asked for."""

    path: str
    change: Change
    at: float
    asked: float | None = None


@dataclass(frozen=True, slots=True)
class Followed:
    """A collection's watch ended in order: every change until `at` has arrived."""

    path: str
    at: float
    asked: float | None = None


Item = Listed | Seen | Followed

# Pod uid → the runs to assume of a pod seen for the first time.
Assumed = Mapping[str, tuple[Run, ...]]


@dataclass(slots=True)
class _Pods:
    """The GPU pods of each item of a batch, and by uid the runs to assume of new ones."""

    of_item: list[list[Look]]
    assumed: Assumed


class Recorder:
    """The state of one cluster's ledger in memory, and how it gets into the database.

    `take` reads in a batch and `write` stores what changed; either may be called again after a
    database error and then does what it would have done. Only one thread may use it.
    """

    def __init__(self, cluster_id: int, source: ClusterSource) -> None:
        self._cluster = cluster_id
        self._owners = OwnerLookup(source)
        self._names = Names(cluster_id)
        self._tiers = TierHistory.load()
        self._tiers_at = 0.0
        self._nodes = NodeBook(ledger_writer.open_spells(cluster_id))
        self._pods = PodBook(ledger_writer.present_pods(cluster_id))
        self._last_watched = ledger_writer.last_watched(cluster_id)
        self._coverage = Coverage((NODES, PODS))
        self._versions: dict[str, Versions] = defaultdict(Versions)
        self._relist = False
        self._namespaces: set[str] = set()
        self._now = 0.0

    @property
    def counts(self) -> tuple[int, int]:
        """How many GPU nodes and GPU pods there are."""
        return len(self._nodes.open), len(self._pods.pods)

    # ------------------------------------------------------------ taking in

    def take(self, batch: Sequence[Item]) -> bool:
        """Take in a batch, in order. Return whether the catalog now needs everything listed anew.

        That is so when tiers name other resources or node labels than before: objects that were
        of no interest then may be now.
        """
        if not batch:
            return False
        self._refresh_tiers(max(item.at for item in batch))
        pods = self._prepared(batch)
        for item, looks in zip(batch, pods.of_item, strict=True):
            self._now = max(self._now, item.at)
            if isinstance(item, Listed):
                self._take_list(item, looks, pods.assumed)
            elif isinstance(item, Seen) and item.change.type != "BOOKMARK":
                self._take_change(item, looks, pods.assumed)
            else:
                self._coverage.caught_up(item.path, item.at, item.asked)
        relist, self._relist = self._relist, False
        return relist

    def _refresh_tiers(self, now: float) -> None:
        """Read the catalog's rules now and then; note when everything must be listed anew.

        The note is kept until `take` succeeds: the database may go away in between.
        """
        if now - self._tiers_at < _RULES_SECONDS:
            return
        before, self._tiers, self._tiers_at = self._tiers, TierHistory.load(), now
        if self._tiers != before:
            self._pods.look_again()
        self._relist = self._relist or not (
            self._tiers.resources <= before.resources
            and self._tiers.label_keys <= before.label_keys
        )

    def _prepared(self, batch: Sequence[Item]) -> _Pods:
        """Parse the batch's pods, find their owners and load the rows that may exist of them.

        All that can fail for want of a database or an API server happens here, before anything
        in memory changes.
        """
        if any(isinstance(item, Listed) and item.path == PODS for item in batch):
            self._owners.forget()
        parsed = [list(self._parse(item)) for item in batch]
        found = [pair for pairs in parsed for pair in pairs]
        tops = self._owners.top_owners(pod for pod, _ in found)
        new = self._pods.unknown(record.uid for _, record in found)
        self._pods.adopt(ledger_writer.known_pods(self._cluster, new))
        unseen = frozenset(new)
        return _Pods(
            of_item=[[self._look(pod, _owned(r, tops)) for pod, r in pairs] for pairs in parsed],
            assumed={
                record.uid: assumed_runs(pod, self._tiers.resources)
                for pod, record in found
                if record.uid in unseen
            },
        )

    def _parse(self, item: Item) -> Iterator[tuple[Mapping[str, Any], PodRecord]]:
        """Yield the pods of an item that ask for GPU, with their records."""
        for pod, deleted in _pods_of(item):
            record = pod_record(
                pod, owner=nearest_owner(pod), named=self._tiers.resources, deleted=deleted
            )
            if record is not None:
                yield pod, record

    def _look(self, pod: Mapping[str, Any], record: PodRecord) -> Look:
        return Look(record, vague=lacks_finish(pod, self._tiers.resources))

    def _take_list(self, listed: Listed, looks: list[Look], assumed: Assumed) -> None:
        proof = self._coverage.last_proof(listed.path)
        last_seen = proof if proof is not None else self._last_watched
        self._coverage.listed(listed.path, listed.at)
        self._versions[listed.path].listed(listed.items)
        if listed.path == NODES:
            states = [self._state(item) for item in listed.items]
            self._nodes.listed(states, listed.at, last_seen)
            self._pods.look_again({state.name for state in states})
        elif listed.path == PODS:
            for look in looks:
                self._pods.seen(look, listed.at, assumed=assumed.get(look.record.uid, ()))
            self._pods.listed({look.record.uid for look in looks}, listed.at, last_seen)
        else:
            self._namespaces.update(str(i["metadata"]["name"]) for i in listed.items)

    def _take_change(self, seen: Seen, looks: list[Look], assumed: Assumed) -> None:
        item, kind = seen.change.object, seen.change.type
        proof = self._coverage.last_proof(seen.path)
        after = seen.at if proof is None else proof
        late = self._coverage.arrived(seen.path, seen.at, seen.asked)
        deleted = kind == "DELETED"
        if kind not in _KINDS or self._versions[seen.path].is_stale(item, gone=deleted):
            return
        gone = deletion_time(item, after=after, at=seen.at) if late else seen.at
        if seen.path == NODES:
            self._take_node(item, seen.at, after, gone if deleted else None)
        elif seen.path == PODS:
            for look in looks:
                record = replace(look.record, deleted=gone) if deleted else look.record
                runs = assumed.get(record.uid, ())
                self._pods.seen(look._replace(record=record), seen.at, assumed=runs)
        elif not deleted:
            self._namespaces.add(str(item["metadata"]["name"]))

    def _take_node(
        self, item: Mapping[str, Any], at: float, after: float, gone: float | None
    ) -> None:
        state = self._state(item)
        if gone is not None:
            self._nodes.gone(state.name, gone)
            return
        ready_at = ready_since(item)
        if ready_at is not None and ready_at <= after:
            ready_at = None
        self._nodes.seen(state, at, ready_at=ready_at)
        self._pods.look_again({state.name})

    def _state(self, node: Mapping[str, Any]) -> NodeState:
        return node_state(node, named=self._tiers.resources, label_keys=self._tiers.label_keys)

    # ------------------------------------------------------------ writing

    def write(self) -> int:
        """Write what changed; return how many rows that were. Nothing changed: no query.

        The span watched is written last: it never vouches for what is not in the database.
        """
        try:
            return self._write()
        except IntegrityError:
            # A namespace or workload was deleted beside us: its id must be made anew.
            self._names = Names(self._cluster)
            return self._write()

    def _write(self) -> int:
        self._pods.assign(self._assigned)
        uids = sorted(self._pods.changed)
        pods = [self._pods.pods[uid] for uid in uids]
        self._names.namespaces(self._namespaces)
        ledger_writer.write_pods(self._cluster, pods, self._names)
        spells = dict(self._nodes.changed)
        ledger_writer.write_spells(spells, self._names)
        spans = self._coverage.unwritten
        ledger_writer.write_spans(self._cluster, spans)
        self._pods.written(uids)
        self._nodes.changed.clear()
        self._coverage.written()
        self._namespaces.clear()
        return len(pods) + len(spells)

    def _assigned(self, tracked: TrackedPod) -> Assigned | None:
        """Return what a pod counts as: by its node's labels once bound, until then as it asks.

        None where there is nothing new to say: its node has gone.
        """
        spell = self._nodes.open.get(tracked.record.node)
        if tracked.record.bound is not None and spell is None and tracked.assigned is not None:
            return None
        labels = None if spell is None else spell.state.labels
        return self._tiers.assign(tracked.record, labels, self._now)


def _owned(record: PodRecord, tops: Mapping[str, Owner]) -> PodRecord:
    top = tops.get(record.uid, record.owner)
    return record if top == record.owner else replace(record, owner=top)


def _pods_of(item: Item) -> Iterator[tuple[Mapping[str, Any], float | None]]:
    """Yield each pod of an item, and when it was seen to go if it was."""
    if isinstance(item, Followed) or item.path != PODS:
        return
    if isinstance(item, Listed):
        yield from ((pod, None) for pod in item.items)
    elif item.change.type in _KINDS:
        yield item.change.object, item.at if item.change.type == "DELETED" else None
