"""A stand-in cluster: serves the APIs of Prometheus and Kubernetes from a scenario, on loopback.

`scenarios` says what exists and happens (`fleet`, `epochs`). `prometheus` turns that into the
series of each exporter and answers queries. `kubernetes` shows the same as objects, `scheduler`
places pods, and `server` puts both APIs on one port. Everything is a pure function of the scenario
and the time; only `clock` knows what time it is.
To add a scenario, write a subclass of `scenarios.base.Scenario` and enter it in
`scenarios.registry`.
"""
