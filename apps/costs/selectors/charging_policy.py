"""On what teams are charged unless somebody asks otherwise."""

from django.conf import settings

from apps.costs.domain.costing import Basis
from apps.costs.domain.unallocated import Policy


def charging() -> tuple[Basis, Policy]:
    """Return the basis and the policy for unallocated capacity that the portal is set to."""
    return (
        Basis(getattr(settings, "COST_BASIS", Basis.ALLOCATED.value)),
        Policy(getattr(settings, "UNALLOCATED_POLICY", Policy.PLATFORM.value)),
    )
