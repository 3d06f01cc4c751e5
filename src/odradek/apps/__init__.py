"""Front doors: what people run.

Each speaks to a running node as any client does; the command line alone may also start a `Node` or read a log offline.
Nothing in the house imports a front door.
"""
