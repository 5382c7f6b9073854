"""Layout advice: recorded demand replayed with today's layout and the advised one, and the plan."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus

from django.http import Http404, HttpResponse, HttpResponseBase
from msgspec import Struct

from apps.accounts.permissions import can_administer
from apps.planning import selectors as planning
from apps.planning.domain.cluster_replay.wording import assumption_text
from apps.planning.domain.layouts.advice import LayoutAdvice, LayoutStep
from apps.planning.domain.layouts.figures import LayoutFigures
from apps.planning.domain.layouts.files import mig_parted_file, node_labels, plugin_file
from apps.planning.domain.layouts.wording import ASSUMPTIONS, left_text
from apps.planning.selectors import BlockingPod, LayoutReport, LayoutRow
from apps.usage import selectors as usage
from apps.usage.selectors import OutageRow, OutageState
from apps.web.components.figure_row import FigureRow, KeyFigure, figure_row, no_data
from apps.web.components.formats import Format, gpus_text, shown
from apps.web.components.page_query import href
from apps.web.components.tables import (
    Column,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

NOT_COMPUTED = "Not computed yet. A worker computes it once a day."
_NO_CHANGE = "No layout leaves less demand unmet."
OPEN = (OutageState.PLANNED, OutageState.RUNNING)
_FILES: Mapping[str, tuple[str, Callable[[Sequence[LayoutStep]], str]]] = {
    "mig-parted.yaml": ("mig-parted configuration", mig_parted_file),
    "device-plugin.yaml": ("device plug-in configuration", plugin_file),
}
_STEP_COLUMNS = (
    Column("step", "Step", Format.COUNT),
    Column("node", "Node"),
    Column("cluster", "Cluster"),
    Column("starts_at", "Emptiest hour", Format.TIME),
    Column("held_gpus", "Allocated then", Format.NUMBER, "GPUs", "mean of that hour of the week"),
    Column("pods", "Pods now", Format.COUNT),
    Column("before", "Layout"),
    Column("after", "Advised layout"),
    Column("lost_gpu_hours", "Lost", Format.NUMBER, "GPU-h", "while the layout changes"),
    Column("command", "Labels"),
)
_POD_COLUMNS = (
    Column("node", "Node"),
    Column("cluster", "Cluster"),
    Column("pod", "Pod"),
    Column("namespace", "Namespace"),
    Column("owner", "Controller"),
    Column("gpus", "Size", Format.NUMBER, "GPUs"),
    Column("bound_at", "Running since", Format.TIME),
)


@page
def layout_list(request: PageRequest) -> HttpResponseBase:
    """Show the newest advice of each cluster, and to who runs the clusters how to carry it out."""
    return layouts_page(request)


def layouts_page(
    request: PageRequest, *, problem: str = "", status: int = HTTPStatus.OK
) -> HttpResponseBase:
    """Return the page; with a `problem` that which was typed on it was refused for."""
    reading = query_session(request)
    reports = planning.layout_reports(visibility=reading.visibility)
    pods = planning.blocking_pods(reports, visibility=reading.visibility)
    # Steps are given only to who runs the clusters: others get figures without a plan.
    with_plan = any(True for _ in _steps(reports))
    plan = [_step_table(reports, pods, reading), _pod_table(pods, reading)] if with_plan else []
    outages = usage.outage_rows(now=reading.now, visibility=reading.visibility)
    return respond(
        request,
        reading,
        "layouts",
        figures=_figures(reports),
        status=status,
        tables=[_tier_table(reports, reading), *plan, _outage_table(outages, reading)],
        problem=problem,
        may_plan=can_administer(request.user),
        planned=[report.cluster for report in reports if report.changed],
        open_outages=[one for one in outages if one.state in OPEN],
        typed=request.POST,
        files=list(_links(reports)),
        notes=[note for one in reports for note in _notes(one, reading)],
        assumptions=_assumptions(reports),
    )


@page
def layout_file(request: PageRequest, cluster: str, name: str) -> HttpResponseBase:
    """Give a file that carries out the plan of a cluster, to who sees how the clusters run."""
    reports = planning.layout_reports(visibility=query_session(request).visibility)
    steps = [step for one, step in _steps(reports) if one.cluster == cluster]
    text = _FILES[name][1](steps) if name in _FILES else ""
    # An unknown name and a plan without such a step look alike.
    if not text:
        raise Http404("There is no such file.")
    response = HttpResponse(text, content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


class PlanFile(Struct, frozen=True):
    """A file to download, and what it is."""

    label: str
    href: str | None


def _advices(reports: Sequence[LayoutReport]) -> list[LayoutAdvice]:
    return [one.advice for one in reports if one.advice is not None]


def _steps(reports: Sequence[LayoutReport]) -> Iterator[tuple[LayoutReport, LayoutStep]]:
    for one in reports:
        if one.advice is not None:
            yield from ((one, step) for step in one.advice.steps)


def _figures(reports: Sequence[LayoutReport]) -> FigureRow:
    advices = _advices(reports)
    if not advices:
        labels = ("Unmet", "Stranded", "Unallocated", "Nodes to change")
        return figure_row(*(no_data(label, NOT_COMPUTED) for label in labels))
    changed = sum(one.changed for one in reports)
    return figure_row(
        _figure("Unmet", advices, lambda one: one.unmet_gpu_hours),
        _figure("Stranded", advices, lambda one: one.stranded_gpu_hours),
        _figure("Unallocated", advices, lambda one: one.unallocated_gpu_hours),
        KeyFigure(
            "Nodes to change",
            f"{changed:,}",
            f"of {sum(one.changeable for one in advices):,}",
            note="" if changed else _NO_CHANGE,
        ),
    )


def _figure(
    label: str, advices: Sequence[LayoutAdvice], amount: Callable[[LayoutFigures], float]
) -> KeyFigure:
    before, after = (
        sum(amount(figures) for figures in of)
        for of in ([one.before for one in advices], [one.after for one in advices])
    )
    return KeyFigure(
        label,
        gpus_text(after),
        "GPU-h",
        note=f"today's layout: {gpus_text(before)}",
        basis="advised layout",
    )


def _tier_table(reports: Sequence[LayoutReport], reading: QuerySession) -> Table:
    return Table(
        id="layouts",
        title="Tiers",
        columns=declared_columns(LayoutRow),
        rows=[
            TableRow(declared_values(row), {"tier": href("tier", name=row.tier)})
            for report in reports
            for row in report.rows()
        ],
        zone=reading.choice.zone,
        empty=NOT_COMPUTED,
        on_phone=("tier", "unmet_gpu_hours", "unmet_after_gpu_hours"),
    )


def _step_table(
    reports: Sequence[LayoutReport], pods: Sequence[BlockingPod], reading: QuerySession
) -> Table:
    in_way = Counter((pod.cluster, pod.node) for pod in pods)
    return Table(
        id="steps",
        title="Steps",
        columns=list(_STEP_COLUMNS),
        rows=[
            TableRow(
                {
                    "step": number,
                    "node": step.node,
                    "cluster": report.cluster,
                    "starts_at": planning.step_times(step)[0],
                    "held_gpus": step.held_gpus,
                    "pods": in_way[report.cluster, step.node],
                    "before": step.before,
                    "after": step.after,
                    "lost_gpu_hours": step.lost_gpu_hours,
                    "command": _command(report.advice.steps if report.advice else (), step),
                }
            )
            for number, (report, step) in enumerate(_steps(reports), start=1)
        ],
        zone=reading.choice.zone,
        empty=_NO_CHANGE,
        ordered=True,
        on_phone=("node", "starts_at", "after"),
    )


def _command(steps: Sequence[LayoutStep], step: LayoutStep) -> str:
    return " ".join(f"{key}={value}" for key, value in node_labels(steps, step).items())


def _pod_table(pods: Sequence[BlockingPod], reading: QuerySession) -> Table:
    return Table(
        id="pods",
        title="Pods on nodes",
        columns=list(_POD_COLUMNS),
        rows=[
            TableRow({column.key: getattr(pod, column.key) for column in _POD_COLUMNS})
            for pod in pods
        ],
        zone=reading.choice.zone,
        empty="No pod runs on these nodes.",
        on_phone=("node", "pod", "gpus"),
    )


def _outage_table(rows: Sequence[OutageRow], reading: QuerySession) -> Table:
    return Table(
        id="outages",
        title="Planned outages",
        columns=declared_columns(OutageRow, admin=reading.visibility.operations),
        rows=[TableRow(declared_values(row)) for row in rows],
        zone=reading.choice.zone,
        empty="No outage is planned, and none ended in the last 92 days.",
        on_phone=("purpose", "start", "state"),
    )


def _links(reports: Sequence[LayoutReport]) -> Iterator[PlanFile]:
    for one in reports:
        steps = one.advice.steps if one.advice is not None else ()
        for name, (label, made) in _FILES.items():
            # Not every plan changes both kinds of layout: a file without content is not offered.
            if steps and made(steps):
                where = href("layout-file", cluster=one.cluster, name=name)
                yield PlanFile(f"{one.cluster}: {label}", where)


def _notes(one: LayoutReport, reading: QuerySession) -> Iterator[str]:
    """Yield what is to be known of a cluster's advice, in sentences."""
    if one.error:
        yield f"{one.cluster}: {one.error}"
    if one.advice is None or one.start is None or one.end is None:
        return
    first, last = (shown(at, Format.TIME, reading.choice.zone) for at in (one.start, one.end))
    yield f"{one.cluster}: demand from {first} to {last}."
    if not one.changed:
        yield f"{one.cluster}: no change. {_NO_CHANGE}"
    if not one.advice.is_optimal:
        yield f"{one.cluster}: the solver ran out of time. A better layout may exist."
    for reason, nodes in sorted(one.advice.left.items()):
        yield f"{one.cluster}: {left_text(reason, nodes)}"


def _assumptions(reports: Sequence[LayoutReport]) -> list[str]:
    advices = _advices(reports)
    replayed = (assumption_text(each) for one in advices for each in one.assumptions)
    return list(dict.fromkeys((*ASSUMPTIONS, *replayed))) if advices else []
