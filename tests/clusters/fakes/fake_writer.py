"""A QuotaWriter that answers each call alike."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.ports import Reply


class Sent(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class FakeWriter(Struct):
    """A server that gives one answer, and notes what it was sent."""

    answer: Reply
    sent: list[Sent] = field(default_factory=list)

    @property
    def asked(self) -> list[str]:
        return [f"{one.method} {one.path}" for one in self.sent]

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> Reply:
        self.sent.append(Sent(method, path, query, headers, body))
        return self.answer

    def close(self) -> None:
        """Nothing is open."""
