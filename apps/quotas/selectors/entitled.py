"""Reads of what was promised."""

from dataclasses import dataclass
from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.clusters.models.validity import holds_at
from apps.quotas.models import Entitlement


@dataclass(frozen=True, slots=True)
class Entitled:
    """A team and the GPU-equivalents of a tier that it may count on."""

    tier: str
    team: str
    gpus: float


def entitled_teams(at: datetime, *, visibility: Visibility) -> list[Entitled]:
    """Return who is entitled to what at `at`: by tier, then the largest, then by team. One query.

    Sums of GPUs at the level of a team, which everybody may see: `visibility` narrows nothing.
    An entitlement of 0, which is a weight alone, is left out.
    """
    rows = Entitlement.objects.filter(holds_at(at), gpus__gt=0, team__active=True)
    rows = rows.order_by("tier__name", "-gpus", "team__name", "pk")
    return [Entitled(*row) for row in rows.values_list("tier__name", "team__name", "gpus")]
