"""What quotas were set to, and when: as `watch` saw it, and before that as series showed it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from apps.clusters.domain.resources import is_gpu
from apps.clusters.domain.sightings import Kind, Scope, SeenQuota, Sighting
from apps.clusters.domain.window import SLOT_SECONDS
from apps.quotas.domain.keys import Counting, Source, meaning_of
from apps.quotas.domain.limits import set_limits
from apps.quotas.domain.saturation import KeyId, KeySpells, Spell

SOURCES: Mapping[Kind, Source] = {
    Kind.RESOURCE_QUOTA: Source.RESOURCE_QUOTA,
    Kind.CLUSTER_QUEUE: Source.CLUSTER_QUEUE,
    Kind.VOLCANO_QUEUE: Source.VOLCANO_QUEUE,
}
QUOTA_KINDS = tuple(SOURCES)


class ShownQuota(NamedTuple):
    """The means of a ResourceQuota's key over one slot, as kube-state-metrics shows it."""

    slot: int
    namespace: str
    quota: str
    key: str
    hard: float | None
    used: float | None


def seen_spells(
    seen: Iterable[Sighting], start: float, end: float, *, named: Collection[str] = ()
) -> dict[KeyId, KeySpells]:
    """Return the GPU keys of quotas and queues by id, cut to start..end; the oldest spell first.

    `seen` has a sighting for each setting. Of two that claim one time, as when a quota was made
    again before it was seen to go, the later holds.
    """
    found: dict[KeyId, KeySpells] = {}
    for one in sorted(seen, key=lambda s: (s.first, s.uid)):
        span = (max(one.first, start), end if one.gone is None else min(one.gone, end))
        if one.kind not in SOURCES or span[1] <= span[0]:
            continue
        for known, spell in _spells_of(one, span, named):
            key = found.setdefault(known.id, known)
            key.effective = known.effective
            _add(key.spells, spell)
    return found


def _spells_of(
    one: Sighting, span: tuple[float, float], named: Collection[str]
) -> Iterable[tuple[KeySpells, Spell]]:
    source = SOURCES[one.kind].value
    if isinstance(one.body, SeenQuota):
        for key, hard in sorted(one.body.hard.items()):
            meaning = meaning_of(key, named=named, scopes=one.body.scopes)
            if meaning.of_gpus:
                known = KeySpells(
                    KeyId(source, one.namespace, one.name, key),
                    meaning.resource,
                    meaning.counting,
                    meaning.effective,
                )
                yield known, Spell(*span, hard, one.body.scopes)
        return
    for _, resource, key, hard in set_limits(one):
        if is_gpu(resource, named):
            id_ = KeyId(source, "", one.name, key)
            yield KeySpells(id_, resource, Counting.REQUESTS), Spell(*span, hard)


def with_shown(
    keys: dict[KeyId, KeySpells],
    shown: Sequence[ShownQuota],
    unwatched: Collection[int],
    *,
    named: Collection[str] = (),
) -> dict[KeyId, KeySpells]:
    """Return `keys` with what series show put in place of slots in which nobody watched.

    A key's means stand for the whole slot. Its scopes, which no series shows, are those of the
    setting nearest in time; a key that no sighting has, has none.
    """
    slots = set(unwatched)
    by_key: dict[KeyId, list[ShownQuota]] = {}
    for one in shown:
        if one.slot in slots and one.hard is not None:
            id_ = KeyId(Source.RESOURCE_QUOTA.value, one.namespace, one.quota, one.key)
            by_key.setdefault(id_, []).append(one)
    joined = dict(keys)
    for id_, rows in by_key.items():
        meaning = meaning_of(id_.key, named=named)
        if not meaning.of_gpus:
            continue
        known = joined.get(id_) or KeySpells(
            id_, meaning.resource, meaning.counting, meaning.effective
        )
        spells = list(known.spells)
        for one in rows:
            scopes = _nearest(known.spells, one.slot)
            hard = one.hard or 0.0
            _replace(spells, Spell(one.slot, one.slot + SLOT_SECONDS, hard, scopes))
        joined[id_] = KeySpells(
            id_, known.resource, known.counting, known.effective, sorted(spells)
        )
    return joined


class ShownQueue(NamedTuple):
    """The means of a ClusterQueue's resource over one slot, as Kueue shows it.

    Without a flavor it is what is pending.
    """

    slot: int
    queue: str
    flavor: str
    resource: str
    nominal: float | None
    reserved: float | None
    pending: float | None


def with_shown_queues(
    keys: dict[KeyId, KeySpells],
    shown: Sequence[ShownQueue],
    unwatched: Collection[int],
    *,
    named: Collection[str] = (),
) -> dict[KeyId, KeySpells]:
    """Return `keys` with the nominal quotas that Kueue showed in slots in which nobody watched."""
    slots = set(unwatched)
    joined = dict(keys)
    for one in shown:
        if one.slot not in slots or one.nominal is None or not is_gpu(one.resource, named):
            continue
        id_ = queue_key(one)
        known = joined.get(id_) or KeySpells(id_, one.resource, Counting.REQUESTS)
        spells = list(known.spells)
        _replace(spells, Spell(one.slot, one.slot + SLOT_SECONDS, one.nominal))
        joined[id_] = KeySpells(
            id_, known.resource, known.counting, known.effective, sorted(spells)
        )
    return joined


def queue_key(one: ShownQueue) -> KeyId:
    """Return the key of a ClusterQueue that a row with a flavor is of."""
    return KeyId(Source.CLUSTER_QUEUE.value, "", one.queue, f"{one.flavor}/{one.resource}")


def _nearest(spells: Sequence[Spell], slot: float) -> tuple[Scope, ...]:
    if not spells:
        return ()
    return min(spells, key=lambda s: max(s.start - slot, slot - s.end, 0.0)).scopes


def _add(spells: list[Spell], spell: Spell) -> None:
    """Add a spell that begins no sooner than those there; what it covers of them is its own."""
    if spells and spells[-1].end > spell.start:
        last = spells.pop()
        if last.start < spell.start:
            spells.append(last._replace(end=spell.start))
        if last.end > spell.end:
            spell = spell._replace(end=last.end)
    spells.append(spell)


def _replace(spells: list[Spell], spell: Spell) -> None:
    cut = []
    for one in spells:
        if one.end <= spell.start or one.start >= spell.end:
            cut.append(one)
            continue
        if one.start < spell.start:
            cut.append(one._replace(end=spell.start))
        if one.end > spell.end:
            cut.append(one._replace(start=spell.end))
    spells[:] = [*cut, spell]
