"""What was seen of a cluster's objects, in memory until written."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from apps.clusters.domain.observed.extract import setting_of
from apps.clusters.domain.observed.objects import WITH_HISTORY, Body, ObservedKind, ObservedObject

_INSTANT = 1e-3

Key = tuple[ObservedKind, str]


class ObjectStore:
    """Every object that is there, by kind and uid; `changed` holds what is to be written.

    Of kinds with history a change of what was set ends one observed object and begins another; of
    the others a change is put to the one there is.
    """

    def __init__(self, present: Iterable[ObservedObject] = ()) -> None:
        self.present: dict[Key, ObservedObject] = {}
        self.changed: dict[tuple[ObservedKind, str, float | None], ObservedObject] = {}
        self.gone_at: dict[str, float] = {}
        self._of_kind: dict[ObservedKind, set[str]] = {kind: set() for kind in ObservedKind}
        self._subjects: set[str] = set()
        for one in present:
            self.present[one.kind, one.uid] = one
            self._count(one.kind, one.uid)

    def uids(self, kind: ObservedKind) -> Collection[str]:
        """Return the uids of what is there of a kind."""
        return self._of_kind[kind]

    def has(self, uid: str) -> bool:
        """Say whether anything but an event is there under a uid."""
        return uid in self._subjects

    def seen(
        self, kind: ObservedKind, uid: str, name: tuple[str, str], body: Body | None, at: float
    ) -> None:
        """Take in an object as it is at `at`; `name` is its namespace and name.

        A body of None is of no interest: if it was before, it is gone for us.
        """
        if body is None:
            self.gone(kind, uid, at)
            return
        known = self.present.get((kind, uid))
        if known is not None and known.body == body:
            return
        if known is None:
            self._count(kind, uid)
            self.gone_at.pop(uid, None)
            self._keep(ObservedObject(kind, uid, name[0], name[1], body, at, at))
            return
        if _is_set_anew(kind, known, body) and at - known.first > _INSTANT:
            self._note(replace(known, gone=at))
            known = replace(known, first=at)
        self._keep(replace(known, body=body, changed=at))

    def gone(self, kind: ObservedKind, uid: str, at: float) -> None:
        """Take in that an object is no more, or of no interest any more."""
        known = self.present.pop((kind, uid), None)
        if known is not None:
            self._of_kind[kind].discard(uid)
            if kind is not ObservedKind.EVENT:
                self._subjects.discard(uid)
                self.gone_at[uid] = at
            self._note(replace(known, gone=max(at, known.first)))

    def keep_only(self, kind: ObservedKind, uids: Collection[str], at: float) -> None:
        """Take in a whole list: what is not in it is gone."""
        for uid in sorted(self._of_kind[kind] - set(uids)):
            self.gone(kind, uid, at)

    def forget_gone(self, before: float) -> None:
        """Drop from memory when things went that did so before a time."""
        self.gone_at = {uid: at for uid, at in self.gone_at.items() if at >= before}

    def written(self) -> None:
        """Note that all changes are in the database."""
        self.changed.clear()

    def _count(self, kind: ObservedKind, uid: str) -> None:
        self._of_kind[kind].add(uid)
        if kind is not ObservedKind.EVENT:
            self._subjects.add(uid)

    def _keep(self, one: ObservedObject) -> None:
        self.present[one.kind, one.uid] = one
        self._note(one)

    def _note(self, one: ObservedObject) -> None:
        first = one.first if one.kind in WITH_HISTORY else None
        self.changed[one.kind, one.uid, first] = one


def _is_set_anew(kind: ObservedKind, known: ObservedObject, body: Body) -> bool:
    return kind in WITH_HISTORY and setting_of(known.body) != setting_of(body)
