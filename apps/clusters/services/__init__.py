"""Writes of what exists and existed, and the ledger read back; each module is one concern."""
