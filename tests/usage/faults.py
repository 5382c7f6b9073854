"""A Prometheus with a fault: the lab's own answers, of which something is taken away."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from zlib import crc32

from tests.clusters.scripted_prometheus import Answer, Asked, forwarded, scripted

Fault = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Gives the answer to a query in place of the decoded true one."""


@contextmanager
def faulty(url: str, fault: Fault) -> Iterator[str]:
    """Serve what `url` answers with a fault in it; yield the address."""

    def script(asked: Asked) -> Answer:
        try:
            body = json.loads(forwarded(url, asked))
        except HTTPError as error:
            return Answer(error.read(), error.code)
        if "query" in asked.form:
            body = fault(asked.form["query"], body)
        return Answer(json.dumps(body).encode())

    with scripted(script) as server:
        yield server.url


def away(metrics: str) -> Fault:
    """Return the fault that series of some metrics (a pattern of names) are not there."""
    return _kept(metrics, lambda _labels: False)


def half_away(metrics: str = ".*", label: str = "") -> Fault:
    """Return the fault that half of the series are not there, all or by the value of a label."""

    def stays(labels: dict[str, str]) -> bool:
        named = (
            labels.get(label) or labels.get(label.lower())
            if label
            else repr(sorted(labels.items()))
        )
        return named is None or crc32(named.encode()) % 2 == 0

    return _kept(metrics, stays)


def _kept(metrics: str, stays: Callable[[dict[str, str]], bool]) -> Fault:
    pattern = re.compile(rf"\b(?:{metrics})\b")

    def fault(query: str, body: dict[str, Any]) -> dict[str, Any]:
        if pattern.search(query):
            data = body["data"]
            data["result"] = [one for one in data["result"] if stays(one["metric"])]
        return body

    return fault


def unnamed(fault: Fault = lambda _query, body: body) -> Fault:
    """Return a fault in which, besides, no exporter names the pods of its devices."""

    def nobody(query: str, body: dict[str, Any]) -> dict[str, Any]:
        body = fault(query, body)
        if "DCGM" in query:
            for one in body["data"]["result"]:
                one["metric"] = {
                    name: value
                    for name, value in one["metric"].items()
                    if name.removeprefix("exported_") not in {"namespace", "pod", "container"}
                }
        return body

    return nobody


def stripped(_query: str, body: dict[str, Any]) -> dict[str, Any]:
    """Take all labels away."""
    for one in body["data"]["result"]:
        one["metric"] = {}
    return body


def absurd(_query: str, body: dict[str, Any]) -> dict[str, Any]:
    """Make every value 1e300."""
    for one in body["data"]["result"]:
        if "value" in one:
            one["value"][1] = "1e300"
        for point in one.get("values", ()):
            point[1] = "1e300"
    return body


def late(query: str, body: dict[str, Any]) -> dict[str, Any]:
    """Leave one of 30 samples of each device out: the last ones are not in yet."""
    if "count_over_time" in query and "DCGM" in query:
        for one in body["data"]["result"]:
            for point in [one["value"]] if "value" in one else one["values"]:
                point[1] = str(int(float(point[1]) * 29 / 30))
    return body


def warned(text: str, fault: Fault = lambda _query, body: body) -> Fault:
    """Return a fault of which the server itself says that something is missing."""
    return lambda query, body: {**fault(query, body), "warnings": [text]}
