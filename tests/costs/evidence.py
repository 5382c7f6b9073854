"""Workloads as recommendations look at them: a training job that is well measured."""

from decimal import Decimal

from apps.clusters.domain.tiers import GpuSharing
from apps.costs.domain.recommendations.evidence import WorkloadEvidence
from apps.costs.domain.recommendations.recommendation import Subject

A100 = "NVIDIA-A100-SXM4-80GB"
PRICE = Decimal("3.06")
DAYS = 30.0
ONE_GPU_HOURS = 24 * DAYS
"""One GPU held all the time: 730 GPU-hours a month, 2,233.80 USD."""

JOB = WorkloadEvidence(
    subject=Subject("west", "vision", "Job/train", "exclusive-a100"),
    sharing=GpuSharing.EXCLUSIVE,
    gpu_model=A100,
    capacity_type="on-demand",
    owner_kind="Job",
    days=DAYS,
    measured_days=30,
    gpu_hours=ONE_GPU_HOURS,
    units=1,
    coverage=1.0,
    mean_activity=0.7,
    p95_activity=0.98,
    memory_peak_mib=70_000,
    gpu_memory_mib=81_920,
    price_per_gpu_hour=PRICE,
    currency="USD",
)
