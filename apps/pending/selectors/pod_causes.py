"""Why pods wait, for lists of pods that say little more of it."""

from collections.abc import Collection
from datetime import datetime

from django.db.models import Q

from apps.accounts.permissions import Visibility
from apps.pending.selectors.now import waiting_at
from apps.pending.selectors.rows import PodCause
from apps.pending.selectors.scope import EVERYTHING_WAITING, PendingScope


def causes_of(
    pods: Collection[tuple[str, str]], *, at: datetime, visibility: Visibility
) -> dict[tuple[str, str], PodCause]:
    """Return why pods wait at `at`, each pod by the name of its cluster and its uid.

    Pods that do not wait, were not looked at yet, or are of teams that the reader does not see
    are missing. One query, four where teams narrow it, none without pods.
    """
    if not pods:
        return {}
    rows = waiting_at(at).filter(
        PendingScope(at, EVERYTHING_WAITING, visibility).condition(),
        Q(cluster__name__in={cluster for cluster, _ in pods}),
        kind="Pod",
        uid__in={uid for _, uid in pods},
    )
    columns = ("cluster__name", "uid", "cause", "detail")
    found = rows.order_by("since", "pk").values_list(*columns)
    return {(cluster, uid): PodCause(cause, detail) for cluster, uid, cause, detail in found}
