"""Writes of running the portal: loading the catalog, and what the doctor finds."""

from apps.operations.services.doctor import Diagnosis, Examined, UnknownCluster, run_doctor
from apps.operations.services.loading import CatalogNotStored, ensure_builtin, load_catalog

__all__ = [
    "CatalogNotStored",
    "Diagnosis",
    "Examined",
    "UnknownCluster",
    "ensure_builtin",
    "load_catalog",
    "run_doctor",
]
