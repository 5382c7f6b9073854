"""Roles for the whole portal; a team lead is a viewer who leads a team."""

from enum import StrEnum


class Role(StrEnum):
    VIEWER = "viewer"
    ADMIN = "admin"
    FINANCE = "finance"
