"""What is noticed while an hour is reckoned, in words for whoever reads its data health."""

from collections.abc import Mapping

HOUR_FINDINGS: Mapping[str, str] = {
    "overcommitted": "nodes on which more was held than there is; holdings were scaled to fit",
    "label_without_pod": "rows of devices that name a pod which held nothing: unattributed",
    "label_outlived_pod": "devices whose label was there while its pod did not run; cut from raw "
    "samples",
    "cut_at_pod_times": "shared devices whose pods came or went within a half hour; cut from raw "
    "samples",
    "raw_samples_refused": "devices that could not be cut, as the server gives no raw samples; "
    "inferred",
    "pods_without_node": "pods that held GPUs on a node that is not known",
    "scrape_interval_differs": "the scrape interval is another than the catalog says",
    "stuck_counter": "devices and half hours in which the profiling counter stood at 0 on a busy "
    "card; GPU_UTIL was taken instead",
    "no_process_values": "shared devices whose pods read 0 each on a busy card: the exporter lacks "
    "hostPID",
}


def finding_text(code: str, count: int) -> str:
    """Return a finding with how often it was made; a code without words stands as it is."""
    return f"{HOUR_FINDINGS.get(code, code)} ({count})"
