"""Who asks, what it may do, and how much of it: authorization by ACLs, and client quotas.

Powers: the clock. Invariants: what a handler did not ask for is not allowed; an answer here is of the newest image of
ACLs and quotas that this node has.
"""
