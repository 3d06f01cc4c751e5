"""How this node's followers pull what leaders have: one fetcher a leader, sessions kept, logs truncated where they
part.

`replication.follower` decides. Powers: connections to leaders, hosted partitions, the clock. Invariants: a partition
that breaks is set aside and keeps no other from being followed.
"""
