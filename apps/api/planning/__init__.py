"""Endpoints of planning, goodput and reliability."""
