"""A Slurm cluster is collected from its job log: allocated is exact, activity has no metrics."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.goodput.domain.ledger import LossCause, cause_of
from apps.goodput.selectors import goodput_ledger
from apps.operations.services import load_catalog
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.usage_query import Filters
from apps.usage.models import TeamHour, TierHour
from apps.usage.services import HourOutcome, collect_window
from tests.clusters.test_slurm import log, row

pytestmark = pytest.mark.django_db

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOW = START + timedelta(hours=3)
HOUR = Window(START, START + timedelta(hours=1))
T0 = int(START.timestamp())
NANO = 10**9

CATALOG = """
clusters:
  - name: hpc
    slurm:
      jobs: {jobs}
      nodes:
        - {{names: "gpu[01-02]", gpus: 8, model: NVIDIA-A100-SXM4-80GB}}
tiers:
  - {{name: a100, sharing: exclusive, resources: [nvidia.com/gpu]}}
teams:
  - {{name: vision, namespaces: [vision-lab]}}
"""


def collected(tmp_path: Path, *rows: str, written: int = T0 + 7200) -> HourOutcome:
    path = tmp_path / "jobs.psv"
    path.write_text(log(*rows), encoding="utf-8")
    os.utime(path, (written, written))
    load_catalog(CATALOG.format(jobs=path), "catalog.yaml", now=NOW)
    (outcome,) = collect_window("hpc", HOUR, now=NOW)
    return outcome


def test_an_hour_of_the_job_log_is_complete_and_exact(tmp_path: Path) -> None:
    other = row(JobIDRaw="101", Account="speech", NodeList="gpu02", End="Unknown")
    outcome = collected(tmp_path, row(), other)
    assert (outcome.state, outcome.error) == (CollectionState.COMPLETE, "")
    tier = TierHour.objects.get()
    assert (tier.capacity, tier.allocated) == (16 * NANO, 6 * NANO)
    # Nothing tells what the jobs did with their GPUs: no metrics, and never idle.
    assert (tier.unmeasured, tier.idle, tier.busy) == (6 * NANO, 0, 0)
    teams = TeamHour.objects.order_by("allocated").values_list("team__name", "allocated")
    assert list(teams) == [("vision", 2 * NANO), ("unassigned", 4 * NANO)]


def test_an_hour_that_the_log_does_not_reach_is_tried_again(tmp_path: Path) -> None:
    outcome = collected(tmp_path, row(), written=T0 + 600)
    assert outcome.state is CollectionState.FAILED
    assert outcome.error == "the job log ends at 2026-11-20 12:10 UTC"
    assert collected(tmp_path, row()).state is CollectionState.COMPLETE


def test_a_job_that_later_logs_lack_holds_nothing_in_later_hours(tmp_path: Path) -> None:
    running, later = row(End="Unknown", State="RUNNING"), timedelta(days=5)
    collected(tmp_path, running, written=T0 + 3600)
    assert Pod.objects.get().ended_at is None
    # The file of then stays beside the new one, which begins after the job went.
    (tmp_path / "jobs.psv").rename(tmp_path / "old.psv")
    path, written = tmp_path / "new.psv", T0 + later.total_seconds() + 7200
    path.write_text(log(), encoding="utf-8")
    os.utime(path, (written, written))
    load_catalog(CATALOG.format(jobs=tmp_path / "*.psv"), "catalog.yaml", now=NOW + later)
    (outcome,) = collect_window(
        "hpc", Window(HOUR.start + later, HOUR.end + later), now=NOW + later
    )
    assert outcome.error == ""
    tier = TierHour.objects.get(hour=HOUR.start + later)
    assert (tier.capacity, tier.allocated) == (16 * NANO, 0)
    job = Pod.objects.get()
    assert (job.ended_at, job.end_reason) == (HOUR.end, "")


@pytest.mark.parametrize(
    ("state", "reason", "cause"),
    [
        *((word, "", "") for word in ("COMPLETED", "CANCELLED by 1000", "TIMEOUT", "DEADLINE")),
        ("PREEMPTED", "Preempted", LossCause.PREEMPTION),
        ("NODE_FAIL", "NodeLost", LossCause.NODE),
        ("OUT_OF_MEMORY", "OOMKilled", LossCause.MEMORY),
        ("FAILED", "Error", LossCause.EXIT),
        ("REQUEUED", "EvictionByEvictionAPI", LossCause.EVICTION),
        ("RECONFIG_FAIL", "RECONFIG_FAIL", LossCause.OTHER),
    ],
)
def test_only_jobs_that_did_not_end_as_somebody_chose_lost_their_work(
    tmp_path: Path, state: str, reason: str, cause: str
) -> None:
    outcome = collected(tmp_path, row(State=state))
    assert outcome.state is CollectionState.COMPLETE
    found = goodput_ledger(HOUR, group_by=(), filters=Filters(), visibility=EVERYTHING)
    assert found.total.allocated == 2 * NANO
    assert [one.reason for one in found.reasons] == ([reason] if reason else [])
    assert found.total.lost == (2 * NANO if reason else 0)
    if reason:
        assert cause_of(reason) == cause
