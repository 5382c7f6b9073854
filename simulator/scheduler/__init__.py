"""A small control plane over raw objects: what is asked of it, and what becomes of that.

`plane.ControlPlane` holds the objects (`store`) and lets everything that acts on them have its
turn until nothing changes: `controllers` make pods, `admission` holds ResourceQuotas against them,
`kueue` and `gangs` let them in, `placing` finds nodes (`filters` says why not), `claims` gives out
devices, `kubelet` starts and ends containers. The texts are those of Kubernetes 1.36. It knows
nothing of the portal, decides by creation and name alone, and reads no clock.
"""
