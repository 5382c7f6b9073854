"""A manifest with one of the alternatives that its claims allow."""

from collections.abc import Iterator, Mapping
from itertools import islice, product

from apps.accounts.domain.structs import replace
from apps.clusters.domain.kube_json import JsonObject, items, mapping
from apps.planning.domain.manifests.submissions import Manifest

MOST_CHOICES = 16
"""How many choices are tried; the scheduler tries all."""
_FIRST = "firstAvailable"


def claim_choices(manifest: Manifest) -> Iterator[Manifest]:
    """Yield the manifest with each choice of alternatives of its claims, at least once.

    In the order in which the scheduler tries them.
    """
    claims = [("spec", one) for one in manifest.claims]
    templates = [("template", one) for one in manifest.claim_templates]
    counts = [
        range(len(items(request.get(_FIRST))) or 1)
        for kind, one in (*claims, *templates)
        for request in _requests(kind, one)
    ]
    for chosen in islice(product(*counts), MOST_CHOICES):
        left = iter(chosen)
        yield replace(
            manifest,
            claims=tuple(_chosen(kind, one, left) for kind, one in claims),
            claim_templates=tuple(_chosen(kind, one, left) for kind, one in templates),
        )


def _path(kind: str) -> tuple[str, ...]:
    # A template has the spec of its claims within its own.
    return ("spec", "devices") if kind == "spec" else ("spec", "spec", "devices")


def _requests(kind: str, claim: JsonObject) -> list[Mapping[str, object]]:
    return [dict(one) for one in items(mapping(claim, *_path(kind)).get("requests"))]


def _chosen(kind: str, claim: JsonObject, chosen: Iterator[int]) -> JsonObject:
    requests = []
    for request in _requests(kind, claim):
        others, at = items(request.get(_FIRST)), next(chosen)
        requests.append({**request, _FIRST: others[at : at + 1]} if others else request)
    return _with(claim, {**mapping(claim, *_path(kind)), "requests": requests}, _path(kind))


def _with(item: JsonObject, value: JsonObject, path: tuple[str, ...]) -> JsonObject:
    key, *deeper = path
    return {**item, key: _with(mapping(item, key), value, tuple(deeper)) if deeper else value}
