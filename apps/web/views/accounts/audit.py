"""The audit, for administrators: a page of it, and the file for auditors."""

from datetime import timedelta
from http import HTTPStatus

from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse

from apps.accounts.adapters.addresses import client_address
from apps.accounts.permissions import can_administer
from apps.quota_requests.permissions import Actor, actor_of
from apps.quota_requests.selectors import audit_lines, audit_rows, last_audit_check
from apps.quota_requests.services import audit_head, written_head
from apps.web.audit_lines import PER_PAGE, audit_asked, audit_lines_of
from apps.web.components.links import href
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, query_session

_OLD = timedelta(days=2)
"""After so long without a check it is said that none came: they are daily."""


@page
def audit(request: PageRequest) -> HttpResponseBase:
    actor = _actor(request)
    reading = query_session(request)
    asked = audit_asked(request.GET, zone=reading.choice.zone)
    cursor = request.GET.get("cursor") or None
    found = audit_rows(actor, asked.filters, cursor=cursor, page_size=PER_PAGE)
    check = last_audit_check(actor)
    older = (*asked.query, ("cursor", found.next_cursor)) if found.next_cursor else ()
    return respond(
        request,
        reading,
        "audit",
        lines=audit_lines_of(found.rows, reading.choice.zone),
        asked=asked,
        older=href("audit", older) if older else "",
        newest=href("audit", asked.query) if cursor else "",
        file=href("audit-file", [pair for pair in asked.query if pair[0] in {"since", "until"}]),
        head=written_head(audit_head()),
        check=check,
        check_is_old=check is not None and reading.now - check.at > _OLD,
    )


@page
def audit_file(request: PageRequest) -> HttpResponseBase:
    """Stream the lines of some days, whoever they are of, and the head of the whole."""
    actor = _actor(request)
    asked = audit_asked(request.GET, zone=query_session(request).choice.zone)
    if asked.problems:
        return HttpResponse(
            " ".join(asked.problems),
            status=HTTPStatus.BAD_REQUEST,
            content_type="text/plain; charset=utf-8",
        )
    lines = audit_lines(actor, start=asked.filters.start, end=asked.filters.end)
    response = StreamingHttpResponse(lines, content_type="application/x-ndjson")
    days = "_".join(day for day in (asked.first, asked.last) if day) or "all"
    response["Content-Disposition"] = f'attachment; filename="gpuportal_audit_{days}.jsonl"'
    return response


def _actor(request: PageRequest) -> Actor:
    """Return the reader as the one who acts. Raises Http404 for all but administrators."""
    if not can_administer(request.user):
        raise Http404("This page is for administrators.")
    return actor_of(request.user, origin=client_address(request) or "")
