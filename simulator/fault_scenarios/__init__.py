"""The fault scenarios of `campus`: a pool of nodes on which everything waits that can wait.

Every two hours a script (`script`) lets a thing of each cause wait and start, on nodes and in
namespaces of its own (`site`), in a small control plane (`simulator.scheduler`). `cycle` runs it
and keeps what it made, so that any moment can be shown; `pods` gives the same pods to metrics and
truths; `live` goes on from now once somebody changes something.
"""
