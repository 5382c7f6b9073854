"""For machines: is the process alive, and has it anything to show."""

from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from apps.usage import selectors as usage


@require_safe
@never_cache
def healthz(_: HttpRequest) -> JsonResponse:
    """Answer 200 while the process serves requests; asks nothing of the database."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(_: HttpRequest) -> JsonResponse:
    """Answer 200 once there are facts to show, else 503 with the reason."""
    try:
        ready = usage.data_ready()
    except DatabaseError as error:
        return _not_ready(f"The database does not answer: {type(error).__name__}.")
    if not ready:
        return _not_ready("No hour has been collected yet.")
    return JsonResponse({"status": "ready"})


def _not_ready(detail: str) -> JsonResponse:
    return JsonResponse({"status": "not ready", "detail": detail}, status=503)
