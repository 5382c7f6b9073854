"""The Kubernetes API over a scenario: chunked lists and watches; changes of faults and limits.

A resourceVersion is a time in Unix milliseconds, so a list can be given as of any version of the
last minutes, and a watch from a version gives exactly the changes after it. What the scenario says
changes at whole seconds; what somebody changed (`fault_scenarios.live`, `edits`) has versions
of its own.
"""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from simulator.clock import Clock
from simulator.fault_scenarios.cycle import gone_at, times_of
from simulator.fault_scenarios.live import Live
from simulator.fault_scenarios.scenario import faults_of
from simulator.kubernetes.discovery import documents
from simulator.kubernetes.edits import LIMITS, Edits
from simulator.kubernetes.entities import Collection, collections
from simulator.kubernetes.entity import Entity
from simulator.kubernetes.objects import Object, strip_kind
from simulator.kubernetes.paging import continue_token, key_of, read_token, version_of, whole_number
from simulator.kubernetes.paths import ByPrefix, ObjectPath, object_path
from simulator.kubernetes.selectors import BadSelector, Selectors
from simulator.kubernetes.status import (
    ApiRefusal,
    expired,
    invalid,
    missing,
    not_allowed,
    not_found,
    too_large,
)
from simulator.kubernetes.writes import WriteRequest, Writes
from simulator.responses import (
    Parameters,
    Response,
    Stream,
    json_bytes,
    json_response,
    one,
    text_response,
)
from simulator.scenarios.base import Scenario
from simulator.scheduler.store import ObjectLife, copied

HISTORY_MS = 600_000
"""How far back versions are known, as if etcd were compacted every ten minutes."""
BOOKMARK_SECONDS = 10.0
_POLL_SECONDS = 2.0
_MOST_SECONDS = 3600.0
_DEFAULT_WATCH_SECONDS = 1800.0


class KubernetesApi:
    """Answers requests by path; raises nothing, for every refusal is a Status."""

    def __init__(self, scenario: Scenario, clock: Clock) -> None:
        self._scenario = scenario
        self._clock = clock
        served = collections(scenario)
        self._by_prefix: ByPrefix = {(c.prefix, c.plural): c for c in served}
        self._documents = documents(served)
        self._faults = faults_of(scenario)
        self._live = Live(self._faults, clock) if self._faults else None
        self._writes = Writes(self._live, clock) if self._live else None
        self._edits = Edits()

    def answer(self, path: str, parameters: Parameters) -> Response | Stream:
        """Return the answer to a GET."""
        if path in {"/healthz", "/readyz", "/livez"}:
            return text_response("ok")
        known = self._documents.get(path.rstrip("/"))
        if known is not None:
            return json_response(known)
        try:
            place = object_path(path, self._by_prefix)
            if place is None:
                return missing(path)
            if place.name:
                return self._get(place)
            if one(parameters, "watch") in {"1", "true", "True"}:
                return Stream(self._watch(place, parameters))
            return self._list(place, parameters)
        except ApiRefusal as refusal:
            return refusal.answer
        except BadSelector as error:
            return invalid(str(error)).answer

    def write(
        self, method: str, path: str, parameters: Parameters, content_type: str, body: bytes
    ) -> Response:
        """Return the answer to a POST, PUT, PATCH or DELETE."""
        try:
            place = object_path(path, self._by_prefix)
            if place is None:
                return not_allowed()
            asked = WriteRequest(
                method, place.collection, place.namespace, place.name, parameters, content_type,
                body,
            )  # fmt: skip
            if place.collection.plural in LIMITS and self._of_scenario(place) is not None:
                return self._edit(place, asked)
            return self._writes.answer(asked) if self._writes else not_allowed()
        except ApiRefusal as refusal:
            return refusal.answer

    def _edit(self, place: ObjectPath, asked: WriteRequest) -> Response:
        def current() -> Object:
            entity, now_ms = self._of_scenario(place), self._now_ms()
            if entity is None:
                raise not_found(place.collection.plural, place.name)
            return self._rendered_at(place, entity, now_ms)

        # A version of its own: who has seen all up to now has not seen this.
        answer = self._edits.answer(asked, current, lambda: self._now_ms() + 1)
        self._clock.nudge()
        return answer

    def _of_scenario(self, place: ObjectPath) -> Entity | None:
        """Return what a path names where the scenario tells of it, and not its faults."""
        at = self._now_ms() // 1000
        for entity in place.collection.source(self._scenario, at, at):
            if entity.key == place.key and not entity.of_faults:
                return entity
        return None

    def _rendered_at(self, place: ObjectPath, entity: Entity, at_ms: int) -> Object:
        item = entity.render(at_ms // 1000)
        return self._edits.over(place.collection.plural, entity.key, item, at_ms)

    def _now_ms(self) -> int:
        """Return the version of now."""
        now_ms = max(self._clock.now_ms(), self._edits.version)
        return self._live.version(now_ms) if self._live else now_ms

    def _played(self, version: int) -> Live | None:
        """Return what shows the faults at a version instead of the scenario, if anything."""
        return self._live if self._live and self._live.covers(version) else None

    # ------------------------------------------------------------ one object

    def _get(self, place: ObjectPath) -> Response:
        at_ms = self._now_ms()
        for found, render in self._existing(place, at_ms):
            if found == place.key:
                return json_response(render())
        raise not_found(place.collection.plural, place.name)

    # ------------------------------------------------------------ lists

    def _list(self, place: ObjectPath, parameters: Parameters) -> Response:
        selectors = Selectors.of(parameters)
        token = one(parameters, "continue")
        at_ms, after = (
            self._continued(token) if token else (self._requested_version(parameters), "")
        )
        existing = [render for key, render in self._existing(place, at_ms) if key > after]
        found = [item for render in existing if selectors.match(item := render())]
        limit = whole_number(parameters, "limit") or len(found)
        metadata: dict[str, Any] = {"resourceVersion": str(at_ms)}
        if len(found) > limit:
            last = found[limit - 1]["metadata"]
            metadata["continue"] = continue_token(at_ms, key_of(last))
            if selectors.empty:
                metadata["remainingItemCount"] = len(found) - limit
        return json_response(
            {
                "kind": f"{place.collection.kind}List",
                "apiVersion": place.collection.group_version,
                "metadata": metadata,
                "items": [strip_kind(item) for item in found[:limit]],
            }
        )

    def _existing(self, place: ObjectPath, at_ms: int) -> list[tuple[str, Callable[[], Object]]]:
        """Return (key, how it looks) of what is there at a version, in the order of keys."""
        at, live = at_ms // 1000, self._played(at_ms)
        found: list[tuple[str, Callable[[], Object]]] = [
            (entity.key, partial(self._rendered_at, place, entity, at_ms))
            for entity in place.collection.source(self._scenario, at, at)
            if entity.created <= at < entity.deleted
            and (not place.namespace or entity.namespace == place.namespace)
            and not (live and entity.of_faults)
        ]
        for life in live.lives(place.collection.plural) if live else ():
            item = life.at(at_ms) if (gone_at(life) or at_ms + 1) > at_ms else None
            if item is not None and (not place.namespace or life.namespace == place.namespace):
                found.append((life.key, partial(_same, item)))
        return sorted(found, key=lambda one: one[0])

    def _requested_version(self, parameters: Parameters) -> int:
        """Return the version, in milliseconds, of which a new list is wanted."""
        now_ms = self._now_ms()
        version = version_of(one(parameters, "resourceVersion"))
        if version > now_ms:
            raise too_large(version, now_ms)
        if one(parameters, "resourceVersionMatch") != "Exact":
            return now_ms
        if version < now_ms - HISTORY_MS:
            raise expired("The resourceVersion for the provided list is too old.")
        return version

    def _continued(self, token: str) -> tuple[int, str]:
        """Return (version in milliseconds, key after which to go on) of a continue token."""
        version, after = read_token(token)
        now_ms = self._now_ms()
        if version < 0:
            return now_ms, after
        if version < now_ms - HISTORY_MS:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter, or use the continue "
                "token in this response to retrieve the remainder of the results. Continuing with "
                "the provided token results in an inconsistent list - objects that were created, "
                "modified, or deleted between the time the first chunk was returned and now may "
                "show up in the list.",
                token=continue_token(-1, after),
            )
        return version, after

    # ------------------------------------------------------------ watches

    def _watch(self, place: ObjectPath, parameters: Parameters) -> Iterator[bytes]:
        """Return the lines of a watch; what is refused before it starts is raised here."""
        selectors = Selectors.of(parameters)
        now_ms = self._now_ms()
        version = version_of(one(parameters, "resourceVersion"))
        if version > now_ms:
            raise too_large(version, now_ms)
        seconds = whole_number(parameters, "timeoutSeconds") or _DEFAULT_WATCH_SECONDS
        initial = one(parameters, "sendInitialEvents") == "true" or not version
        if version and version < now_ms - HISTORY_MS:
            return iter([_line("ERROR", _too_old(version, now_ms))])
        since_ms = now_ms if initial else version
        at_most = min(float(seconds), _MOST_SECONDS)
        return self._follow(
            place, selectors, parameters, since_ms=since_ms, initial=initial, seconds=at_most
        )

    def _follow(
        self,
        place: ObjectPath,
        selectors: Selectors,
        parameters: Parameters,
        *,
        since_ms: int,
        initial: bool,
        seconds: float,
    ) -> Iterator[bytes]:
        """Yield what is there if `initial`, then every change, until the time is up."""
        bookmarks = one(parameters, "allowWatchBookmarks") in {"1", "true", "True"}
        announce = one(parameters, "sendInitialEvents") == "true"
        if initial:
            for _, render in self._existing(place, since_ms):
                item = render()
                if selectors.match(item):
                    yield _line("ADDED", item)
            if announce:
                yield _line("BOOKMARK", _bookmark(place.collection, since_ms, initial_end=True))
        ends = time.monotonic() + seconds
        bookmark_at = time.monotonic() + BOOKMARK_SECONDS
        while True:
            nudges = self._clock.nudges
            now_ms = self._now_ms()
            yield from self._changes(place, selectors, since_ms, now_ms)
            since_ms, real = now_ms, time.monotonic()
            over = real >= ends or self._clock.closed
            if bookmarks and (over or real >= bookmark_at):
                yield _line("BOOKMARK", _bookmark(place.collection, since_ms))
                bookmark_at = real + BOOKMARK_SECONDS
            if over:
                return
            at_most = max(0.0, min(ends - real, _POLL_SECONDS))
            self._clock.wait(self._next_ms(now_ms), at_most, nudges=nudges)

    def _changes(
        self, place: ObjectPath, selectors: Selectors, after_ms: int, until_ms: int
    ) -> Iterator[bytes]:
        live = self._played(until_ms)
        found = list(self._scenario_changes(place, selectors, after_ms // 1000, until_ms // 1000))
        found += self._edited(place, selectors, after_ms, until_ms)
        if live:
            found += self._lived(live, place, selectors, after_ms, until_ms)
        for _, _, kind, item in sorted(found, key=lambda change: change[:2]):
            yield _line(kind, item)

    def _scenario_changes(
        self, place: ObjectPath, selectors: Selectors, after: int, until: int
    ) -> Iterator[tuple[int, str, str, Object]]:
        """Yield (version, key, kind of change, object) of what the scenario says."""
        if until <= after:
            return
        live = self._played(until * 1000)
        for entity in place.collection.source(self._scenario, after, until):
            if place.namespace and entity.namespace != place.namespace:
                continue
            for at in entity.changes:
                played = live and entity.of_faults and at * 1000 >= live.since_ms
                if after < at <= until and not played:
                    kind, item = _change(entity, at, selectors)
                    item = self._edits.over(place.collection.plural, entity.key, item, at * 1000)
                    if kind:
                        yield at * 1000, entity.key, kind, item

    def _edited(
        self, place: ObjectPath, selectors: Selectors, after_ms: int, until_ms: int
    ) -> Iterator[tuple[int, str, str, Object]]:
        """Yield the same of limits that somebody set."""
        plural = place.collection.plural
        changed = list(self._edits.between(plural, after_ms, until_ms))
        if not changed:
            return
        at = until_ms // 1000
        there = {one.key: one for one in place.collection.source(self._scenario, at, at)}
        for version, key in changed:
            entity = there.get(key)
            if entity is None or (place.namespace and entity.namespace != place.namespace):
                continue
            item = self._rendered_at(place, entity, version)
            if selectors.match(item):
                yield version, key, "MODIFIED", item

    def _lived(
        self, live: Live, place: ObjectPath, selectors: Selectors, after_ms: int, until_ms: int
    ) -> Iterator[tuple[int, str, str, Object]]:
        """Yield the same of what became of the faults."""
        for life in live.lives(place.collection.plural):
            if place.namespace and life.namespace != place.namespace:
                continue
            for version in times_of(life):
                if max(after_ms, live.since_ms - 1) < version <= until_ms:
                    kind, item = _step(life, version, selectors)
                    if kind:
                        yield version, life.key, kind, item

    def _next_ms(self, now_ms: int) -> int | None:
        now = now_ms // 1000
        epoch = self._scenario.epoch_at(now)
        times = [
            epoch.next_change(now) if epoch else None,
            self._faults.next_change(now) if self._faults else None,
        ]
        return min((at * 1000 for at in times if at is not None), default=None)


def _change(entity: Entity, at: int, selectors: Selectors) -> tuple[str, Object]:
    """Return how a watch with these selectors tells a change; "" when it does not."""
    item = entity.render(at)
    if at >= entity.deleted:
        return ("DELETED" if selectors.match(item) else ""), item
    if at == entity.created:
        return ("ADDED" if selectors.match(item) else ""), item
    before, now = selectors.match(entity.render(at - 1)), selectors.match(item)
    if now:
        return ("MODIFIED" if before else "ADDED"), item
    return ("DELETED" if before else ""), item


def _step(life: ObjectLife, version: int, selectors: Selectors) -> tuple[str, Object]:
    """Return how a watch with these selectors tells a change of an object; "" when it does not."""
    before, now = life.at(version - 1), life.at(version)
    if version == gone_at(life) or now is None:
        gone = copied(life.latest)
        gone["metadata"]["resourceVersion"] = str(version)
        return ("DELETED" if selectors.match(gone) else ""), gone
    held, holds = before is not None and selectors.match(before), selectors.match(now)
    if holds:
        return ("MODIFIED" if held else "ADDED"), now
    return ("DELETED" if held else ""), now


def _same(item: Object) -> Object:
    return item


def _line(kind: str, item: Object) -> bytes:
    return json_bytes({"type": kind, "object": item}) + b"\n"


def _bookmark(collection: Collection, at_ms: int, *, initial_end: bool = False) -> Object:
    metadata: Object = {"resourceVersion": str(at_ms)}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return {
        "kind": collection.kind,
        "apiVersion": collection.group_version,
        "metadata": metadata,
        "spec": {},
        "status": {},
    }


def _too_old(version: int, now_ms: int) -> Object:
    oldest = now_ms - HISTORY_MS
    refusal = expired(f"too old resource version: {version} ({oldest})")
    status: Object = json.loads(refusal.answer.body)
    return status
