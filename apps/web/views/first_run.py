"""The first run: a checklist in place of empty charts."""

from django.http import HttpResponseBase

from apps.operations.selectors import collection_progress, loaded_catalog
from apps.usage import selectors as usage
from apps.web import first_run
from apps.web.pages import page, respond
from apps.web.reading import PageRequest, Reading, reading_of


@page
def checklist(request: PageRequest) -> HttpResponseBase:
    return shown(request, reading_of(request))


def in_place_of_charts(request: PageRequest, reading: Reading) -> HttpResponseBase | None:
    """Return the checklist while no hour has facts, None from then on. One query more then."""
    if usage.data_ready():
        return None
    return shown(request, reading)


def shown(request: PageRequest, reading: Reading) -> HttpResponseBase:
    """Answer with the checklist; who may not see how the portal runs gets a sentence."""
    ready = usage.data_ready()
    steps: list[first_run.Step] = []
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
