"""A small OpenID Connect provider on the loopback, which can be made to misbehave."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec import Struct, field

CLIENT_ID, CLIENT_SECRET = "gpuportal", "a secret of both"
Claims = dict[str, Any]


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def _key() -> rsa.RSAPrivateKey:
    """Return the provider's key; it takes half a second, which only those who sign in need."""
    return new_key()


def signed(claims: Claims) -> str:
    return jwt.encode(claims, _key(), algorithm="RS256", headers={"kid": "one"})


def as_it_is(claims: Claims) -> Claims:
    return claims


class Provider(Struct):
    """What it says of whoever signs in, and where it goes wrong.

    `claims` are of the person; `twist` changes the claims of the ID token before it is signed,
    `sign` signs it. `asks` shows a page with a button, as people see it, instead of sending back
    at once. `answers` replaces the answer of a path. `codes` are codes in flight with what they
    were asked for. `fetched` are the paths that were got.
    """

    url: str = ""
    claims: Claims = field(default_factory=dict)
    userinfo: Claims | None = None
    twist: Callable[[Claims], Claims] = as_it_is
    sign: Callable[[Claims], str] = signed
    asks: bool = False
    error: str = ""
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def configuration(self) -> Claims:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def keys(self) -> Claims:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(_key().public_key()))
        return {"keys": [{**public, "kid": "one", "alg": "RS256", "use": "sig"}]}

    def back(self, query: dict[str, str]) -> str:
        """Return where the browser goes after it was asked for `query`."""
        self.asked.append(query)
        given = {"state": query["state"]}
        if self.error:
            return f"{query['redirect_uri']}?{urlencode({**given, 'error': self.error})}"
        code = secrets.token_urlsafe(8)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({**given, 'code': code})}"

    def token(self, form: dict[str, str]) -> tuple[int, Claims]:
        """Exchange a code, once, for who presents the secret and the PKCE verifier."""
        query = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            query is None
            or (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET)
            or query.get("code_challenge") != challenge
            or query["redirect_uri"] != form.get("redirect_uri")
        ):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": query.get("nonce"),
            **self.claims,
        }
        token = self.sign(self.twist(claims))
        return 200, {"access_token": "of no further use", "id_token": token, "expires_in": 300}

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path in self.answers:
            return self.answers[path]
        match path:
            case "/.well-known/openid-configuration":
                return 200, self.configuration()
            case "/keys":
                return 200, self.keys()
            case "/favicon.ico":
                return 200, ""
            case "/userinfo":
                return 200, self.claims if self.userinfo is None else self.userinfo
            case "/authorize" if self.asks:
                return 200, f'<h1>Provider</h1><a href="/go?{urlencode(query)}">I am Ada</a>'
            case "/authorize" | "/go":
                return 302, self.back(query)
            case _:
                return 404, {}


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            provider.fetched.append(parts.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            self._send(*provider.answer(parts.path, query))

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            form = parse_qs(self.rfile.read(length).decode())
            self._send(
                *provider.answers.get(
                    "/token", provider.token({key: values[0] for key, values in form.items()})
                )
            )

        def _send(self, status: int, said: Any) -> None:
            page = isinstance(said, str)
            body = (said if page else json.dumps(said)).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", said)
            self.send_header("Content-Type", "text/html" if page else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: Any) -> None:
            """Keep quiet."""

    return Handler


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Serve a provider on a free port until the block ends."""
    provider = Provider()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(provider))
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
