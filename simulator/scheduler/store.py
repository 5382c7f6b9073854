"""The objects of a control plane, each with all its versions."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field

from simulator import identity

Object = dict[str, Any]
_GENERATED = 5
_COUNTED = frozenset({"events"})


def rfc3339(seconds: int) -> str:
    """Return a time as the API writes it: UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> int:
    """Return the Unix seconds of a time as the API writes it."""
    return int(datetime.fromisoformat(text).timestamp())


def copied(item: Any) -> Any:
    """Return a copy of a JSON value that shares nothing with it that could change."""
    if isinstance(item, dict):
        return {key: copied(value) for key, value in item.items()}
    if isinstance(item, list):
        return [copied(value) for value in item]
    return item


class ObjectLife(Struct):
    """One object from its creation to its end; `versions` are (resourceVersion, object).

    `local` names it the same way in every cycle of a scenario, whatever its random suffix is;
    `number` tells those of one such name apart.
    """

    plural: str
    namespace: str
    name: str
    uid: str
    local: str
    number: int
    created: int
    versions: list[tuple[int, Object]] = field(default_factory=list)
    deleted: int | None = None

    @property
    def latest(self) -> Object:
        return self.versions[-1][1]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def at(self, version: int) -> Object | None:
        """Return how it was at a version, None while it was not there."""
        if self.deleted is not None and version >= self.deleted:
            return None
        return next((item for at, item in reversed(self.versions) if at <= version), None)


class Store:
    """Objects by plural, namespace and name. Objects handed out must not be changed in place.

    While `ticking` versions are the whole seconds of `now`, in milliseconds, and what changes
    twice in a second changed once; afterwards every change has a version of its own, none before
    `floor` (the time, in milliseconds).
    """

    def __init__(self, seed: str, cycle: int, now: int) -> None:
        self._seed = seed
        self._cycle = cycle
        self.now = now
        self.ticking = True
        self.floor = 0
        self.version = now * 1000
        self.changes = 0
        self.lives: list[ObjectLife] = []
        self._here: dict[str, dict[tuple[str, str], ObjectLife]] = defaultdict(dict)
        self._numbers: dict[tuple[str, str, str], int] = defaultdict(int)

    # ------------------------------------------------------------ reading

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        life = self._here[plural].get((namespace, name))
        return life.latest if life else None

    def all(self, plural: str, namespace: str | None = None) -> list[Object]:
        """Return the objects of a kind in the order of their making."""
        return [
            life.latest
            for (place, _), life in self._here[plural].items()
            if namespace is None or place == namespace
        ]

    def life(self, plural: str, item: Object) -> ObjectLife:
        meta = item["metadata"]
        return self._here[plural][meta.get("namespace", ""), meta["name"]]

    def ended(self, plural: str) -> Iterator[ObjectLife]:
        return (life for life in self.lives if life.plural == plural and life.deleted is not None)

    # ------------------------------------------------------------ writing

    def create(self, plural: str, item: Object, *, stem: str = "", created: int = 0) -> Object:
        """Add an object; with a `stem` its name is made from it. Returns it as it was stored.

        One with a time of its own (`created`) is as it was before the cycle: it has the same uid
        in every cycle.
        """
        item = dict(copied(item))
        meta = item["metadata"]
        namespace = meta.get("namespace", "")
        local = f"{stem}#" if stem else meta["name"]
        if stem:
            local += str(self._count(plural, namespace, local))
            meta["name"] = f"{stem}-{self._suffix(namespace, local)}"
            meta["generateName"] = f"{stem}-"
        number = self._count(plural, namespace, f"{local}@")
        stamp = self._stamp()
        cycle = -1 if created else self._cycle
        meta["uid"] = meta.get("uid") or identity.uid(
            self._seed, cycle, plural, namespace, local, number
        )
        meta["resourceVersion"] = str(stamp)
        meta["creationTimestamp"] = rfc3339(created or self.now)
        if plural not in _COUNTED:
            meta.setdefault("generation", 1)
        life = ObjectLife(
            plural, namespace, meta["name"], meta["uid"], local, number, created or self.now
        )
        life.versions.append((stamp, item))
        self.lives.append(life)
        self._here[plural][namespace, life.name] = life
        self.changes += 1
        return item

    def change(self, plural: str, item: Object, edit: Callable[[Object], None]) -> Object:
        """Store what `edit` makes of a copy, if that is another; returns it as it is then."""
        life = self.life(plural, item)
        found: Object = copied(life.latest)
        edit(found)
        if found == life.latest:
            return life.latest
        if found.get("spec") != life.latest.get("spec") and "generation" in found["metadata"]:
            found["metadata"]["generation"] += 1
        stamp = self._stamp()
        found["metadata"]["resourceVersion"] = str(stamp)
        if life.versions[-1][0] == stamp:
            life.versions.pop()
        life.versions.append((stamp, found))
        self.changes += 1
        return found

    def remove(self, plural: str, item: Object) -> None:
        life = self.life(plural, item)
        life.deleted = self._stamp()
        del self._here[plural][life.namespace, life.name]
        self.changes += 1

    def name_for(self, namespace: str, stem: str) -> str:
        """Return the name that something made from `stem` would have got."""
        number = self._count("refused", namespace, stem)
        return f"{stem}-{self._suffix(namespace, f'{stem}?{number}')}"

    def forget(self, before: int) -> None:
        """Drop what ended before a version, and versions that were over by then."""
        self.lives = [one for one in self.lives if one.deleted is None or one.deleted > before]
        for life in self.lives:
            old = [at for at, _ in life.versions if at <= before]
            life.versions = life.versions[max(0, len(old) - 1) :]

    def _count(self, plural: str, namespace: str, local: str) -> int:
        self._numbers[plural, namespace, local] += 1
        return self._numbers[plural, namespace, local] - 1

    def _suffix(self, namespace: str, local: str) -> str:
        return pod_suffix(self._seed, self._cycle, namespace, local)

    def _stamp(self) -> int:
        if self.ticking:
            self.version = self.now * 1000
        else:
            self.version = max(self.now * 1000, self.floor, self.version + 1)
        return self.version

    def start_cycle(self, cycle: int) -> None:
        """Name what is made from now on as objects of another cycle."""
        self._cycle = cycle
        self._numbers.clear()


def pod_suffix(seed: str, cycle: int, namespace: str, local: str) -> str:
    return identity.suffix(_GENERATED, seed, cycle, namespace, local)
