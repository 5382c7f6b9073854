"""Explain this number."""
