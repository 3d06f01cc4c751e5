"""Compaction: of every key the last record stays, and offsets never change.

`choice` says which logs are worth it and how far they may be cleaned, `cleaning` does it in slices over sealed segments
that nobody writes to any more, beside the log; `Segments.replace` puts the result in their place. What is cleaned, kept
and noted in batches is as Apache Kafka's cleaner does it, so that either may go on where the other has stopped.

Files are all it touches, and of a log only what `choice` has looked at: so it may run in a worker.
"""
