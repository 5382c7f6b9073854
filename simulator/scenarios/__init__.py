"""The scenarios there are: each a cluster over time, made from a seed and an origin."""
