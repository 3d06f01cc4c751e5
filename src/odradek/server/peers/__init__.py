"""Ways to other nodes: connections to them that are opened when they are needed, and one to the active controller.

Powers: the network, through `odradek.client`. Invariants: a request that gets no answer in time fails; a broker reaches
the controller this way even in its own process.
"""
