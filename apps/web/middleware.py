"""What every answer has in common."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import patch_cache_control


class NoStoreMiddleware:
    """Forbid caches to keep any answer that does not speak of caching itself.

    Pages and the API say so where they answer; errors, redirects and refusals that Django makes
    on the way would otherwise say nothing, and could be kept by a proxy for the next person.
    Static files are the same for all and are left alone.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        static = request.path_info.startswith(f"/{settings.STATIC_URL.lstrip('/')}")
        if not static and not response.has_header("Cache-Control"):
            patch_cache_control(response, private=True, no_store=True)
        return response


class FeaturesMiddleware:
    """Tell browsers that no page needs cameras, places and the like, whatever a script may ask."""

    _POLICY = ", ".join(
        f"{feature}=()"
        for feature in (
            *("accelerometer", "camera", "geolocation", "gyroscope", "magnetometer"),
            *("microphone", "payment", "usb"),
        )
    )

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        response.headers.setdefault("Permissions-Policy", self._POLICY)
        return response
