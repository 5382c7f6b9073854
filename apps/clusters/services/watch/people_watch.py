"""Who is behind what a cluster shows, where the portal keeps that: pods, and work without one."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from django.conf import settings

from apps.clusters.domain.kube_json import items, mapping, text
from apps.clusters.domain.observed.objects import CONTROLLERS, ObservedKind
from apps.clusters.domain.pods.people import (
    PersonSource,
    person_behind,
    person_of,
    profile_owner,
)
from apps.clusters.models import ObservedObject, ObservedPerson
from apps.clusters.services.pods.ledger_rows import chunks, upsert
from apps.clusters.services.pods.pod_store import former_people
from apps.clusters.services.watch.collections import Item, Relisted, WatchEvent, uid_of

NAMESPACES: Final = "/api/v1/namespaces"
PODS: Final = "/api/v1/pods"
_OF_WORK: Final = frozenset({*CONTROLLERS, ObservedKind.KUEUE_WORKLOAD})
_SPACE: Final = "namespace/"
_AT_ONCE = 500
KindOf = Callable[[str], ObservedKind | None]


class PeopleWatch:
    """Whose pods and work of one cluster are; nothing where the portal does not keep that.

    A pod that names no person is of whom its controller names, else of the owner of the Kubeflow
    profile of its namespace. `late` are pods of which that became known after they were read.
    """

    def __init__(self) -> None:
        self.late: dict[str, str] = {}
        self._behind: dict[str, str] = {}
        self._unnamed: dict[str, set[str]] = defaultdict(set)
        self._unwritten: dict[str, str] = {}
        self._written: dict[str, str] = {}

    def apply(self, batch: Iterable[Item], kind_of: KindOf) -> None:
        """Take in controllers, Workloads of Kueue and namespaces of a batch, before its pods."""
        sources = _sources()
        if not sources:
            return
        for item in batch:
            if isinstance(item, Relisted):
                if item.path == PODS:
                    self._unnamed.clear()
                if item.path == NAMESPACES:
                    # Those that went while nothing was seen are not in the list.
                    kept = (one for one in self._behind.items() if not one[0].startswith(_SPACE))
                    self._behind = dict(kept)
                self._see(item.path, item.items, kind_of, sources)
            elif isinstance(item, WatchEvent) and item.change.type == "DELETED":
                self._forget(item.path, item.change.object)
            elif isinstance(item, WatchEvent) and item.change.type != "BOOKMARK":
                self._see(item.path, [item.change.object], kind_of, sources)

    def _see(
        self,
        path: str,
        objects: Sequence[Mapping[str, Any]],
        kind_of: KindOf,
        sources: Sequence[PersonSource],
    ) -> None:
        if path == NAMESPACES:
            for one in objects:
                key, person = _namespace(one, "name"), profile_owner(one, sources)
                if not person:
                    # Made anew without a profile, or taken from it: its pods tell no person.
                    self._behind.pop(key, None)
                self._learn(key, person)
        elif kind_of(path) in _OF_WORK:
            for one in objects:
                uid, person = uid_of(one), person_behind(one, sources)
                self._learn(uid, person)
                if person and self._written.get(uid) != person:
                    self._unwritten[uid] = person

    def _learn(self, key: str, person: str) -> None:
        if person and self._behind.get(key) != person:
            self._behind[key] = person
            self.late |= dict.fromkeys(self._unnamed.pop(key, ()), person)

    def _forget(self, path: str, item: Mapping[str, Any]) -> None:
        if path == NAMESPACES:
            # The next of this name may be of another person.
            self._behind.pop(_namespace(item, "name"), None)
        uid = uid_of(item)
        for known in (self._behind, self._unwritten, self._written):
            known.pop(uid, None)
        for key in _keys(item):
            self._unnamed.get(key, set()).discard(uid)

    def of_pod(self, pod: Mapping[str, Any]) -> str:
        """Return who is behind a pod; empty where that is not kept, or not known."""
        sources = _sources()
        if not sources:
            return ""
        person = person_of(mapping(pod, "metadata"), sources)
        keys = [] if person else _keys(pod)
        found = person or next((self._behind[key] for key in keys if key in self._behind), "")
        if not found:
            for key in keys:
                self._unnamed[key].add(uid_of(pod))
        return found

    def write(self, cluster_id: int) -> None:
        """Keep who is behind observed objects that have rows.

        As of pods, see `write_people`. Three queries for each 500, or none.
        """
        for part in chunks(sorted(self._unwritten), _AT_ONCE):
            former = former_people({self._unwritten[uid] for uid in part})
            rows = ObservedObject.objects.filter(
                cluster_id=cluster_id,
                uid__in=part,
                kind__in=[kind.value for kind in _OF_WORK],
                gone_at__isnull=True,
            ).order_by("pk")
            found = [
                (pk, uid)
                for pk, uid, first in rows.values_list("pk", "uid", "first_at")
                if first >= former.get(self._unwritten[uid], first)
            ]
            upsert(
                ObservedPerson,
                [{"object_id": pk, "person": self._unwritten[uid]} for pk, uid in found],
                unique=("object_id",),
                update=("person",),
            )
            self._written |= {uid: self._unwritten[uid] for _, uid in found}
        # A pod without a row requests no GPU; if it ever does, its next change is seen.
        self._unwritten.clear()


def _sources() -> Sequence[PersonSource]:
    return settings.PEOPLE.sources if settings.PEOPLE else ()


def _keys(pod: Mapping[str, Any]) -> list[str]:
    """Return what a pod may have its person from: its controller's uid, then its namespace."""
    owners = items(mapping(pod, "metadata").get("ownerReferences"))
    return [
        *(text(one.get("uid")) for one in owners if one.get("controller")),
        _namespace(pod, "namespace"),
    ]


def _namespace(item: Mapping[str, Any], key: str) -> str:
    return f"{_SPACE}{text(mapping(item, 'metadata').get(key))}"
