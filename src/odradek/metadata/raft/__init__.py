"""KRaft: who may append to the metadata log, and the files that remember it.

One voter for now: this node elects itself at every start, in an epoch that was never used before. The formats are those
of a quorum of many.
"""
