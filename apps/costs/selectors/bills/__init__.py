"""Reads of bills: those that were imported, their SKUs, and what months differ by."""
