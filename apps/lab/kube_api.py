"""The Kubernetes API over a scenario: read only, with chunked lists and watches.

A resourceVersion is a time in Unix milliseconds, so a list can be given as of any version of the
last minutes, and a watch from a version gives exactly the changes after it.
"""

import base64
import binascii
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from apps.lab.answers import Answer, Parameters, Stream, json_answer, json_bytes, one, text_answer
from apps.lab.clock import Clock
from apps.lab.kube_discovery import documents
from apps.lab.kube_entities import Collection, Entity, collections
from apps.lab.kube_objects import Object, strip_kind
from apps.lab.kube_selectors import BadSelector, Selectors
from apps.lab.kube_status import Refused, expired, invalid, missing, not_found, too_large
from apps.lab.scenarios.base import Scenario

HISTORY_MS = 600_000
"""How far back versions are known, as if etcd were compacted every ten minutes."""
BOOKMARK_SECONDS = 10.0
_POLL_SECONDS = 2.0
_MOST_SECONDS = 3600.0
_DEFAULT_WATCH_SECONDS = 1800.0


class _Place(NamedTuple):
    """What a path names: a collection, perhaps within a namespace, perhaps one object."""

    collection: Collection
    namespace: str = ""
    name: str = ""


_ByPrefix = dict[tuple[str, str], Collection]


class KubernetesApi:
    """Answers GETs by path; raises nothing, for every refusal is a Status."""

    def __init__(self, scenario: Scenario, clock: Clock) -> None:
        self._scenario = scenario
        self._clock = clock
        served = collections(scenario)
        self._by_prefix: _ByPrefix = {(c.prefix, c.plural): c for c in served}
        self._documents = documents(served)

    def answer(self, path: str, parameters: Parameters) -> Answer | Stream:
        """Return the answer to a GET."""
        if path in {"/healthz", "/readyz", "/livez"}:
            return text_answer("ok")
        known = self._documents.get(path.rstrip("/"))
        if known is not None:
            return json_answer(known)
        try:
            place = _place(path, self._by_prefix)
            if place is None:
                return missing(path)
            if place.name:
                return self._get(place)
            if one(parameters, "watch") in {"1", "true", "True"}:
                return Stream(self._watch(place, parameters))
            return self._list(place, parameters)
        except Refused as refusal:
            return refusal.answer
        except BadSelector as error:
            return invalid(str(error)).answer

    # ------------------------------------------------------------ one object

    def _get(self, place: _Place) -> Answer:
        at = self._clock.now_ms() // 1000
        for entity in place.collection.source(self._scenario, at, at):
            here = (entity.name, entity.namespace) == (place.name, place.namespace)
            if here and entity.created <= at < entity.deleted:
                return json_answer(entity.render(at))
        raise not_found(place.collection.plural, place.name)

    # ------------------------------------------------------------ lists

    def _list(self, place: _Place, parameters: Parameters) -> Answer:
        selectors = Selectors.of(parameters)
        token = one(parameters, "continue")
        at_ms, after = self._continued(token) if token else (self._asked(parameters), "")
        at = at_ms // 1000
        entities = [e for e in self._existing(place, at) if e.key > after]
        found = [item for e in entities if selectors.match(item := e.render(at))]
        limit = _whole(parameters, "limit") or len(found)
        metadata: dict[str, Any] = {"resourceVersion": str(at_ms)}
        if len(found) > limit:
            last = found[limit - 1]["metadata"]
            metadata["continue"] = _token(at_ms, _key(last))
            if selectors.empty:
                metadata["remainingItemCount"] = len(found) - limit
        return json_answer(
            {
                "kind": f"{place.collection.kind}List",
                "apiVersion": place.collection.group_version,
                "metadata": metadata,
                "items": [strip_kind(item) for item in found[:limit]],
            }
        )

    def _existing(self, place: _Place, at: int) -> list[Entity]:
        found = [
            entity
            for entity in place.collection.source(self._scenario, at, at)
            if entity.created <= at < entity.deleted
            and (not place.namespace or entity.namespace == place.namespace)
        ]
        return sorted(found, key=lambda entity: entity.key)

    def _asked(self, parameters: Parameters) -> int:
        """Return the version, in milliseconds, of which a new list is wanted."""
        now_ms = self._clock.now_ms()
        version = _version(one(parameters, "resourceVersion"))
        if version > now_ms:
            raise too_large(version, now_ms)
        if one(parameters, "resourceVersionMatch") != "Exact":
            return now_ms
        if version < now_ms - HISTORY_MS:
            raise expired("The resourceVersion for the provided list is too old.")
        return version

    def _continued(self, token: str) -> tuple[int, str]:
        """Return (version in milliseconds, key after which to go on) of a continue token."""
        version, after = _read_token(token)
        now_ms = self._clock.now_ms()
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
                token=_token(-1, after),
            )
        return version, after

    # ------------------------------------------------------------ watches

    def _watch(self, place: _Place, parameters: Parameters) -> Iterator[bytes]:
        """Return the lines of a watch; what is refused before it starts is raised here."""
        selectors = Selectors.of(parameters)
        now_ms = self._clock.now_ms()
        version = _version(one(parameters, "resourceVersion"))
        if version > now_ms:
            raise too_large(version, now_ms)
        seconds = _whole(parameters, "timeoutSeconds") or _DEFAULT_WATCH_SECONDS
        initial = one(parameters, "sendInitialEvents") == "true" or not version
        if version and version < now_ms - HISTORY_MS:
            return iter([_line("ERROR", _too_old(version, now_ms))])
        return self._follow(
            place,
            selectors,
            since_ms=now_ms if initial else version,
            initial=initial,
            bookmarks=one(parameters, "allowWatchBookmarks") in {"1", "true", "True"},
            announce=one(parameters, "sendInitialEvents") == "true",
            seconds=min(float(seconds), _MOST_SECONDS),
        )

    def _follow(
        self,
        place: _Place,
        selectors: Selectors,
        *,
        since_ms: int,
        initial: bool,
        bookmarks: bool,
        announce: bool,
        seconds: float,
    ) -> Iterator[bytes]:
        """Yield what is there if `initial`, then every change, until the time is up."""
        if initial:
            for entity in self._existing(place, since_ms // 1000):
                item = entity.render(since_ms // 1000)
                if selectors.match(item):
                    yield _line("ADDED", item)
            if announce:
                yield _line("BOOKMARK", _bookmark(place.collection, since_ms, initial_end=True))
        ends = time.monotonic() + seconds
        bookmark_at = time.monotonic() + BOOKMARK_SECONDS
        while True:
            now_ms = self._clock.now_ms()
            yield from self._changes(place, selectors, since_ms, now_ms)
            since_ms, real = now_ms, time.monotonic()
            over = real >= ends or self._clock.closed
            if bookmarks and (over or real >= bookmark_at):
                yield _line("BOOKMARK", _bookmark(place.collection, since_ms))
                bookmark_at = real + BOOKMARK_SECONDS
            if over:
                return
            self._clock.wait(self._next_ms(now_ms), max(0.0, min(ends - real, _POLL_SECONDS)))

    def _changes(
        self, place: _Place, selectors: Selectors, after_ms: int, until_ms: int
    ) -> Iterator[bytes]:
        after, until = after_ms // 1000, until_ms // 1000
        if until <= after:
            return
        found: list[tuple[int, str, str, Object]] = []
        for entity in place.collection.source(self._scenario, after, until):
            if place.namespace and entity.namespace != place.namespace:
                continue
            for at in entity.changes:
                if after < at <= until:
                    kind, item = _change(entity, at, selectors)
                    if kind:
                        found.append((at, entity.key, kind, item))
        for _, _, kind, item in sorted(found, key=lambda change: change[:2]):
            yield _line(kind, item)

    def _next_ms(self, now_ms: int) -> int | None:
        lap = self._scenario.lap_at(now_ms // 1000)
        at = lap.next_change(now_ms // 1000) if lap else None
        return None if at is None else at * 1000


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


def _place(path: str, collections: _ByPrefix) -> _Place | None:
    """Return what a path names, None when there is no such collection."""
    parts = path.strip("/").split("/")
    prefix_length = 2 if parts[0] == "api" else 3
    prefix, rest = "/" + "/".join(parts[:prefix_length]), parts[prefix_length:]
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    collection = collections.get((prefix, rest[0])) if rest else None
    if collection is None or len(rest) > 2:
        if any(prefix == known for known, _ in collections) and rest:
            raise not_found("", "")
        return None
    if namespace and not collection.namespaced:
        raise not_found("", "")
    name = rest[1] if len(rest) == 2 else ""
    if name and collection.namespaced and not namespace:
        raise not_found("", "")
    return _Place(collection, namespace, name)


def _key(metadata: Object) -> str:
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    return f"{namespace}/{name}" if namespace else str(name)


def _token(version: int, after: str) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": f"{after}\u0000"})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        padded = token + "=" * (-len(token) % 4)
        found = json.loads(base64.urlsafe_b64decode(padded.encode()))
        return int(found["rv"]), str(found["start"]).rstrip("\u0000")
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise invalid(f"invalid continue token: continue key is not valid: {error}") from error


def _version(text: str) -> int:
    if text and not text.isdecimal():
        raise invalid(f'resourceVersion: Invalid value: "{text}": not a whole number')
    return int(text or 0)


def _whole(parameters: Parameters, name: str) -> int:
    text = one(parameters, name)
    if text and not text.isdecimal():
        raise invalid(f'{name}: Invalid value: "{text}": not a whole number')
    return int(text or 0)


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
