"""The doctor looks at clusters that are known by their job log."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apps.operations.models import DoctorFinding
from apps.operations.services import load_catalog, run_doctor
from tests.clusters.test_slurm import log, row

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 20, 14, 10, tzinfo=UTC)
T0 = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp())
CATALOG = """
clusters:
  - name: hpc
    slurm:
      jobs: {jobs}
      nodes:
        - {{names: "gpu[01-02]", gpus: 8, model: NVIDIA-A100-SXM4-80GB}}
tiers:
  - {{name: a100, sharing: exclusive, resources: [nvidia.com/gpu]}}
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.psv"
    load_catalog(CATALOG.format(jobs=path), "catalog.yaml", now=NOW)
    return path


def write(path: Path, *rows: str, at: int = T0 + 7200) -> None:
    path.write_text(log(*rows), encoding="utf-8")
    os.utime(path, (at, at))


def codes() -> list[str]:
    run_doctor(NOW)
    of_log = DoctorFinding.objects.filter(cluster__name="hpc", resolved_at=None)
    return sorted(of_log.values_list("code", flat=True))


def test_a_job_log_that_is_right_is_told_nothing_of(jobs: Path) -> None:
    write(jobs, row())
    assert codes() == []
    assert run_doctor(NOW, cluster="hpc").findings == ()


def test_what_is_wrong_with_a_job_log_is_found_and_resolved(jobs: Path) -> None:
    assert codes() == ["job-log-unavailable"]
    write(jobs, row(), row(JobIDRaw="7", Submit="never"), row(JobIDRaw="8", NodeList="gpu17"))
    assert codes() == ["job-log-nodes", "job-log-unreadable"]
    nodes = DoctorFinding.objects.get(code="job-log-nodes").body
    assert "1 node that the catalog does not name (gpu17): " in nodes["what"]
    assert nodes["places"] == ["gpu17"]
    # What it said before is neither confirmed nor gone while it tells nothing.
    write(jobs, row(), at=T0)
    assert codes() == ["job-log-nodes", "job-log-unavailable", "job-log-unreadable"]
    write(jobs, row())
    assert codes() == []
