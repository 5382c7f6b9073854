"""Signing the requests to one Prometheus: passwords, tokens that are renewed, AWS and Google."""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import requests
from requests import PreparedRequest
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3.exceptions import HTTPError

from apps.clusters.ports import SourceRejected, SourceUnavailable

Secret = Callable[[str], str]
"""Gives the value of an environment variable; empty when it is not set."""

TOKEN_SECONDS = 10.0
"""How long a token endpoint may take to answer."""
# A token is renewed before its end, so that none ends on its way to the server. Of short-lived
# ones a part is kept back: a minute might be all that they last.
_SPARE_SECONDS = 60.0
_SPARE_SHARE = 0.2
_UNSAID_SECONDS = 300.0
"""For how long a token without `expires_in` is used."""
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/monitoring.read"
_RUBBISH = (OSError, ValueError, TypeError, AttributeError, KeyError)
"""What libraries let through of a file that is away, or is not what they take for granted."""
_MOST_BYTES = 1 << 20
_ERROR_CODE = re.compile(r"[a-z_]{1,60}")


class SignIn(Protocol):
    """How requests are signed. `hint` says what a person checks where that is refused."""

    hint: str

    def auth(self) -> AuthBase:
        """Return what signs a request now. Raises SourceRejected, or SourceUnavailable."""

    def renewed(self, used: AuthBase) -> bool:
        """Say whether there is another sign-in than `used`, which was answered with 401."""


class Header(AuthBase):
    """Sets the Authorization header, or none: a ~/.netrc must not sign requests for us."""

    def __init__(self, value: str | None) -> None:
        self.value = value

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        if self.value is not None:
            request.headers["Authorization"] = self.value
        return request


def sign_in_of(entry: Mapping[str, Any], secret: Secret) -> SignIn:
    """Return how requests are signed by the `prometheus` entry of a cluster."""
    if entry.get("sigv4"):
        return SigV4(entry["sigv4"])
    if entry.get("oauth2"):
        return ClientCredentials(entry["oauth2"], secret)
    if entry.get("google_credentials"):
        return GoogleCredentials()
    if entry.get("bearer_token_file"):
        return _TokenFile(str(entry["bearer_token_file"]))
    if entry.get("bearer_token_env"):
        return _TokenVariable(str(entry["bearer_token_env"]), secret)
    if entry.get("basic_auth_env"):
        return _Password(str(entry["basic_auth_env"]), secret)
    return _Unsigned()


class _Unsigned:
    hint = "name a sign-in in the catalog, as bearer_token_env or basic_auth_env"

    def auth(self) -> AuthBase:
        return Header(None)

    def renewed(self, used: AuthBase) -> bool:
        return False


class _TokenVariable:
    """The token in a variable, or in the file that `NAME_FILE` names, which may be rotated."""

    def __init__(self, variable: str, secret: Secret) -> None:
        self._variable = variable
        self._secret = secret
        self.hint = f"check the token in {variable}"

    def auth(self) -> Header:
        token = self._secret(self._variable).strip()
        if not _is_token(token):
            raise SourceRejected(
                f"the variable {self._variable} (bearer_token_env of the catalog) holds no token"
            )
        return Header(f"Bearer {token}")

    def renewed(self, used: AuthBase) -> bool:
        return _differs(self.auth(), used)


class _TokenFile:
    """The token in a file, read for each request, as a workload identity's is rotated."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.hint = f"check the token in {path}"

    def auth(self) -> Header:
        token = read_token(self._path, "bearer_token_file")
        return Header(f"Bearer {token}")

    def renewed(self, used: AuthBase) -> bool:
        return _differs(self.auth(), used)


class _Password:
    def __init__(self, variable: str, secret: Secret) -> None:
        self._variable = variable
        self._secret = secret
        self.hint = f"check user and password in {variable}"

    def auth(self) -> HTTPBasicAuth:
        # At the first colon: a password may hold others.
        user, colon, password = self._secret(self._variable).strip().partition(":")
        if not user or not colon:
            raise SourceRejected(
                f"the variable {self._variable} (basic_auth_env of the catalog) must hold "
                "user:password"
            )
        # As bytes: requests would encode text as Latin-1.
        return HTTPBasicAuth(user.encode(), password.encode())

    def renewed(self, used: AuthBase) -> bool:
        return self.auth() != used


class ClientCredentials:
    """A token by OAuth2 client credentials, kept until shortly before it expires (RFC 6749, 4.4).

    With a `client_assertion_file` the client shows the token in it instead of a secret (RFC 7523),
    as workloads of Azure do; the file is read anew each time.
    """

    def __init__(
        self,
        entry: Mapping[str, Any],
        secret: Secret,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entry = entry
        self._secret = secret
        self._clock = clock
        self._lock = threading.Lock()
        self._token: Header | None = None
        self._renew_at = self._expires_at = 0.0
        self._url = str(entry["token_url"])
        holds = entry.get("client_secret_env") or entry.get("client_assertion_file")
        self.hint = f"check client_id, {holds} and scopes of oauth2, and what the client may read"

    def auth(self) -> Header:
        """Return the kept token, or a new one from a fifth of its life before its end."""
        with self._lock:
            now = self._clock()
            if self._token is not None and now < self._renew_at:
                return self._token
            try:
                token, seconds = self._fetched()
            except SourceUnavailable:
                # What is kept still holds: the endpoint has until then to come back.
                if self._token is not None and now < self._expires_at:
                    return self._token
                raise
            self._expires_at = now + seconds
            self._renew_at = self._expires_at - min(_SPARE_SECONDS, _SPARE_SHARE * seconds)
            self._token = Header(f"Bearer {token}")
            return self._token

    def renewed(self, used: AuthBase) -> bool:
        """Drop the token that was refused; the next request fetches another."""
        with self._lock:
            # Another thread may have renewed it meanwhile.
            if self._token is used:
                self._token = None
        return True

    def _fetched(self) -> tuple[str, float]:
        entry = self._entry
        form = {"grant_type": "client_credentials", **(entry.get("parameters") or {})}
        if entry.get("scopes"):
            form["scope"] = " ".join(entry["scopes"])
        auth = self._shown(form)
        try:
            # A redirect would carry the secret elsewhere.
            with requests.post(
                self._url,
                data=form,
                auth=auth,
                timeout=TOKEN_SECONDS,
                allow_redirects=False,
                stream=True,
            ) as answer:
                return self._read(answer.status_code, self._body(answer))
        except requests.exceptions.SSLError:
            raise SourceRejected(
                f"the token endpoint {self._url} cannot be spoken to securely; check token_url"
            ) from None
        except (requests.exceptions.RequestException, HTTPError) as error:
            # Without the cause: its request has the secret in it.
            raise SourceUnavailable(
                f"the token endpoint {self._url} did not answer ({type(error).__name__})"
            ) from None

    def _shown(self, form: dict[str, str]) -> AuthBase:
        """Return what signs the request for a token; adds to the form what stands in its body."""
        client = str(self._entry["client_id"])
        if self._entry.get("client_assertion_file"):
            path = str(self._entry["client_assertion_file"])
            form |= {
                "client_id": client,
                "client_assertion_type": _ASSERTION_TYPE,
                "client_assertion": read_token(path, "client_assertion_file"),
            }
            return Header(None)
        variable = str(self._entry["client_secret_env"])
        secret = self._secret(variable).strip()
        if not secret:
            raise SourceRejected(
                f"the variable {variable} (oauth2.client_secret_env of the catalog) is empty"
            )
        if self._entry.get("client_auth") == "body":
            form |= {"client_id": client, "client_secret": secret}
            return Header(None)
        # Encoded as a form first: RFC 6749, 2.3.1.
        return HTTPBasicAuth(quote(client, safe=""), quote(secret, safe=""))

    def _body(self, answer: requests.Response) -> bytes:
        """Return the answer, of which all requests wait for the end: it is bounded."""
        until, body = self._clock() + TOKEN_SECONDS, b""
        while part := answer.raw.read1(_MOST_BYTES, decode_content=True):
            body += part
            if len(body) > _MOST_BYTES or self._clock() > until:
                raise SourceUnavailable(
                    f"the token endpoint {self._url} does not end its answer: {len(body):,} bytes "
                    f"after {TOKEN_SECONDS:g} s at most"
                )
        return body

    def _read(self, status: int, body: bytes) -> tuple[str, float]:
        try:
            said = json.loads(body)
        except (ValueError, RecursionError):
            said = None
        said = said if isinstance(said, dict) else {}
        if status == 429 or status >= 500:
            raise SourceUnavailable(f"the token endpoint {self._url} answers with HTTP {status}")
        token = said.get("access_token")
        if status == 200 and isinstance(token, str) and _is_token(token):
            return token, _seconds(said.get("expires_in"))
        # Of the answer the code alone: its description may repeat what was sent.
        code = str(said.get("error") or "")
        named = f" ({code})" if _ERROR_CODE.fullmatch(code) else ""
        raise SourceRejected(
            f"the token endpoint {self._url} answers with HTTP {status}{named} and no "
            f"token; {self.hint}"
        )


class _FoundCredentials:
    """Credentials that a library finds where the portal runs; kept until they are refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credentials: Any = None

    def renewed(self, used: AuthBase) -> bool:
        """Find them anew: those of a file may have been replaced."""
        with self._lock:
            self._credentials = None
        return True


class SigV4(_FoundCredentials):
    """Signature version 4 of AWS, with the credentials that botocore finds and renews.

    Those are, in its order: variables, the AWS configuration (`profile`), a role by a web identity
    token (EKS), containers and instances.
    """

    hint = "check that the role may do aps:QueryMetrics and the region is the workspace's"

    def __init__(self, entry: Mapping[str, Any]) -> None:
        super().__init__()
        self._region = str(entry["region"])
        self._service = str(entry.get("service") or "aps")
        self._profile = str(entry.get("profile") or "") or None

    def auth(self) -> AuthBase:
        """Return what signs with the credentials of now; they are found once."""
        # Heavy, and most portals need none of it.
        import botocore.exceptions
        import botocore.session

        try:
            with self._lock:
                if self._credentials is None:
                    session = botocore.session.Session(profile=self._profile)
                    self._credentials = session.get_credentials()
                if self._credentials is None:
                    raise SourceRejected(
                        "sigv4 of the catalog finds no AWS credentials: give the portal a role "
                        "(IRSA, Pod Identity), variables or a profile"
                    )
                frozen = self._credentials.get_frozen_credentials()
        except botocore.exceptions.ProfileNotFound:
            raise SourceRejected(
                f"sigv4 of the catalog names the profile {self._profile!r}, which the AWS "
                "configuration has not"
            ) from None
        except (botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError) as error:
            raise SourceUnavailable(
                f"AWS gives no credentials now ({type(error).__name__})"
            ) from None
        except (
            botocore.exceptions.BotoCoreError,
            botocore.exceptions.ClientError,
            *_RUBBISH,
        ) as error:
            raise SourceRejected(
                f"AWS gives no credentials ({type(error).__name__}): check the token file, the "
                "configuration and the program that it names"
            ) from None
        return _Signature(frozen, self._service, self._region)


class _Signature(AuthBase):
    def __init__(self, credentials: Any, service: str, region: str) -> None:
        self._signing = (credentials, service, region)

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        # Only what no proxy on the way changes is signed.
        kind = request.headers.get("Content-Type")
        headers = {"Content-Type": kind} if kind else {}
        signed = AWSRequest(
            method=request.method, url=request.url, data=request.body or b"", headers=headers
        )
        SigV4Auth(*self._signing).add_auth(signed)
        request.headers.update(signed.headers)
        return request


class GoogleCredentials(_FoundCredentials):
    """A token of Google's application default credentials: workload identity, or a key file."""

    hint = "check that the service account has the role monitoring.viewer"

    def auth(self) -> Header:
        """Return the token, renewed by Google's library shortly before it expires."""
        from google.auth import default, exceptions
        from google.auth.transport.requests import Request

        try:
            with self._lock:
                if self._credentials is None:
                    self._credentials, _ = default(scopes=[_GOOGLE_SCOPE])
                if not self._credentials.valid:
                    self._credentials.refresh(Request())
                return Header(f"Bearer {self._credentials.token}")
        except exceptions.TransportError as error:
            raise SourceUnavailable(f"Google gives no token now ({type(error).__name__})") from None
        except (exceptions.GoogleAuthError, *_RUBBISH) as error:
            raise SourceRejected(
                f"google_credentials of the catalog finds no credentials ({type(error).__name__}): "
                "give the portal a workload identity, or GOOGLE_APPLICATION_CREDENTIALS"
            ) from None


def read_token(path: str, key: str) -> str:
    """Return the token in a file. Raises SourceRejected, naming the catalog's key."""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceRejected(
            f"{key} of the catalog, {path}, cannot be read ({type(error).__name__})"
        ) from None
    if not _is_token(token):
        raise SourceRejected(f"{key} of the catalog, {path}, holds no token")
    return token


def _is_token(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable()


def _differs(now: Header, used: AuthBase) -> bool:
    return isinstance(used, Header) and now.value != used.value


def _seconds(said: object) -> float:
    """Return for how long a token holds; some servers write the number as text."""
    try:
        seconds = float(str(said))
    except ValueError:
        return _UNSAID_SECONDS
    return seconds if 0 < seconds < 1e9 else _UNSAID_SECONDS
