"""Pending work as pages show it: causes in words, rows, sums, history, one item."""
