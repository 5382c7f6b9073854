"""How the charge of a pool of shared GPUs is split among who held them, as FOCUS 1.3 tells it.

The pool of a day (cluster, tier, GPU model, capacity type, price) is the origin charge. What each
workload held of it is an allocated charge, unallocated capacity its unallocated portion; together
they are the origin charge (docs/definitions.md#split-charges).
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from apps.clusters.domain.tiers import GpuSharing

METHODS: Mapping[GpuSharing, str] = {
    GpuSharing.TIME_SLICED: "gpuportal-time-sliced",
    GpuSharing.MPS: "gpuportal-mps",
    GpuSharing.MIG: "gpuportal-mig",
    GpuSharing.DRA: "gpuportal-dra",
}
"""The id of each method, which docs/definitions.md#split-charges defines; whole GPUs have none."""
ENERGY_METHOD = "gpuportal-energy"
"""The id of the method by which measured energy of shared GPUs is split."""
_RATIO_DIGITS = 12


class OriginKey(NamedTuple):
    """What tells origin charges apart; the prices are None where there are none, or of energy."""

    start: datetime
    cluster: str
    tier: str
    gpu_model: str
    capacity_type: str
    is_energy: bool
    currency: str
    price: int | None
    list_price: int | None


def method_id(sharing: GpuSharing | None, *, is_energy: bool) -> str | None:
    """Return the id of the method by which GPUs of a tier are split; None: they are not."""
    method = METHODS.get(sharing) if sharing else None
    return ENERGY_METHOD if method and is_energy else method


def method_details(quantity: int, of: int | None, *, unit: str, scale: int) -> str | None:
    """Return the share of an origin charge as the JSON object of AllocatedMethodDetails.

    `quantity` of `of` are whole numbers of 1/`scale` of the unit. None where the origin charge is
    not known: of a correction, which is a difference to one.
    """
    # Also of 0: nothing is a share of an origin charge of nothing.
    if not of:
        return None
    element = {
        "AllocatedRatio": round(quantity / of, _RATIO_DIGITS),
        "UsageUnit": unit,
        "UsageQuantity": quantity / scale,
    }
    return json.dumps({"Elements": [element]})
