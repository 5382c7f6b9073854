"""How the GPUs come about for which pods of a tier wait now."""

from datetime import datetime, timedelta

from django.db.models import Count, Min, Sum

from apps.clusters.domain.window import Window
from apps.clusters.selectors import team_spans
from apps.usage.domain.explained import Explained, RowColumn, Unit
from apps.usage.domain.rows import Filters
from apps.usage.selectors.current.pending import PendingGpus, waiting_pods

WAITING = "waiting_gpus"
_INSTANT = timedelta(seconds=1)


def explain_waiting(at: datetime, *, tier: str, filters: Filters) -> Explained:
    """Explain for how many GPUs pods of a tier wait at `at`, by cluster and team.

    Sums at the level of a team, which everybody may see. Of `filters` only `cluster` counts.
    Three queries.
    """
    pods = waiting_pods(at, filters).filter(tier__name=tier).order_by()
    rows = list(
        pods.values_list("cluster__name", "workload__namespace__name").annotate(
            Count("pk"), Sum("gpu_equivalents"), Min("created_at")
        )
    )
    spans = team_spans(Window(at, at + _INSTANT), {row[1] for row in rows})
    found: dict[tuple[str, str], PendingGpus] = {}
    for cluster, namespace, count, gpus, oldest_at in rows:
        key = (cluster, spans[namespace][0].team)
        own = PendingGpus(tier, count, gpus, oldest_at)
        found[key] = found[key].joined(own) if key in found else own
    whole = sum(one.gpu_equivalents for one in found.values())
    known = bool(whole) or not found
    return Explained(
        figure=WAITING,
        label="Pending GPUs",
        meaning=f"GPUs that pods of {tier} ask for and that are on no node.",
        anchor="waiting",
        value=whole if known else None,
        unit=Unit.GPUS,
        formula="sum(gpus)",
        columns=(
            RowColumn("cluster", "Cluster"),
            RowColumn("team", "Team"),
            RowColumn("gpus", "Pending", Unit.GPUS),
            RowColumn("pods", "Pods", Unit.COUNT),
            RowColumn("oldest_at", "Pending since", Unit.TIME),
        ),
        rows=[
            {
                "cluster": cluster,
                "team": team,
                "gpus": one.gpu_equivalents,
                "pods": one.pods,
                "oldest_at": one.oldest_at,
            }
            for (cluster, team), one in sorted(found.items(), key=lambda item: item[0])
        ],
        origin="Pods of the Kubernetes API; before the watch from series.",
        nothing="" if known else "The claims of these pods are not known.",
    )
