"""What was seen of a cluster's objects, in memory until written."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from apps.clusters.domain.observed.extract import setting_of
from apps.clusters.domain.observed.objects import WITH_HISTORY, Body, ObservedKind, ObservedObject
from apps.clusters.domain.observed.store import ObservedStore

_INSTANT = 1e-3

Key = tuple[ObservedKind, str]


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
            if _is_set_anew(kind, known, body) and at - known.first > _INSTANT:
                self.mark(replace(known, gone=at))
                known = replace(known, first=at)
            self.keep(replace(known, body=body, changed=at))

    def delete(self, kind: ObservedKind, uid: str, at: float) -> None:
        """Apply that an object is no more, or of no interest any more."""
        known = self.drop((kind, uid))
        if known is not None:
            if kind is not ObservedKind.EVENT:
                self.gone_at[uid] = at
            self.mark(replace(known, gone=max(at, known.first)))

    def relist(self, kind: ObservedKind, uids: Collection[str], at: float) -> None:
        """Apply a whole list: what is not in it is gone."""
        for uid in sorted(set(self.uids(kind)) - set(uids)):
            self.delete(kind, uid, at)

    def forget_gone(self, before: float) -> None:
        """Drop from memory when things went that did so before a time."""
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
