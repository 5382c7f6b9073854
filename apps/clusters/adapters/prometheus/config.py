"""How one cluster's Prometheus is reached: the catalog's `prometheus` entry, typed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from requests import PreparedRequest
from requests.auth import AuthBase, HTTPBasicAuth

from apps.clusters.ports import SourceRejected

DEFAULT_INTERVAL_SECONDS = 30.0

Secret = Callable[[str], str]
"""Gives the value of an environment variable; empty when it is not set."""


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
            user, colon, password = secret(self.basic_auth_env).strip().partition(":")
            if not user or not colon:
                raise SourceRejected(
                    f"the variable {self.basic_auth_env} (basic_auth_env of the catalog) must "
                    "hold user:password"
                )
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
