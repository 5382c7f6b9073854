"""A stand-in cluster: serves the APIs of Prometheus and Kubernetes from a scenario, on loopback.

`scenarios` says what exists and happens (`fleet`, `epochs`); `device_metrics` and `kube_metrics`
turn that into series, of cards as their exporters are set up to show them; `promql` and `evaluate`
answer queries; `kube_entities` and `kube_api` show the same as Kubernetes objects, `server` puts
both on one port. `truth` says what is so whatever an exporter shows: tests hold a ledger against
it. Everything is a pure function of the scenario and the time; only `clock` knows what time it is.
To add a scenario, write a subclass of `scenarios.base.Scenario` and enter it in
`scenarios.registry`.
"""
