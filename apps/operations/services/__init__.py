"""Writes of running the portal: loading the catalog, and what the doctor finds."""

from apps.operations.services.alerting import NotGathered, gather_alerts
from apps.operations.services.deriving import (
    Ran,
    derive_after_history,
    derive_after_hours,
    derive_now,
)
from apps.operations.services.doctor import Diagnosis, Examined, UnknownCluster, run_doctor
from apps.operations.services.loading import CatalogNotStored, ensure_builtin, load_catalog
