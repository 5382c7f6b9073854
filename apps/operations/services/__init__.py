"""Writes of running the portal: loading the catalog."""

from apps.operations.services.loading import CatalogNotStored, ensure_builtin, load_catalog

__all__ = ["CatalogNotStored", "ensure_builtin", "load_catalog"]
