"""What all endpoints share, and what they read of a request."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

from django.utils import timezone
from django.utils.cache import patch_cache_control, patch_vary_headers
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.permissions import Visibility, visibility_of
from apps.api.base.parameters import PAGE_SIZE
from apps.api.base.windows import window_of
from apps.clusters.domain.window import Window

if TYPE_CHECKING:
    from apps.accounts.models import User


class OneForm(BaseContentNegotiation):
    """Answer with the first renderer, whatever `Accept` says; `format=csv` asks for a file.

    A body is read as what its Content-Type says it is, and as JSON where none is named.
    """

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        named = (request.content_type or "").partition(";")[0].strip().lower()
        of_kind = (parser for parser in parsers if named in {"", parser.media_type})
        return next(of_kind, None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: Any = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, str(first.media_type)


class PortalView(APIView):
    """What all endpoints share: answers are the reader's own and are not kept by caches."""

    content_negotiation_class = OneForm

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        patch_cache_control(final, private=True, no_store=True)
        patch_vary_headers(final, ("Authorization", "Cookie"))
        return final


def window_in(query: dict[str, Any], zone: ZoneInfo) -> Window:
    """Return the window asked for. Raises InvalidParameters."""
    return window_of(query.get("start"), query.get("end"), zone=zone, now=timezone.now())


def visibility_in(request: Request) -> Visibility:
    """Return what the caller may see."""
    return visibility_of(cast("User", request.user))


def paging(query: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a selector that gives pages."""
    return {
        "cursor": query.get("cursor"),
        "page_size": query.get("page_size", PAGE_SIZE),
    }
