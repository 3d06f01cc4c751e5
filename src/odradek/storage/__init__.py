"""One replica's log: segments, indexes, producer state, leader epochs, checkpoints, as Kafka's files.

Synchronous, over the `Disk` port alone. Knows nothing of the network or of who leads. A call that raises has changed
nothing; what survives a crash is what was synced, and recovery finds the longest good beginning of the rest.
"""
