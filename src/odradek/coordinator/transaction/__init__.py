"""Transactions: who owns a transactional id, and how far its transaction has come."""
