"""State machines over internal topics: groups and transactions.

Synchronous: they decide and replay, and never append; time and randomness are handed in. `shard.py` says what a shard
is, `record_format.py` how its records look in the log, `group/` holds the groups.
"""
