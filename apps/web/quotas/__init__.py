"""The pages of quotas and budgets: what was promised, how full it is, and how fast it goes."""
