"""The monthly report as one HTML file that opens without network, and its mails."""

from collections.abc import Sequence
from datetime import date, datetime
from functools import cache
from pathlib import Path

import plotly.graph_objects as go
import plotly.io
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import staticfiles_storage
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from apps.accounts.permissions import Visibility
from apps.costs.services import ReportFile
from apps.costs.services import send_monthly_reports as send_mails
from apps.operations.domain.month_report import DayGpus, MonthPage, MonthReport
from apps.operations.services.month_reports.figures import month_report

_PLOTLY = "npm/plotly/plotly-basic.min.js"
# Okabe and Ito's: they stay apart for colour-blind readers and in grey print.
_LAYERS = (
    ("active", "Active", "#0072b2"),
    ("unused", "Unused", "#e69f00"),
    ("no_metrics", "No metrics", "#999999"),
    ("unallocated", "Unallocated", "#d9d9d9"),
    ("unavailable", "Unavailable", "#cc79a7"),
    ("planned_outage", "Planned outage", "#56b4e9"),
)


def month_report_file(report: MonthReport) -> str:
    """Return the file: one A4 page in print for all, and one for each team."""
    pages = [
        {"page": page, "chart": _chart(page, f"gpus-{place}")}
        for place, page in enumerate(report.pages)
    ]
    context = {"report": report, "pages": pages, "plotly": _plotly_script()}
    return render_to_string("month_report/file.html", context)


@cache
def _plotly_script() -> SafeString:
    """Return Plotly's basic bundle, a quarter of the one inside the Python package."""
    found = finders.find(_PLOTLY)
    path = found if isinstance(found, str) else staticfiles_storage.path(_PLOTLY)
    # An end tag within a text of the script would end it in the file.
    text = Path(path).read_text(encoding="utf-8").replace("</script", "<\\/script")
    return SafeString(text)  # it is the pinned package's own


def _chart(page: MonthPage, name: str) -> SafeString | str:
    """Return the picture of average GPUs by day; empty where no day has facts."""
    days = page.days
    if all(day.active is None for day in days):
        return ""
    names = [f"{day.day:%-d %b}{' (partial)' if day.partial else ''}" for day in days]
    figure = go.Figure(layout=_layout())
    for key, label, colour in _LAYERS:
        values = _values(days, key)
        if any(values):
            figure.add_bar(x=names, y=values, name=label, marker={"color": colour})
    capacity = _values(days, "capacity")
    if any(capacity) and not page.team:
        line = {"color": "#222222", "width": 1.5, "shape": "hvh"}
        figure.add_scatter(x=names, y=capacity, name="Capacity", mode="lines", line=line)
    text = plotly.io.to_html(
        figure,
        include_plotlyjs=False,
        full_html=False,
        div_id=name,
        config={"displayModeBar": False, "responsive": True},
    )
    return SafeString(text)  # of numbers and days alone


def _values(days: Sequence[DayGpus], key: str) -> list[float | None]:
    found = (getattr(day, key) for day in days)
    return [None if value is None else round(value, 2) for value in found]


def _layout() -> dict[str, object]:
    return {
        "template": None,
        "barmode": "stack",
        "bargap": 0.1,
        "height": 300,
        "margin": {"l": 50, "r": 10, "t": 10, "b": 60},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "legend": {"orientation": "h", "y": 1.15},
        "xaxis": {"type": "category"},
        "yaxis": {"title": {"text": "Average GPUs"}, "rangemode": "tozero"},
    }


def send_monthly_reports(*, now: datetime) -> int:
    """Send the report of the month before to who has not got it; return how many were sent."""

    def file_of(month: date, visibility: Visibility) -> ReportFile:
        found = month_report(month, visibility=visibility, now=now)
        return ReportFile(f"gpu-report-{month:%Y-%m}.html", month_report_file(found))

    return send_mails(now=now, file_of=file_of)
