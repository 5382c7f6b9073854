"""The sign-in provider (OpenID Connect), as the environment describes it."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from apps.accounts.domain.identity import GroupRule, GroupsRefused, read_rules
from gpuportal import env

# As long as the column that keeps who observed for an account.
_LONGEST_ISSUER = 200


@dataclass(frozen=True, slots=True)
class SingleSignOn:
    """Where people sign in, and what their groups there give them here.

    `name` is what the button says. `only_groups`: who is in no group of `rules` stays outside.
    `token_days`: how long API tokens hold after their person's last sign-in there. Who leaves is
    not reported to the portal, and only a sign-in shows what their groups are now.
    """

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    name: str = "single sign-on"
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    username_claim: str = "preferred_username"
    groups_claim: str = "groups"
    rules: tuple[GroupRule, ...] = ()
    only_groups: bool = False
    token_days: int = 30


def single_sign_on(*, production: bool) -> SingleSignOn | None:
    """Return what GPUPORTAL_OIDC_* say; None without an issuer. Raises ImproperlyConfigured."""
    issuer = env.text("GPUPORTAL_OIDC_ISSUER", "").rstrip("/")
    if not issuer:
        return None
    _check_issuer(issuer, production=production)
    client_id = env.text("GPUPORTAL_OIDC_CLIENT_ID", "")
    client_secret = env.text("GPUPORTAL_OIDC_CLIENT_SECRET", "")
    if not client_id or not client_secret:
        raise ImproperlyConfigured(
            "GPUPORTAL_OIDC_ISSUER needs GPUPORTAL_OIDC_CLIENT_ID and GPUPORTAL_OIDC_CLIENT_SECRET "
            "(or GPUPORTAL_OIDC_CLIENT_SECRET_FILE): what the provider calls this portal, and its "
            "secret"
        )
    rules = _rules()
    only_groups = env.flag("GPUPORTAL_OIDC_ONLY_GROUPS", default=False)
    if only_groups and not rules:
        raise ImproperlyConfigured(
            "GPUPORTAL_OIDC_ONLY_GROUPS=yes without GPUPORTAL_OIDC_GROUPS refuses every user"
        )
    return SingleSignOn(
        issuer=issuer,
        client_id=client_id,
        client_secret=client_secret,
        name=env.text("GPUPORTAL_OIDC_NAME", "single sign-on"),
        scopes=tuple(env.words("GPUPORTAL_OIDC_SCOPES", "openid,profile,email")),
        username_claim=env.text("GPUPORTAL_OIDC_USERNAME_CLAIM", "preferred_username"),
        groups_claim=env.text("GPUPORTAL_OIDC_GROUPS_CLAIM", "groups"),
        rules=rules,
        only_groups=only_groups,
        token_days=env.whole("GPUPORTAL_OIDC_TOKEN_DAYS", 30, least=1, most=366),
    )


def _check_issuer(issuer: str, *, production: bool) -> None:
    try:
        parts = urlsplit(issuer)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname or len(issuer) > _LONGEST_ISSUER:
        raise ImproperlyConfigured(
            f"GPUPORTAL_OIDC_ISSUER={issuer!r} is no address, as https://login.example.org/realm, "
            f"of {_LONGEST_ISSUER} characters at most"
        )
    if production and parts.scheme != "https":
        raise ImproperlyConfigured(
            "GPUPORTAL_OIDC_ISSUER must begin with https:// when GPUPORTAL_ENV=production: who "
            "listens on the way could sign in as anybody"
        )


def _rules() -> tuple[GroupRule, ...]:
    try:
        return read_rules(env.text("GPUPORTAL_OIDC_GROUPS", ""))
    except GroupsRefused as error:
        raise ImproperlyConfigured(f"GPUPORTAL_OIDC_GROUPS: {error}") from error
