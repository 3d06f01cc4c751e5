"""Speaking to brokers: connections, metadata, producer and consumer on the ports, so they run under simulation, too.

May await, and touch the `Network`, `Clock` and `Entropy` ports; knows nothing of `server` and `storage`. Empty so far:
a lone node has nobody to speak to.
"""
