"""What an API token may be used for: a part of what its person may do, never more."""

from collections.abc import Iterable
from enum import StrEnum


class TokenScope(StrEnum):
    """`read` reads, `request` writes one's own quota requests, `decide` reviews those of others."""

    READ = "read"
    REQUEST = "request"
    DECIDE = "decide"


# What can be stored: every token reads, as nothing can be asked or decided unseen.
SETS = ("read", "read,request", "read,decide", "read,request,decide")


def packed(scopes: Iterable[TokenScope]) -> str:
    """Return scopes as they are stored: in the order of the enum, `read` always among them."""
    chosen = {TokenScope.READ, *scopes}
    return ",".join(scope.value for scope in TokenScope if scope in chosen)


def unpacked(text: str) -> frozenset[TokenScope]:
    """Return the scopes that `packed` wrote. Raises ValueError for another text."""
    return frozenset(TokenScope(word) for word in text.split(","))
