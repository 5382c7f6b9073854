"""Events that explain what is seen, kept for as long as they do."""

from collections.abc import Callable, Mapping
from typing import Any

from apps.clusters.domain.observed.events import event_snapshot
from apps.clusters.domain.observed.objects import EventSnapshot, ObservedKind
from apps.clusters.services.objects.object_store import ObjectStore

KEEP_SECONDS = 3600.0
MOST_EARLY = 10_000
_LOOK_SECONDS = 60.0
_OF_ATTEMPTS = frozenset({"FailedCreate", "FailedToCreatePod"})
"""What a controller tells each time it tries: once it is silent, they explain nothing."""

_Name = tuple[str, str]


class EventStore:
    """Events about things that the store has, or pods that the ledger has.

    An event may come before what it is about: the latest of these wait in memory, of at most
    `MOST_EARLY` things. One that explains something stays, whatever the server forgets, until
    that is gone for an hour and nobody has repeated it for as long; that a pod could not be made
    stays only until it has not been repeated for an hour.
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
        metadata = item["metadata"]
        uid = str(metadata.get("uid", ""))
        name = (str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        if self._is_known(event.about_uid) or (ObservedKind.EVENT, uid) in self._store:
            self._store.apply(ObservedKind.EVENT, uid, name, event, at)
            return
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
        if at - self._looked >= _LOOK_SECONDS:
            self._looked = at
            self._let_go(at)

    def _let_go(self, at: float) -> None:
        for known in self._store.by_index("kind", ObservedKind.EVENT):
            if isinstance(known.body, EventSnapshot) and self._is_over(known.body, at):
                self._store.delete(ObservedKind.EVENT, known.uid, at)
        self._store.forget_gone(at - KEEP_SECONDS)

    def _is_over(self, event: EventSnapshot, at: float) -> bool:
        """Say whether what an event is about is gone, and it was last issues an hour ago."""
        last = event.last if event.last is not None else at
        if event.reason in _OF_ATTEMPTS:
            return at - last > KEEP_SECONDS
        if self._store.has(event.about_uid):
            return False
        since = max(last, self._store.gone_at.get(event.about_uid, last))
        return at - since > KEEP_SECONDS

    def _is_known(self, uid: str) -> bool:
        return self._store.has(uid) or uid in self._store.gone_at or self._is_ledger_pod(uid)
