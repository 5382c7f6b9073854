"""The pages of fairness: tiers, a team's week in words, and what would be if."""
