"""One API a file: `fetch.py` answers Fetch. `net/routes.py` finds a handler by its API when it is first
asked for.

A handler opens with the versions it serves and what is not done yet. It may look at views into the receive buffer until
it first awaits, and not after.
"""
