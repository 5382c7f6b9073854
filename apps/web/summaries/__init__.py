"""What the first pages tell at a glance: sums, changes, waste, waits."""
