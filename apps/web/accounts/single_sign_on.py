"""Single sign-on with an OpenID Connect provider, as django-allauth asks it of us."""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any

import jwt
import requests
from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter, get_adapter
from allauth.socialaccount.models import SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.base.constants import AuthError, AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import constant_time_compare, get_random_string
from msgspec import Struct

from apps.accounts.adapters.addresses import client_address
from apps.accounts.domain.identity import granted, groups_in
from apps.accounts.services import AdmissionRefused, Identity, admit, dismiss
from apps.web.accounts.sign_in import sign_in_page
from gpuportal.single_sign_on import SingleSignOn

CACHED_SECONDS = 600.0
FAILED_SECONDS = 10.0
MOST_BYTES = 1_000_000
_CHUNK = 16_384


class _Cached(Struct, frozen=True):
    """What came of a fetch, and until when (of the monotonic clock) it is told again."""

    until: float
    document: Any = None
    error: str = ""


class Documents:
    """Documents by address, the last `most` of them. Safe to use from several threads."""

    def __init__(self, *, most: int = 4, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._lock = threading.Lock()
        self._kept: dict[str, _Cached] = {}

    def get(self, address: str) -> Any:
        """Return a document, fetched at most once in ten minutes. Raises RequestException."""
        with self._lock:
            kept = self._kept.get(address)
            if kept is None or self._clock() >= kept.until:
                # Taken out first: what is put in again counts as the newest.
                self._kept.pop(address, None)
                kept = self._fetch(address)
                self._kept[address] = kept
                while len(self._kept) > self._most:
                    del self._kept[next(iter(self._kept))]
        if kept.error:
            raise requests.ConnectionError(kept.error)
        return kept.document

    def _fetch(self, address: str) -> _Cached:
        try:
            document = fetched(address)
        except requests.RequestException as error:
            # Errors are kept for a short time, too: each sign-in would wait for the time-out anew.
            return _Cached(self._clock() + FAILED_SECONDS, error=f"{type(error).__name__}: {error}")
        return _Cached(self._clock() + CACHED_SECONDS, document)

    def forget(self) -> None:
        """Fetch anew from now on."""
        with self._lock:
            self._kept.clear()


CONFIGURATIONS = Documents()


def fetched(address: str) -> Any:
    """Return a document, which may be of MOST_BYTES and take a few seconds in all.

    The time-out of a connection counts from one byte to the next: who sends slowly enough would
    never meet it. Raises RequestException.
    """
    ends = time.monotonic() + settings.SOCIALACCOUNT_REQUESTS_TIMEOUT
    body = bytearray()
    with (
        get_adapter().get_requests_session() as session,
        session.get(address, stream=True) as answer,
    ):
        answer.raise_for_status()
        # As it comes: to read a whole part would wait for all of its bytes.
        while chunk := answer.raw.read1(_CHUNK, decode_content=True):
            body += chunk
            if len(body) > MOST_BYTES:
                raise requests.exceptions.ContentDecodingError(f"{address} sends too much")
            if time.monotonic() > ends:
                raise requests.Timeout(f"{address} sends too slowly")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise requests.exceptions.InvalidJSONError(f"{address} sends no JSON") from error


logger = logging.getLogger(__name__)

# Public keys only: with a shared secret a program that can check a token could also make one.
ALGORITHMS = [
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
]
CLOCKS_APART_SECONDS = 60
_ADDRESSES = ("authorization_endpoint", "token_endpoint", "jwks_uri")
# As long as the columns that keep them.
_LONGEST_SUBJECT, _LONGEST_NAME, _LONGEST_EMAIL = 191, 150, 254

_AWAY = "it does not answer. Try again in a few minutes."
_WRONG = "try again; if it stays so, ask an administrator, who finds the reason in the log."
_STALE = (
    "This sign-in was begun more than ten minutes ago, in another browser, or is over already. "
    "Begin again."
)


class PortalAdapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]  # allauth has no types
    """The exchange with the provider."""

    @cached_property
    def openid_config(self) -> dict[str, Any]:
        """Return the provider's configuration. Raises OAuth2Error, RequestException."""
        config = CONFIGURATIONS.get(self.get_provider().server_url)
        if not isinstance(config, dict) or not all(
            isinstance(config.get(name), str) for name in ("issuer", *_ADDRESSES)
        ):
            raise OAuth2Error("the provider's configuration lacks addresses")
        if config["issuer"].rstrip("/") != _known().issuer:
            raise OAuth2Error(f"the configuration is of another issuer, {config['issuer']!r}")
        return config

    def get_callback_url(self, request: HttpRequest, _app: SocialApp) -> str:
        return request.build_absolute_uri(reverse("web:sign-in-callback"))

    def parse_token(self, data: Mapping[str, Any]) -> SocialToken:
        """Return the access token, which is used once and not kept."""
        return SocialToken(token=str(data["access_token"]))

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any
    ) -> SocialLogin:
        """Return the sign-in that the provider vouches for. Raises OAuth2Error."""
        claims = self._verified(kwargs["response"].get("id_token"), app.client_id)
        if "userinfo_endpoint" in self.openid_config:
            said = self._fetch_user_info(token.token)
            # The token is the proof; user info that is of somebody else must not replace it.
            if not isinstance(said, dict) or said.get("sub") != claims["sub"]:
                raise OAuth2Error("the user info is of somebody else")
            # The nonce is believed from the signed token alone.
            claims = {**claims, **said, "nonce": claims.get("nonce")}
        request.provider_claims = claims  # type: ignore[attr-defined]
        return self.get_provider().sociallogin_from_response(request, {"userinfo": claims})

    def _verified(self, id_token: object, client_id: str) -> dict[str, Any]:
        """Return the claims of an ID token that the provider signed for this portal."""
        if not isinstance(id_token, str):
            raise OAuth2Error("the provider sent no ID token")
        try:
            claims: dict[str, Any] = jwt.decode(
                id_token,
                self._key_of(id_token),
                algorithms=ALGORITHMS,
                audience=client_id,
                issuer=self.openid_config["issuer"],
                leeway=CLOCKS_APART_SECONDS,
                options={"require": ["iss", "sub", "aud", "exp", "iat"]},
            )
        except (jwt.PyJWTError, AttributeError, TypeError, ValueError) as error:
            raise OAuth2Error(f"the ID token cannot be trusted: {error}") from error
        if claims.get("azp", client_id) != client_id:
            raise OAuth2Error("the ID token was made for another client")
        if not claims["sub"] or len(claims["sub"]) > _LONGEST_SUBJECT:
            raise OAuth2Error("the ID token has no user name, or one that is too long")
        return claims

    def _key_of(self, id_token: str) -> jwt.PyJWK:
        """Return the provider's key that signed the token. Raises PyJWTError, ValueError."""
        keys = jwt.PyJWKSet.from_dict(fetched(self.openid_config["jwks_uri"])).keys
        wanted = jwt.get_unverified_header(id_token).get("kid")
        fitting = [key for key in keys if wanted is None or key.key_id == wanted]
        # With two keys of one name it is not known which of them is to be trusted.
        if len(fitting) != 1:
            raise ValueError(f"{len(fitting)} of the provider's keys are called {wanted!r}")
        return fitting[0]


class PortalProvider(OpenIDConnectProvider):  # type: ignore[misc]  # allauth has no types
    """The one provider of this portal; nothing it says is kept but who the person is."""

    oauth2_adapter_class = PortalAdapter

    def redirect(
        self,
        request: HttpRequest,
        process: str,
        next_url: str | None = None,
        data: Any = None,
        **kwargs: Any,
    ) -> HttpResponseBase:
        nonce = get_random_string(32)
        kwargs["auth_params"] = {**self.get_auth_params(), "nonce": nonce}
        answer: HttpResponseBase = super().redirect(
            request, process, next_url, data, nonce=nonce, **kwargs
        )
        return answer

    def extract_extra_data(self, _data: Any) -> dict[str, Any]:
        return {}

    def extract_common_fields(self, _data: Any) -> dict[str, Any]:
        return {}

    def extract_email_addresses(self, _data: Any) -> list[Any]:
        return []


class QuietAccounts(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """allauth's accounts without their own messages and sign-up."""

    def add_message(self, *_: Any, **__: Any) -> None:
        """Say nothing: the page that follows shows who is signed in."""

    def is_open_for_signup(self, _request: HttpRequest) -> bool:
        return False


class PortalSignIn(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """Whose account a sign-in is, and what is said when it fails."""

    def get_provider(
        self, request: HttpRequest, provider: str, client_id: str | None = None
    ) -> PortalProvider:
        """Return the provider of the settings. Raises Http404 where there is none."""
        return provider_of(request)

    def list_apps(self, *_: Any, **__: Any) -> list[SocialApp]:
        return []  # settings alone say who may vouch for people, never a row of a table

    def is_open_for_signup(self, _request: HttpRequest, _sociallogin: SocialLogin) -> bool:
        return False  # accounts are made below, before allauth would ask

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Find or make the account. Raises OAuth2Error, and ImmediateHttpResponse to refuse."""
        claims: dict[str, Any] = request.provider_claims  # type: ignore[attr-defined]
        known = _known()
        nonce = sociallogin.state.get("nonce", "")
        if not nonce or not constant_time_compare(str(claims.get("nonce")), nonce):
            raise OAuth2Error("the ID token answers another sign-in (nonce)")
        try:
            sociallogin.account = _admitted(claims, known, origin=client_address(request) or "")
        except AdmissionRefused as refusal:
            raise ImmediateHttpResponse(
                sign_in_page(request, str(refusal), HTTPStatus.FORBIDDEN)
            ) from refusal
        sociallogin.user = sociallogin.account.user

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: str | None = None,
        exception: Exception | None = None,
        extra_context: Mapping[str, Any] | None = None,
    ) -> None:
        """Answer with the sign-in page and what can be done. Raises ImmediateHttpResponse."""
        if exception is not None:
            answer = _failed(request, exception)
        elif "state" in (extra_context or {}):
            called_off = error in {AuthError.CANCELLED, AuthError.DENIED}
            answer = _sent_back(request, called_off=called_off)
        else:
            answer = sign_in_page(request, _STALE, HTTPStatus.BAD_REQUEST)
        raise ImmediateHttpResponse(answer)


def begin(request: HttpRequest, *, next_url: str) -> HttpResponseBase:
    """Send the browser to the provider, from where it comes back to `finish`. Raises Http404."""
    provider = provider_of(request)
    if request.user.is_authenticated:
        return HttpResponseRedirect(next_url)
    try:
        return provider.redirect(request, AuthProcess.LOGIN, next_url)
    except (requests.RequestException, OAuth2Error) as error:
        return _failed(request, error)


def finish(request: HttpRequest) -> HttpResponseBase:
    """Sign in who comes back from the provider, or say why not. Raises Http404."""
    provider = provider_of(request)
    view = OAuth2CallbackView.adapter_view(PortalAdapter(request, provider.sub_id))
    try:
        answer: HttpResponseBase = view(request)
    except (requests.RequestException, OAuth2Error) as error:  # before the code is exchanged
        return _failed(request, error)
    return answer


def provider_of(request: HttpRequest) -> PortalProvider:
    """Return the provider of the settings. Raises Http404 where there is none."""
    known = _known()
    app = SocialApp(
        provider=PortalProvider.id,
        provider_id=known.issuer,
        name=known.name,
        client_id=known.client_id,
        secret=known.client_secret,
        settings={
            "server_url": known.issuer,
            "oauth_pkce_enabled": True,
            "scope": list(known.scopes),
        },
    )
    return PortalProvider(request, app=app)


def _failed(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Return the sign-in page with what went wrong between here and the provider."""
    name = _known().name
    if isinstance(exception, requests.RequestException):
        logger.error("The sign-in provider does not answer: %s", exception)
        problem = f"Sign-in with {name} does not work now: {_AWAY}"
    else:
        logger.error("A sign-in was refused: %s", exception)
        problem = f"The answer of {name} was not accepted: {_WRONG}"
    return sign_in_page(request, problem, HTTPStatus.BAD_GATEWAY)


def _sent_back(request: HttpRequest, *, called_off: bool) -> HttpResponseBase:
    """Return the sign-in page with what the provider said instead of a code."""
    name = _known().name
    if called_off:
        problem = f"{name} did not sign you in: it was called off there."
        return sign_in_page(request, problem, HTTPStatus.FORBIDDEN)
    told = {key: request.GET.get(key, "")[:200] for key in ("error", "error_description")}
    logger.error("The sign-in provider answered with an error: %s", json.dumps(told))
    problem = f"{name} answered with an error: {_WRONG}"
    return sign_in_page(request, problem, HTTPStatus.BAD_GATEWAY)


def _known() -> SingleSignOn:
    """Return the settings of the provider. Raises Http404 where there is none."""
    known = settings.SINGLE_SIGN_ON
    if known is None:
        raise Http404("This portal has no sign-in provider.")
    return known


def _admitted(claims: Mapping[str, Any], known: SingleSignOn, *, origin: str) -> Any:
    """Return the account of who has these claims. Raises AdmissionRefused."""
    now = timezone.now()
    gives = granted(groups_in(claims.get(known.groups_claim)), known.rules)
    identity = Identity(
        issuer=known.issuer,
        subject=claims["sub"],
        username=_text(claims, known.username_claim),
        email=_text(claims, "email", _LONGEST_EMAIL),
        first_name=_text(claims, "given_name", _LONGEST_NAME),
        last_name=_text(claims, "family_name", _LONGEST_NAME),
    )
    if known.only_groups and not gives.known:
        dismiss(identity, origin=origin, now=now)
        raise AdmissionRefused(
            f"You are known at {known.name}, but in no group that may use this portal. Ask an "
            "administrator which group that is, and sign in again once you are in it."
        )
    return admit(identity, gives, origin=origin, now=now)


def _text(claims: Mapping[str, Any], name: str, longest: int | None = None) -> str:
    """Return what can be printed of a claim; empty for one that is no text."""
    value = claims.get(name)
    if not isinstance(value, str):
        return ""
    return "".join(sign for sign in value if sign.isprintable())[:longest]
