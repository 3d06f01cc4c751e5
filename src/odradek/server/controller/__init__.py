"""The active controller's shell: requests become decisions, decisions batches of the metadata log, in one queue.

`metadata.controller` decides. Powers: the quorum, the clock, probes of silent brokers. Invariants: one decision after
another, each over the image of all before it; answers leave once their records are committed.
"""
