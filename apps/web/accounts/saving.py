"""Which addresses can be saved as views: those of this portal's own pages."""

from urllib.parse import parse_qsl, unquote, urlsplit

from django.urls import Resolver404, get_script_prefix, resolve

from apps.web.components.filtering import EVERY
from apps.web.components.links import with_query
from apps.web.components.picker import PLACE_KEYS

LONGEST = 2000
# Pages that are no view of anything, or not for keeping.
_NOT_SAVED = frozenset(
    {"sign-in", "sign-out", "healthz", "readyz", "styleguide"}
    | {"views", "save-view", "delete-view", "first-run"}
    | {"sign-in-provider", "sign-in-callback", "sign-out-everywhere"}
    | {"tokens", "make-token", "revoke-token", "users", "disable-person", "enable-person"}
    | {"user", "make-person", "give-role", "give-place", "shut-out-person"}
    | {"password", "change-password"}
)


def own_address(text: str) -> str | None:
    """Return an address as it is saved, without places in lists; None for what is none of ours.

    What comes back begins with one slash and leads to a page of this portal: neither another host
    nor what a browser would take for one.
    """
    if len(text) > LONGEST or not text.startswith("/") or text.startswith("//"):
        return None
    if "\\" in text or not text.isprintable() or "\0" in unquote(text):
        return None
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    if parts.scheme or parts.netloc or not _is_page(parts.path):
        return None
    given = parse_qsl(parts.query, keep_blank_values=True)
    kept = [
        (key, value)
        for key, value in given
        if key not in PLACE_KEYS and (value or key not in EVERY)
    ]
    address = with_query(parts.path, kept)
    return address if len(address) <= LONGEST else None


def _is_page(path: str) -> bool:
    prefix = get_script_prefix()
    if not path.startswith(prefix):
        return False
    try:
        found = resolve("/" + unquote(path[len(prefix) :]))
    except Resolver404:
        return False
    return found.namespaces == ["web"] and found.url_name not in _NOT_SAVED
