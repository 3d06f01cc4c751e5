"""The process: takes requests in, asks the cores, carries out what they answer.

May await and touch the ports it is handed, which `node.py` alone wires together. It never has a socket, file or clock
of its own, and it never decides what a core should decide. All state is touched by the event loop's one thread.

Its rooms are stairs, and imports go down only, those for types as well: `node`, `http`, `metrics`, `handlers`, then
`controller`, `coordinators`, `following` and `membership`, then `partitions` and `quorum`, `net` and `peers`, `access`
and `configs`, `waiting`, `containment`.
"""
