"""Connections: framing, receive buffers, order of answers, back-pressure, on whatever wire the world offers.

Answers leave in the order of their requests. Memory is bounded per connection and in all: who does not read their
answers is read no further themselves.
"""
