"""What both APIs hand to the server: a status with a body, or a stream of lines."""

import json
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

Parameters = Mapping[str, Sequence[str]]


class Response(Struct, frozen=True):
    """A whole body; `content_type` as the API it stands for sends it."""

    status: int
    body: bytes
    content_type: str = "application/json"


class Stream(Struct, frozen=True):
    """Lines that come as they happen, each with its newline."""

    chunks: Iterator[bytes]
    content_type: str = "application/json"


def json_response(payload: object, status: int = 200) -> Response:
    """Return a compact JSON body."""
    return Response(status, json_bytes(payload))


def json_bytes(payload: object) -> bytes:
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()


def text_response(text: str, status: int = 200) -> Response:
    return Response(status, text.encode(), "text/plain; charset=utf-8")


def one(parameters: Parameters, name: str, default: str = "") -> str:
    """Return the first value of a parameter."""
    values = parameters.get(name)
    return values[0] if values else default
