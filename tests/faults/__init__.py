"""Faults in what the portal needs, and facts that are to be the same in spite of them."""
