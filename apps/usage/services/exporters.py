"""How exporters showed themselves, kept once for all hours that showed the same."""

import hashlib
import json

from apps.clusters.domain.devices.exporter_profile import ExporterProfile
from apps.clusters.models import Cluster
from apps.usage.models import ExporterSetUp


def set_up_id(cluster: Cluster, profile: ExporterProfile) -> int | None:
    """Return the id of the row of this profile, made where there is none; None without jobs."""
    if not profile.jobs:
        return None
    stored = profile.as_json()
    text = json.dumps(stored, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    found = ExporterSetUp.objects.get_or_create(
        cluster=cluster, digest=digest, defaults={"profile": stored}
    )
    return found[0].pk
