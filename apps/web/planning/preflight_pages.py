"""Preflight: whether a manifest starts now, later or never, before it is submitted.

A manifest may hold secrets: it comes by POST, is in no address, and nothing of it is stored.
"""

from http import HTTPStatus
from typing import Any

from django.http import HttpResponseBase
from msgspec import Struct

from apps.clusters.selectors import cluster_rows, tier_rows
from apps.pending.selectors import seen_namespaces
from apps.planning.domain.manifests.documents import MOST_CHARACTERS, ManifestError
from apps.planning.services import PreflightRefused, PreflightReport, preflight_manifest
from apps.web.components.page_query import path_of
from apps.web.pages import change, page, respond
from apps.web.planning.preflight_input import (
    InputRefused,
    NamespaceRef,
    RequestFields,
    manifest_in,
    place_in,
)
from apps.web.planning.preflight_view import answers_of, summary_of
from apps.web.query_session import PageRequest, QuerySession, query_session
from apps.web.quota_requests.request_input import may_ask
from apps.web.uploads import at_most
from gpuportal.queries import reading_once

_MOST_BYTES = 4 * MOST_CHARACTERS
"""A character has four bytes of UTF-8 at most."""
_MOST_NAMED = 300  # names to choose from in a form; others can be written


class PreflightCheck(Struct, frozen=True):
    """What came of a check: a report of a place, or the problem and its status."""

    place: NamespaceRef | None = None
    report: PreflightReport | None = None
    problem: str = ""
    status: HTTPStatus = HTTPStatus.OK


@page
def preflight(request: PageRequest) -> HttpResponseBase:
    """Show the forms; where the address fills in the small one, also the answer."""
    reading, asked = query_session(request), RequestFields.of(request.GET)
    manifest, check = "", PreflightCheck()
    # An address that fills in the form is a link from another page: it gets its answer.
    if asked.is_complete:
        try:
            manifest = asked.manifest(tier_rows(visibility=reading.visibility))
            check = _checked(asked.fields["where"], manifest, reading)
        except InputRefused as refusal:
            check = PreflightCheck(problem=str(refusal))
    return _page(request, reading, asked, manifest, check)


def _too_large(length: int) -> str:
    return (
        f"The manifest has {length / 2**20:,.1f} MiB; {MOST_CHARACTERS // 1024} KiB is the limit."
    )


@at_most(_MOST_BYTES, _too_large)
@change
def check_manifest(request: PageRequest) -> HttpResponseBase:
    """Check a manifest that was written or uploaded. It changes nothing."""
    with reading_once():
        reading = query_session(request)
        asked = RequestFields.of(request.POST)
        manifest, file = request.POST.get("manifest", ""), request.FILES.get("file")
        try:
            manifest = manifest_in(request.POST, None if file is None else file.read())
            check = _checked(asked.fields["where"], manifest, reading)
        except InputRefused as refusal:
            check = PreflightCheck(problem=str(refusal), status=HTTPStatus.BAD_REQUEST)
        return _page(request, reading, asked, manifest, check)


def _checked(where: str, manifest: str, reading: QuerySession) -> PreflightCheck:
    place = place_in(where)
    if not manifest.strip():
        raise InputRefused("Paste a manifest or choose a file.")
    try:
        report = preflight_manifest(
            *(place.cluster, place.namespace, manifest),
            now=reading.now,
            visibility=reading.visibility,
        )
    except ManifestError as error:
        return PreflightCheck(place, problem=str(error), status=HTTPStatus.BAD_REQUEST)
    # A place that may not be seen and one that is not there look alike.
    except LookupError as error:
        return PreflightCheck(problem=str(error), status=HTTPStatus.NOT_FOUND)
    except PreflightRefused as error:
        return PreflightCheck(place, problem=str(error), status=HTTPStatus.UNPROCESSABLE_ENTITY)
    return PreflightCheck(place, report)


def _page(
    request: PageRequest,
    reading: QuerySession,
    asked: RequestFields,
    manifest: str,
    check: PreflightCheck,
) -> HttpResponseBase:
    shown: dict[str, Any] = {}
    if check.report is not None and check.place is not None:
        shown = {
            "report": check.report,
            "answers": answers_of(check.report, check.place.cluster, reading),
            "summary": summary_of(check.report),
            "may_ask": may_ask(request.user),
        }
    tiers = [row for row in tier_rows(visibility=reading.visibility) if not row.builtin]
    places = _places(reading)
    # With one place to choose from there is nothing to choose.
    where = asked.fields["where"] or (places[0] if len(places) == 1 else "")
    return respond(
        request,
        reading,
        "preflight",
        status=check.status,
        problem=check.problem,
        fields=asked.fields,
        manifest=manifest,
        places=places[:_MOST_NAMED],
        # A namespace that is not among them stays as it was written.
        is_choice=len(places) <= _MOST_NAMED and where in ("", *places),
        where=where,
        tiers=tiers,
        resources=sorted({name for row in tiers for name in row.resources}),
        most_kib=MOST_CHARACTERS // 1024,
        hidden=reading.query,
        # Of a manifest that was sent nothing is in the address: a link would lead to an empty form.
        is_shareable=request.method == "GET" and check.report is not None,
        address=request.build_absolute_uri() if request.method == "GET" else path_of(request),
        **shown,
    )


def _places(reading: QuerySession) -> list[str]:
    """Return the namespaces that can be checked, as `cluster/namespace`, by name."""
    watched = {
        row.name
        for row in cluster_rows(visibility=reading.visibility)
        # Without a watch no quota and no node is known to check against.
        if row.watched_until is not None
    }
    seen = seen_namespaces(reading.now, reading.visibility)
    return sorted(NamespaceRef(*key).text for key in seen if key[0] in watched)
