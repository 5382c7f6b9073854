"""Endpoints of planning and of reliability."""
