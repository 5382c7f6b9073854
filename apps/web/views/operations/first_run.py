"""The first run: a checklist in place of empty charts."""

from django.http import HttpResponseBase

from apps.operations.selectors import collection_progress, loaded_catalog
from apps.usage import selectors as usage
from apps.web.data_quality import first_run
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session


@page
def checklist(request: PageRequest) -> HttpResponseBase:
    return shown(request, query_session(request))


def in_place_of_charts(request: PageRequest, reading: QuerySession) -> HttpResponseBase | None:
    """Return the checklist while no hour has facts, None from then on. One query more then."""
    if usage.data_ready():
        return None
    return shown(request, reading)


def shown(request: PageRequest, reading: QuerySession) -> HttpResponseBase:
    """Answer with the checklist; who may not see how the portal runs gets a sentence."""
    ready = usage.data_ready()
    steps: list[first_run.ChecklistItem] = []
    if reading.visibility.operations:
        progress = collection_progress(visibility=reading.visibility)
        steps = first_run.steps(loaded_catalog(), progress, reading.now)
    return respond(
        request,
        reading,
        "first_run",
        steps=steps,
        ready=ready,
        over=ready and first_run.is_over(steps),
    )
