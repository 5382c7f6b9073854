"""The page of quotas: limits near or at their end first, sums of teams, and unused quota."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.http import HttpResponseBase

from apps.accounts.domain.structs import replace
from apps.quotas import selectors as quotas
from apps.quotas.domain.keys import QuotaRef
from apps.quotas.selectors import QuotaBand, QuotaRow, QuotasNow
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row
from apps.web.components.page_query import href, option_links, pages_from, path_of, without
from apps.web.components.tables import Table, paged
from apps.web.components.tabs import Tab, tab_bar
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session
from apps.web.quota_requests.request_input import Asker, may_ask
from apps.web.quotas import keys
from apps.web.quotas.keys import SOURCES, TAKES, KeyLine, QuotaPageQuery, query_of

TABS = (Tab("limits", "Limits"), Tab("teams", "Teams"), Tab("unused", "Unused quota"))
_BANDS = {
    QuotaBand.TIGHT: "80 % or blocking",
    QuotaBand.ALL: "all",
    QuotaBand.UNENFORCED: "not enforced",
}
_SOURCE_LINKS = {"any source": "", **{source: source for source in SOURCES}}
# A page of limits is read at once: none is more than 450 words.
_ROWS = 20
_FILE_PART = 500


@page
def quota_list(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=TAKES)
    asked = query_of(request.GET)
    tabs = tab_bar(request, TABS, name="Quota lists")
    of_tab = {"limits": _limits, "teams": _teams, "unused": _unused}[tabs.chosen]
    return respond(
        request,
        reading,
        "quotas",
        asked=asked,
        tabs=tabs,
        may_ask=lambda: may_ask(request.user),
        **of_tab(request, reading, asked),
    )


def _limits(request: PageRequest, reading: QuerySession, asked: QuotaPageQuery) -> dict[str, Any]:
    found = quotas.quotas_now(
        reading.now, filters=asked.filters(reading), visibility=reading.visibility
    )
    asker = Asker.of(request.user)
    return {
        "tables": [_key_table(request, reading, asked, found, asker)],
        "figures": _figures(found, reading, asked),
        "asks": asker.asks,
        "bands": [
            (f"{label} {found.counts[QuotaBand(band)]:,}", link, chosen)
            for (label, link, chosen), band in zip(
                _links(request, reading, asked, "show", {_BANDS[b]: b.value for b in _BANDS}),
                _BANDS,
                strict=True,
            )
        ],
        "show_all_href": _show_all(reading, asked, found),
        "sources": _links(request, reading, asked, "source", _SOURCE_LINKS),
    }


def _teams(request: PageRequest, reading: QuerySession, asked: QuotaPageQuery) -> dict[str, Any]:
    return {"tables": [keys.sum_table(quotas.team_quotas(reading.now), reading)]}


def _unused(request: PageRequest, reading: QuerySession, asked: QuotaPageQuery) -> dict[str, Any]:
    rows = quotas.held_but_unused(
        reading.window, filters=asked.filters(reading), visibility=reading.visibility
    )
    return {"tables": [keys.unused_table(rows, reading)]}


# ---------------------------------------------------------------- the list


def _key_table(
    request: PageRequest,
    reading: QuerySession,
    asked: QuotaPageQuery,
    found: QuotasNow,
    asker: Asker,
) -> Table:
    """Return a page of the limits; the file has all of what is shown, and what was unused."""
    band, count = asked.band, found.counts[asked.band]
    pages = pages_from(request.GET, count=count, usual=_ROWS)

    def line_of(row: QuotaRow, unused: Mapping[QuotaRef, float]) -> KeyLine:
        line = keys.key_line(row, reading, unused)
        return replace(line, ask=asker.ask_href(row, reading.query))

    def every() -> Iterator[KeyLine]:
        # Sorting and filtering go through all lines too; only a file says what was unused.
        is_file = request.GET.get("format") == "csv"
        unused = _unused_by_key(reading, asked) if is_file else {}
        for start in range(0, count, _FILE_PART):
            for row in found.rows(band, slice(start, start + _FILE_PART)):
                yield line_of(row, unused)

    table = keys.key_table(
        [line_of(row, {}) for row in found.rows(band, pages.part)],
        reading,
        title=_BANDS[band],
        empty=_nothing(reading, asked, found),
        every=every,
    )
    return paged(table, path_of(request), (*reading.query, *asked.query), pages)


def _unused_by_key(reading: QuerySession, asked: QuotaPageQuery) -> dict[QuotaRef, float]:
    return keys.unused_by_key(
        quotas.held_but_unused(
            reading.window, filters=asked.filters(reading), visibility=reading.visibility
        )
    )


def _figures(found: QuotasNow, reading: QuerySession, asked: QuotaPageQuery) -> FigureRow:
    # In the order of _BANDS.
    tight, count, inert = (found.counts[band] for band in _BANDS)
    query = [*reading.query, *without(asked.query, "show")]
    return figure_row(
        KeyFigure(
            "80 % or blocking",
            f"{tight:,}",
            f"of {count:,} limits",
            basis="now",
            tone=Tone.WARNING if tight else Tone.NONE,
        ),
        KeyFigure(
            "Blocking",
            f"{found.blocking:,}",
            "limit" if found.blocking == 1 else "limits",
            basis="now",
            href=(href("pending", reading.query) or "") if found.blocking else "",
            tone=Tone.DANGER if found.blocking else Tone.NONE,
        ),
        KeyFigure(
            "Not enforced",
            f"{inert:,}",
            "limit" if inert == 1 else "limits",
            href=href("quotas", (*query, ("show", QuotaBand.UNENFORCED.value))) or "",
        )
        if inert
        else KeyFigure("Not enforced", "0", "limits"),
        name="Limits now",
    )


def _show_all(reading: QuerySession, asked: QuotaPageQuery, found: QuotasNow) -> str:
    if asked.band is QuotaBand.ALL or not found.counts[QuotaBand.ALL]:
        return ""
    query = (*reading.query, *without(asked.query, "show"), ("show", QuotaBand.ALL.value))
    return href("quotas", query) or ""


def _nothing(reading: QuerySession, asked: QuotaPageQuery, found: QuotasNow) -> str:
    own = reading.filters
    if found.counts[QuotaBand.ALL]:
        if asked.band is QuotaBand.TIGHT:
            return "No limit is at 80 % or blocks work."
        return "Every limit is enforced."
    if asked.sources or own.tier or own.team or own.namespace or own.cluster:
        return "No quota that you may see is like that. Take off a filter."
    if not reading.visibility.everything:
        return "No quota of your teams' namespaces names GPUs."
    return (
        "No ResourceQuota, ClusterQueue or Queue names GPUs. `manage.py doctor` says whether the "
        "portal may read them."
    )


def _links(
    request: PageRequest,
    reading: QuerySession,
    asked: QuotaPageQuery,
    key: str,
    options: Mapping[str, str],
) -> list[tuple[str, str, bool]]:
    """Return (label, address, chosen) of each option of a key of the address."""
    kept = [*reading.query, *without(asked.query, key)]
    chosen = [asked.band.value] if key == "show" else list(asked.sources)
    return option_links(path_of(request), kept, key, options, chosen)
