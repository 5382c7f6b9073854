"""Reading who is behind pods: kube_pod_labels and kube_pod_annotations of kube-state-metrics.

They show the keys alone that its command line names (`--metric-labels-allowlist` and
`--metric-annotations-allowlist`): without that no person is known from series.
"""

from collections.abc import Sequence

from apps.clusters.adapters.prometheus.http_api import END_MARGIN_SECONDS, Matcher, by, over
from apps.clusters.adapters.prometheus.kube_state.metrics import label_name
from apps.clusters.adapters.prometheus.window_reader import WindowReader, day_windows
from apps.clusters.domain.pods.kube_state import READ_AHEAD_SECONDS
from apps.clusters.domain.pods.people import PersonSource, person_in
from apps.clusters.domain.window import Window

LABELS = "kube_pod_labels"
ANNOTATIONS = "kube_pod_annotations"


def read_people(
    reading: WindowReader, window: Window, sources: Sequence[PersonSource]
) -> dict[str, str]:
    """Return uid → person; one query for each source and day. Raises as the port says."""
    found: dict[str, str] = {}
    for source in sources:
        if source.of_profile:
            continue  # of a namespace, of which the watch alone tells whose it is
        metric, label = shown_as(source)
        # Most pods of a cluster have no such label, and all of them have a series.
        chosen = (*reading.matchers, Matcher(label, "!=", ""))
        for day in day_windows(window):
            length = day.seconds + READ_AHEAD_SECONDS
            query = by("max", ("uid", label), over("max_over_time", metric, chosen, seconds=length))
            at = day.end_seconds + READ_AHEAD_SECONDS - END_MARGIN_SECONDS
            for one in reading.instant(query, at, dict[str, str]):
                uid, person = one.metric.get("uid"), person_in(one.metric.get(label, ""), source)
                if uid and person:
                    found.setdefault(uid, person)
    return found


def shown_as(source: PersonSource) -> tuple[str, str]:
    """Return the metric and the label of it that show a source."""
    label = label_name(source.key)
    if source.is_annotation:
        return ANNOTATIONS, f"annotation_{label.removeprefix('label_')}"
    return LABELS, label
