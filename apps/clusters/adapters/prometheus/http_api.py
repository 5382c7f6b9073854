"""The HTTP API of Prometheus: how it is reached, queries as text, and answers as typed structs.

Every query that leaves the portal is put together here, from metric names and labels that are
constants of the adapters and from values that are escaped by `quoted`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec
from requests import PreparedRequest
from requests.auth import AuthBase, HTTPBasicAuth

from apps.clusters.domain.window import SLOT_SECONDS
from apps.clusters.ports import SourceRejected, SourceUnavailable

DEFAULT_INTERVAL_SECONDS = 30.0

Secret = Callable[[str], str]
"""Gives the value of an environment variable; empty when it is not set."""

# Queries end a millisecond before a slot does, so that a sample on the boundary belongs to the
# next slot alone, whether the server closes a range on its left end (to Prometheus 2.x) or not.
END_MARGIN_SECONDS = 0.001
MAX_STEPS = 48
SLOT_RANGE = "30m"
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What RE2 reads as more than itself; `-` and `/` among others must not be escaped for it.
_REGEX_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
Labels = TypeVar("Labels")
Item = TypeVar("Item")
_MOST_SAMPLES = 1e12
"""No sum of counts over a day comes near it."""


@dataclass(frozen=True, slots=True)
class PrometheusConfig:
    """One server and what of its series belongs to the cluster.

    `bearer_token_env` names the variable that holds a token, `basic_auth_env` the one that
    holds `user:password`; the secrets themselves are never part of the catalog. `matchers` go
    into every query.
    """

    url: str
    matchers: Mapping[str, str] = field(default_factory=dict)
    scrape_interval_seconds: float = DEFAULT_INTERVAL_SECONDS
    bearer_token_env: str = ""
    basic_auth_env: str = ""
    ca_file: str = ""

    @classmethod
    def from_catalog(cls, entry: Mapping[str, Any]) -> "PrometheusConfig":
        """Read the `prometheus` entry of a cluster. Raises SourceRejected without a URL."""
        url = str(entry.get("url") or "").rstrip("/")
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc:
            raise SourceRejected(
                f"the cluster's prometheus.url is {without_secrets(url)!r}: "
                "http://HOST:PORT or https://HOST is needed; correct the catalog"
            )
        return cls(
            url=url,
            matchers={str(k): str(v) for k, v in (entry.get("matchers") or {}).items()},
            scrape_interval_seconds=float(
                entry.get("scrape_interval_seconds") or DEFAULT_INTERVAL_SECONDS
            ),
            bearer_token_env=str(entry.get("bearer_token_env") or ""),
            basic_auth_env=str(entry.get("basic_auth_env") or ""),
            ca_file=str(entry.get("ca_file") or ""),
        )

    @property
    def shown_url(self) -> str:
        """The URL as it may be shown to people."""
        return without_secrets(self.url)

    @property
    def loopback(self) -> bool:
        return urlsplit(self.url).hostname in {"127.0.0.1", "localhost", "::1"}

    def auth(self, secret: Secret) -> AuthBase:
        """Return what signs a request. Raises SourceRejected where a variable is not usable."""
        if self.bearer_token_env:
            token = secret(self.bearer_token_env).strip()
            if not token or not token.isascii() or not token.isprintable():
                raise SourceRejected(
                    f"the variable {self.bearer_token_env} (bearer_token_env of the catalog) "
                    "holds no token"
                )
            return _Header(f"Bearer {token}")
        if self.basic_auth_env:
            # At the first colon: a password may hold others.
            user, colon, password = secret(self.basic_auth_env).strip().partition(":")
            if not user or not colon:
                raise SourceRejected(
                    f"the variable {self.basic_auth_env} (basic_auth_env of the catalog) must "
                    "hold user:password"
                )
            # As bytes: requests would encode text as Latin-1.
            return HTTPBasicAuth(user.encode(), password.encode())
        return _Header(None)

    @property
    def auth_hint(self) -> str:
        """Where the sign-in of this cluster comes from, for messages."""
        if self.bearer_token_env:
            return f"check the token in {self.bearer_token_env}"
        if self.basic_auth_env:
            return f"check user and password in {self.basic_auth_env}"
        return "name a bearer_token_env or basic_auth_env in the catalog"


class _Header(AuthBase):
    """Sets the Authorization header, or none: a ~/.netrc must not sign requests for us."""

    def __init__(self, value: str | None) -> None:
        self.value = value

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        if self.value is not None:
            request.headers["Authorization"] = self.value
        return request


def without_secrets(url: str) -> str:
    """Return `url` without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def quoted(value: str) -> str:
    """Return `value` as a PromQL string, in double quotes.

    What cannot be printed is written as \\u or \\U escapes, so that a hostile value can neither
    end the string nor the line.
    """
    return '"' + "".join(_escaped(char) for char in value) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    # A lone surrogate has no escape in Go and cannot be in a label either.
    if 0xD800 <= code <= 0xDFFF:
        return "\\uFFFD"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def literally(values: Iterable[str]) -> str:
    """Return the regular expression that matches exactly these values."""
    return "|".join(_REGEX_SPECIAL.sub(r"\\\1", value) for value in values)


@dataclass(frozen=True, slots=True)
class Matcher:
    """One label matcher; `operator` is one of = != =~ !~."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        if not _LABEL.fullmatch(self.label):
            raise ValueError(f"{self.label!r} is not a label name")
        return f"{self.label}{self.operator}{quoted(self.value)}"


def equal(matchers: Mapping[str, str]) -> tuple[Matcher, ...]:
    """Return the matchers that ask each label for exactly its value."""
    return tuple(Matcher(label, "=", value) for label, value in sorted(matchers.items()))


def one_of(label: str, values: Iterable[str]) -> Matcher:
    """Return the matcher of a label with one of these values."""
    return Matcher(label, "=~", literally(values))


def selector(metric: str, matchers: Sequence[Matcher] = ()) -> str:
    """Return `metric{matchers}`; several metrics are parted by "|"."""
    # Alternatives of a name: an exporter has one of them, so nothing counts twice.
    if "|" in metric:
        return selector("", (Matcher("__name__", "=~", metric), *matchers))
    inner = ",".join(str(matcher) for matcher in matchers)
    return f"{metric}{{{inner}}}" if inner else metric


def over(
    function: str, metric: str, matchers: Sequence[Matcher] = (), *, seconds: float | None = None
) -> str:
    """Return `function(metric{matchers}[range])`; the range is a slot unless `seconds` is given."""
    return f"{function}({selector(metric, matchers)}[{duration(seconds)}])"


def by(aggregation: str, labels: Sequence[str], inner: str) -> str:
    """Return `aggregation by (labels) (inner)`."""
    return f"{aggregation} by ({','.join(labels)}) ({inner})"


def raw(metric: str, matchers: Sequence[Matcher], *, seconds: float | None = None) -> str:
    """Return the range selector that gives raw samples."""
    return f"{selector(metric, matchers)}[{duration(seconds)}]"


def duration(seconds: float | None) -> str:
    """Return a PromQL duration; None is a slot."""
    if seconds is None or seconds == SLOT_SECONDS:
        return SLOT_RANGE
    whole = round(seconds)
    return f"{whole}s" if whole == seconds else f"{round(seconds * 1000)}ms"


class Instant(msgspec.Struct, Generic[Labels], gc=False):
    """One series of an instant query: (Unix seconds, value)."""

    metric: Labels
    value: tuple[float, float]


class Matrix(msgspec.Struct, Generic[Labels]):
    """One series of a range query or a range selector: its (Unix seconds, value) in order."""

    metric: Labels
    values: list[tuple[float, float]]


class _InstantText(msgspec.Struct, Generic[Labels], gc=False):
    metric: Labels
    value: tuple[float, str]


class _MatrixText(msgspec.Struct, Generic[Labels]):
    metric: Labels
    values: list[tuple[float, str]]


class _Result(msgspec.Struct, Generic[Item], rename="camel"):
    result_type: str
    result: list[Item]


class Envelope(msgspec.Struct, Generic[Item], rename="camel"):
    """What surrounds every answer; `error` is the server's own text.

    `is_partial` is VictoriaMetrics' word for what Thanos says in a warning.
    """

    status: str
    data: Item | None = None
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None
    infos: list[str] | None = None
    is_partial: bool = False

    @property
    def notes(self) -> list[str]:
        """Everything the server remarked on its answer."""
        partial = ["the answer is partial"] if self.is_partial else []
        return [*(self.warnings or ()), *partial, *(self.infos or ())]


@lru_cache(maxsize=128)
def _decoder(item: Any) -> msgspec.json.Decoder[Envelope[_Result[Any]]]:
    # Not strict: Prometheus writes sample values as strings, and here they become floats.
    return msgspec.json.Decoder(Envelope[_Result[item]], strict=False)


def decode_instant(body: bytes, labels: type[Labels]) -> tuple[list[Instant[Labels]], list[str]]:
    """Return the series of an instant vector and the answer's remarks.

    Raises SourceUnavailable where the body was cut off, SourceRejected where it is no answer of
    the Prometheus API.
    """
    try:
        envelope = _decode(body, Instant[labels])  # type: ignore[valid-type]
    except msgspec.ValidationError:
        # The fast path does not know "+Inf"; a server that sends one is read again, as text.
        text = _checked(body, _InstantText[labels])  # type: ignore[valid-type]
        items = [Instant(i.metric, (i.value[0], _number(i.value[1]))) for i in _items(text)]
        return items, text.notes
    return _items(envelope), envelope.notes


def decode_matrix(body: bytes, labels: type[Labels]) -> tuple[list[Matrix[Labels]], list[str]]:
    """Return the series of a matrix and the answer's remarks; raises as `decode_instant`."""
    try:
        envelope = _decode(body, Matrix[labels])  # type: ignore[valid-type]
    except msgspec.ValidationError:
        text = _checked(body, _MatrixText[labels])  # type: ignore[valid-type]
        items = [Matrix(i.metric, [(t, _number(v)) for t, v in i.values]) for i in _items(text)]
        return items, text.notes
    return _items(envelope), envelope.notes


def decode_error(body: bytes) -> tuple[str, str] | None:
    """Return (error type, text) of an error answer; None where it is not one of Prometheus."""
    try:
        envelope = msgspec.json.decode(body, type=Envelope[Any])
    except msgspec.DecodeError:
        return None
    return (envelope.error_type, envelope.error) if envelope.status == "error" else None


def _decode(body: bytes, item: Any) -> Envelope[_Result[Any]]:
    try:
        return _decoder(item).decode(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(body, str(error)) from error


def _checked(body: bytes, item: Any) -> Envelope[_Result[Any]]:
    try:
        return _decode(body, item)
    except msgspec.ValidationError as error:
        raise SourceRejected(
            f"answers with JSON that is not of the Prometheus API ({error}); "
            "check that the URL is that of the API, without /api/v1"
        ) from error


def _unreadable(body: bytes, reason: str) -> SourceUnavailable | SourceRejected:
    # A body that was cut off may be whole at the next try; a page of HTML will not be JSON.
    cut = "truncated" in reason or not body.rstrip().endswith(b"}")
    if not body or (cut and body.lstrip()[:1] == b"{"):
        return SourceUnavailable(
            f"sent an answer that was cut off after {len(body)} bytes; "
            "a proxy's limit or time-out on the way may be the cause"
        )
    page = b"<html" in body[:2000].lower() or body.lstrip()[:1] == b"<"
    what = "an HTML page" if page else "something that is not JSON"
    return SourceRejected(
        f"answers with {what}; check that the URL is that of the API itself and not of a "
        "login page or a dashboard"
    )


def _items(envelope: Envelope[_Result[Any]]) -> list[Any]:
    if envelope.status != "success" or envelope.data is None:
        detail = f": {envelope.error}" if envelope.error else ""
        raise SourceRejected(f"answers with status {envelope.status!r} and no data{detail}")
    return envelope.data.result


def check_counts(query: str, series: Sequence[Any]) -> None:
    """Raise SourceUnavailable where an answer to a query that counts samples has no such number.

    No sample makes Prometheus answer so: something between changes its answers, and what else it
    says is not to be trusted either.
    """
    values = [v for one in series for v in _values(one)]
    bad = [v for v in values if not 0.0 <= v <= _MOST_SAMPLES]
    if bad:
        what = "NaN" if bad[0] != bad[0] else f"{bad[0]:g}"
        raise SourceUnavailable(
            f"answers {what} for {len(bad):,} of {len(values):,} values of {query}, which counts "
            "samples: see what lies between the portal and Prometheus (a proxy, a query frontend)"
        )


def _values(one: Any) -> list[float]:
    return [one.value[1]] if isinstance(one, Instant) else [value for _, value in one.values]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise SourceRejected(f"answers with a sample that is not a number: {text!r}") from error


def slot_of(at: float) -> int:
    """Return the slot that a query evaluated at `at` (a slot's end minus a millisecond) reads."""
    return round(at + END_MARGIN_SECONDS) - SLOT_SECONDS


def flat(series: list[Matrix[Labels]]) -> Iterator[tuple[int, Labels, float]]:
    """Yield (slot, labels, value) of every point of a range query over slots."""
    numbers: dict[float, int] = {}
    for one in series:
        labels = one.metric
        for at, value in one.values:
            # Few instants and many series: each instant is turned into its slot once.
            slot = numbers.get(at)
            if slot is None:
                slot = numbers[at] = slot_of(at)
            yield slot, labels, value
