"""The fault scenarios of `campus`: a pool of nodes with pending work of every cause.

Every two hours a script (`script`) lets a workload of each cause be pending and start, on nodes and
in namespaces of its own (`site`), in a small control plane (`simulator.scheduler`). `cycle` runs it
and keeps what it made, so that any moment can be shown; `pods` gives the same pods to metrics and
truths; `live` goes on from now once somebody changes something.
"""
