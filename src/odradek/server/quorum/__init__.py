"""The shell of raft: the metadata log, its followers and leader, and the images that committed records become.

`metadata.raft` decides, `quorum.py` carries out in its order. Powers: the metadata log's directory, which nobody else
touches, other voters, the clock. Invariants: what a voter promises is on the device before it is told; where that, or
the log, is in doubt, the node stops.
"""
