"""KRaft: who may append to the metadata log, when a record counts, and the files that remember it.

`core.Raft` is one replica: events in, a `Ready` out (what to sync, then append, then send). It reads no clock, draws
nothing and waits for nobody; `server/quorum/quorum.py` is its shell. Invariants: a vote is given once an epoch, an
epoch has one leader, what is committed stays.
"""
