"""Endpoints of planning, goodput, serving and reliability."""
