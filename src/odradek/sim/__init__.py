"""A made-up world: one seed decides every delay, loss, crash and torn write, and the same seed decides the same again.

Nodes run here unchanged, on ports whose time, disk, network and workers are drawn from the seed. Nothing in this room
may touch the real clock, disk or network. `run.py` plays one seed; `checkers/` say what must hold whatever happened.
"""
