"""Pitfalls of naive readings of quotas (the numbered ones of the facts), each avoided."""

from typing import Any

import pytest

from apps.accounts.permissions import Visibility
from apps.clusters.models import Cluster
from apps.quotas.selectors import quota_rows
from tests.factories import (
    ensure_builtin,
    make_cluster,
    make_pod,
    make_report,
    make_team,
    make_tier,
    make_workload,
)
from tests.quotas.quota_rows import GPU, NOON, NOW, see_quota, watch


@pytest.fixture
def cluster(db: None) -> Cluster:
    make_report()
    ensure_builtin()
    make_tier("gold")
    make_team("vision", "vision")
    cluster = make_cluster(kubernetes={"in_cluster": True})
    watch(cluster)
    return cluster


def test_pitfall_22_used_of_a_quota_is_not_what_runs(cluster: Cluster) -> None:
    """8 of 8 are used, 3 run and 5 wait: saturated by what is not there yet."""
    see_quota(cluster, "vision", 8, used=8)
    for number in range(8):
        bound: dict[str, Any] = {"bound_at": NOON, "started_at": NOON} if number < 3 else {}
        make_pod(
            make_workload(cluster, "vision", "train"),
            f"train-{number}",
            created_at=NOON,
            units=1.0,
            requests={GPU: 1.0},
            **bound,
        )
    (row,) = quota_rows(NOW, visibility=Visibility(everything=True)).rows
    assert row.saturation_ratio == 1.0
    assert (row.used, row.held, row.pending) == (8.0, 3.0, 5.0)
