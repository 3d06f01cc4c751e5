"""State machines over internal topics: groups and transactions.

Synchronous: they decide and replay, and never append. So far only the formats of their records are here, because
whoever reads a log directory must be able to read them.
"""
