"""Objects that explain why work is pending, as `watch` follows them and keeps them in memory."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.mig import devices_of
from apps.clusters.domain.observed.extract import (
    observed_object,
    setting_of,
    template_classes,
)
from apps.clusters.domain.observed.objects import (
    CONTROLLERS,
    WITH_HISTORY,
    Body,
    ControllerSnapshot,
    EventSnapshot,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    PodGroupSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.domain.observed.pods import ExtractionContext, event_snapshot, is_settled
from apps.clusters.domain.observed.store import ObservedStore
from apps.clusters.domain.pods.ledger import ClaimedDevice, OfferedDevice, Owner, controller_of
from apps.clusters.services.pods.node_store import NodeUse
from apps.clusters.services.watch.collections import (
    Sources,
    plural_of,
    refusal_text,
    silence_text,
    uid_of,
)

_INSTANT = 1e-3

Key = tuple[ObservedKind, str]

# As long as the API server keeps an event that is not repeated (--event-ttl).
KEEP_SECONDS = 3600.0
MOST_EARLY = 10_000
_CHECK_SECONDS = 60.0
_OF_ATTEMPTS = frozenset({"FailedCreate", "FailedToCreatePod"})
"""What a controller tells each time it tries: once it is silent, they explain nothing."""
_Name = tuple[str, str]
"""Namespace and name."""
Object = Mapping[str, Any]
ContextOf = Callable[[ObservedKind, Object], ExtractionContext]
OwnersOf = Callable[[Iterable[Object]], Mapping[str, Owner]]
_NAMES_CLAIMS = (ObservedKind.POD, ObservedKind.RESOURCE_CLAIM, *CONTROLLERS)
_OF_THE_LEDGER = {ObservedKind.POD, ObservedKind.NODE, ObservedKind.RESOURCE_CLAIM}
_OWNED = (ControllerSnapshot, WorkloadSnapshot, PodGroupSnapshot)


class ObjectStore(ObservedStore[ObservedObject]):
    """Every object that is there, by kind and uid.

    Of kinds with history a change of what was set ends one observed object and begins another,
    with a row of its own; of the others a change is put to the one there is.
    """

    def __init__(self, present: Iterable[ObservedObject] = ()) -> None:
        super().__init__(_key, present, row=_row, indexes={"kind": _kind, "subject": _subject})
        self.gone_at: dict[str, float] = {}

    def uids(self, kind: ObservedKind) -> list[str]:
        """Return the uids of what is there of a kind."""
        return [uid for _, uid in self.index_keys("kind", kind)]

    def has(self, uid: str) -> bool:
        """Say whether anything but an event is there under a uid."""
        return bool(self.index_keys("subject", uid))

    def apply(
        self, kind: ObservedKind, uid: str, name: tuple[str, str], body: Body | None, at: float
    ) -> None:
        """Apply an object as it is at `at`; `name` is its namespace and name.

        A body of None is of no interest: if it was before, it is gone for us.
        """
        if body is None:
            self.delete(kind, uid, at)
            return
        known = self.get((kind, uid))
        if known is None:
            self.gone_at.pop(uid, None)
            self.keep(ObservedObject(kind, uid, name[0], name[1], body, at, at))
        elif known.body != body:
            # Rows are told apart by their beginning: two settings of one instant are one.
            if _is_set_anew(kind, known, body) and at - known.first > _INSTANT:
                self.mark(replace(known, gone=at))
                known = replace(known, first=at)
            self.keep(replace(known, body=body, changed=at))

    def delete(self, kind: ObservedKind, uid: str, at: float) -> None:
        """Apply that an object is no more, or of no interest any more."""
        known = self.drop((kind, uid))
        if known is not None:
            # Events may come after the end of their object: its time says whether they still
            # matter.
            if kind is not ObservedKind.EVENT:
                self.gone_at[uid] = at
            self.mark(replace(known, gone=max(at, known.first)))

    def relist(self, kind: ObservedKind, uids: Collection[str], at: float) -> None:
        """Apply a whole list: what is not in it is gone."""
        for uid in sorted(set(self.uids(kind)) - set(uids)):
            self.delete(kind, uid, at)

    def forget_gone(self, before: float) -> None:
        """Drop from memory the deletion times that lie before a time."""
        self.gone_at = {uid: at for uid, at in self.gone_at.items() if at >= before}


def _key(one: ObservedObject) -> Key:
    return (one.kind, one.uid)


def _row(one: ObservedObject) -> tuple[ObservedKind, str, float | None]:
    return (one.kind, one.uid, one.first if one.kind in WITH_HISTORY else None)


def _kind(one: ObservedObject) -> tuple[ObservedKind]:
    return (one.kind,)


def _subject(one: ObservedObject) -> tuple[str, ...]:
    return () if one.kind is ObservedKind.EVENT else (one.uid,)


def _is_set_anew(kind: ObservedKind, known: ObservedObject, body: Body) -> bool:
    return kind in WITH_HISTORY and setting_of(known.body) != setting_of(body)


def _name(item: Mapping[str, Any]) -> _Name:
    metadata = item["metadata"]
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


class EventStore:
    """Events about objects of the store, or pods of the ledger.

    An event may arrive before its object: the latest of these are held in memory, for at most
    `MOST_EARLY` objects. An event that explains pending work stays, even after the server forgets
    it, until its object is gone for an hour and it was not repeated for as long. An event of a
    failed pod creation stays only until it was not repeated for an hour.
    """

    def __init__(self, store: ObjectStore, is_ledger_pod: Callable[[str], bool]) -> None:
        self._store = store
        self._is_ledger_pod = is_ledger_pod
        self._early: dict[str, dict[str, tuple[_Name, EventSnapshot, float]]] = {}
        self._looked = 0.0

    def apply(self, item: Mapping[str, Any], at: float) -> None:
        """Apply an event as it was shown."""
        event = event_snapshot(item)
        if event is None or self._is_over(event, at):
            return
        uid, name = uid_of(item), _name(item)
        if self._is_known(event.about_uid) or (ObservedKind.EVENT, uid) in self._store:
            self._store.apply(ObservedKind.EVENT, uid, name, event, at)
            return
        # Taken out and put in again at the end: at MOST_EARLY the object with the oldest news goes.
        about = self._early.pop(event.about_uid, {})
        about[uid] = (name, event, at)
        self._early[event.about_uid] = about
        if len(self._early) > MOST_EARLY:
            del self._early[next(iter(self._early))]

    def settle(self, at: float) -> None:
        """Bring in events whose subjects have come; now and then let go of what is over."""
        for about in [uid for uid in self._early if self._is_known(uid)]:
            for uid, (name, event, seen) in self._early.pop(about).items():
                self._store.apply(ObservedKind.EVENT, uid, name, event, seen)
        if at - self._looked >= _CHECK_SECONDS:
            self._looked = at
            self._let_go(at)

    def _let_go(self, at: float) -> None:
        for known in self._store.by_index("kind", ObservedKind.EVENT):
            if isinstance(known.body, EventSnapshot) and self._is_over(known.body, at):
                self._store.delete(ObservedKind.EVENT, known.uid, at)
        self._store.forget_gone(at - KEEP_SECONDS)

    def _is_over(self, event: EventSnapshot, at: float) -> bool:
        """Say whether the subject of an event is gone, and its last repetition an hour ago."""
        last = event.last if event.last is not None else at
        if event.reason in _OF_ATTEMPTS:
            return at - last > KEEP_SECONDS
        if self._store.has(event.about_uid):
            return False
        since = max(last, self._store.gone_at.get(event.about_uid, last))
        return at - since > KEEP_SECONDS

    def _is_known(self, uid: str) -> bool:
        return self._store.has(uid) or uid in self._store.gone_at or self._is_ledger_pod(uid)


class SyncContext(NamedTuple):
    """What the rest of the watch knows, asked for when it is needed.

    `context` tells what is known of an object, `owners` the top controllers of several by uid,
    `offered` the devices of a node, `held` every device that an open claim has, `is_ledger_pod`
    whether the ledger has a pod of that uid.
    """

    context: ContextOf
    owners: OwnersOf
    offered: Callable[[str], tuple[OfferedDevice, ...]]
    held: Callable[[], Iterable[ClaimedDevice]]
    is_ledger_pod: Callable[[str], bool]


class _Node(NamedTuple):
    """A node as it tells itself, without what its pods were promised of it."""

    uid: str
    name: str
    body: NodeSnapshot


class ObjectWatch:
    """The observed objects of one cluster and what is needed to keep it.

    Taking in the same again changes nothing. Nothing here reads or writes the database.
    """

    def __init__(
        self, sources: Sources, around: SyncContext, present: Iterable[ObservedObject]
    ) -> None:
        self.store = ObjectStore(present)
        self.templates: dict[tuple[str, str], Mapping[str, float]] = {}
        self.use = NodeUse()
        self._events = EventStore(self.store, around.is_ledger_pod)
        self._around = around
        self._silent: dict[str, str] = {}
        self._nodes = ObservedStore[_Node](
            lambda node: node.name, indexes={"uid": lambda node: (node.uid,)}
        )
        # Objects that name claims: what they ask for may become known later.
        self._naming = {kind: ObservedStore[Object](uid_of) for kind in _NAMES_CLAIMS}
        self._templates_changed = False
        self.serve(sources)

    def serve(self, sources: Sources) -> None:
        """Take in which collections the server has from now on; what others held is gone."""
        self._sources = sources
        self._refusals = dict(sources.refusals or {})
        self._silent = {p: why for p, why in self._silent.items() if p in sources.paths}
        served = _OF_THE_LEDGER | set(sources.kinds.values())
        self._unserved: frozenset[ObservedKind] | None = frozenset(ObservedKind) - served

    def follows(self, path: str) -> bool:
        """Say whether a collection is read for this alone."""
        return path in self._sources.kinds or self.is_of_templates(path)

    def kind_of(self, path: str) -> ObservedKind | None:
        """Return what a collection that is read for this alone holds; None for others."""
        return self._sources.kinds.get(path)

    def is_of_templates(self, path: str) -> bool:
        """Say whether a collection is that of claims' templates, which pods are read with."""
        return path != "" and path == self._sources.templates

    # ------------------------------------------------------------ collections of its own

    def relist(self, path: str, items: Sequence[Object], at: float) -> None:
        """Apply a whole collection."""
        self._refusals.pop(path, None)
        self.answered(path)
        kind = self._sources.kinds.get(path)
        if kind is None:
            self.templates.clear()
            for item in items:
                self._template(item, gone=False)
        elif kind is ObservedKind.EVENT:
            for item in items:
                self._events.apply(item, at)
        else:
            self.relist_objects(kind, items, at)

    def apply(self, path: str, item: Object, at: float, *, gone: bool) -> None:
        """Apply one object as it is, or that it is no more."""
        kind = self._sources.kinds.get(path)
        if kind is None:
            self._template(item, gone=gone)
        elif kind is ObservedKind.EVENT:
            # A server forgets events after an hour; here they stay while they explain something.
            if not gone:
                self._events.apply(item, at)
        else:
            self.apply_object(kind, item, at, gone=gone)

    def refused(self, path: str, why: str) -> None:
        """Note that a collection may not be read: what is known of it stays as it was."""
        self._refusals[path] = refusal_text(path, self._sources.kinds.get(path), why)

    def unanswered(self, path: str, why: str) -> None:
        """Note that the server says nothing of a collection: what is known of it may be over."""
        self._silent[path] = silence_text(path, self._sources.kinds.get(path), why)

    def answered(self, path: str) -> None:
        """Note that the server tells of a collection again."""
        self._silent.pop(path, None)

    def _template(self, item: Object, *, gone: bool) -> None:
        key = _name(item)
        if gone:
            self.templates.pop(key, None)
        else:
            self.templates[key] = template_classes(item)
        self._templates_changed = True

    # ------------------------------------------------------------ objects of any collection

    def apply_objects(self, kind: ObservedKind, items: Iterable[Object], at: float) -> None:
        """Apply objects as they are."""
        found: list[tuple[Object, Body | None]] = []
        for item in items:
            if kind is ObservedKind.POD:
                self.use.apply(item)
            if kind in _NAMES_CLAIMS:
                self._remember(kind, item)
            # A running pod needs no explanation; what it requests still counts on its node.
            if kind is ObservedKind.POD and is_settled(item):
                body = None
            else:
                body = observed_object(kind, item, self._around.context(kind, item))
            found.append((item, body))
        owned = [item for item, body in found if isinstance(body, _OWNED) and controller_of(item)]
        # All in one go: owners that are not known cost requests to the API server.
        owners = self._around.owners(owned) if owned else {}
        for item, body in found:
            self._see(kind, item, _with_owner(body, owners.get(uid_of(item))), at)

    def _see(self, kind: ObservedKind, item: Object, body: Body | None, at: float) -> None:
        name = _name(item)
        if isinstance(body, NodeSnapshot):
            node = _Node(uid_of(item), name[1], body)
            known = self._nodes.put(node)
            # A node that was made anew under its name: the deletion of the old one may come later.
            if known is not None and known.uid != node.uid:
                self.store.delete(ObservedKind.NODE, known.uid, at)
            if known != node:
                self.use.dirty.add(node.name)
            return
        self.store.apply(kind, uid_of(item), name, body, at)

    def _remember(self, kind: ObservedKind, item: Object) -> None:
        spec = item.get("spec") or {}
        if kind in CONTROLLERS:
            spec = (spec.get("template") or {}).get("spec") or {}
        if kind is ObservedKind.RESOURCE_CLAIM or spec.get("resourceClaims"):
            self._naming[kind].put(item)

    def apply_object(self, kind: ObservedKind, item: Object, at: float, *, gone: bool) -> None:
        """Apply one object as it is, or that it is no more."""
        if not gone:
            self.apply_objects(kind, [item], at)
            return
        uid = uid_of(item)
        if kind in self._naming:
            self._naming[kind].drop(uid)
        if kind is ObservedKind.POD:
            self.use.delete(uid)
        if kind is ObservedKind.NODE:
            for node in self._nodes.by_index("uid", uid):
                self._nodes.drop(node.name)
        self.store.delete(kind, uid, at)

    def relist_objects(self, kind: ObservedKind, items: Sequence[Object], at: float) -> None:
        """Apply all objects of a kind: others are not there."""
        self.apply_objects(kind, items, at)
        uids = {uid_of(item) for item in items}
        if kind in self._naming:
            self._naming[kind].retain(uids)
        if kind is ObservedKind.POD:
            self.use.relist(uids)
        if kind is ObservedKind.NODE:
            self._nodes.retain({one.name for one in self._nodes.items.values() if one.uid in uids})
        self.store.relist(kind, uids, at)

    # ------------------------------------------------------------ what follows from all of it

    def claims_changed(self, at: float, *, everything: bool, pods: Collection[str]) -> None:
        """Look again at what names claims: `everything`, or the pods of these uids."""
        everything = everything or self._templates_changed
        self._templates_changed = False
        if everything:
            for kind, naming in self._naming.items():
                self.apply_objects(kind, list(naming.items.values()), at)
        else:
            found = map(self._naming[ObservedKind.POD].get, sorted(pods))
            self.apply_objects(ObservedKind.POD, [pod for pod in found if pod is not None], at)

    def settle(self, at: float, touched: Collection[str]) -> None:
        """Bring nodes and events in line; `touched` are nodes whose devices may differ now."""
        # Of kinds that the server has no more no stream will tell the end: they end now, once.
        if self._unserved is not None:
            for kind in self._unserved:
                self.store.relist(kind, (), at)
            self._unserved = None
        # Once for each node and batch: a thousand pods that come and go change few nodes.
        dirty = (self.use.dirty | set(touched)) & self._nodes.items.keys()
        held = list(self._around.held()) if dirty else []
        for name in sorted(dirty):
            uid, _, base = self._nodes.items[name]
            self.store.apply(ObservedKind.NODE, uid, ("", name), self._node(name, base, held), at)
        self.use.dirty.clear()
        self._events.settle(at)

    def _node(self, name: str, base: NodeSnapshot, held: Sequence[ClaimedDevice]) -> NodeSnapshot:
        offered = self._around.offered(name)
        if not offered:
            return replace(base, used=self.use.used(name))
        gpus = {device.card for device in offered}
        found = devices_of(offered, (one for one in held if one.card in gpus))
        return replace(
            base, used=self.use.used(name), devices=found.offered, free_devices=found.free
        )

    def notes(self) -> dict[str, str]:
        """Return what keeps this from being whole, by what it is about."""
        issues = {**self._silent, **self._refusals}
        return {f"waiting:{plural_of(path)}": why for path, why in issues.items()}


def _with_owner(body: Body | None, owner: Owner | None) -> Body | None:
    if owner is None or not isinstance(body, _OWNED):
        return body
    return replace(body, owner_kind=owner.kind, owner=owner.name)
