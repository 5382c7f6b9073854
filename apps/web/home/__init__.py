"""Home, by role: lead and member, administrator, finance."""
