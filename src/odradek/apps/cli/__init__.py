"""The command `odradek`: what a person types, and one clear sentence back where it cannot be done.

A command is a file, which declares what it takes and does it: through `odradek.client` where it asks a cluster, on
files where it looks into logs. May start a `Node` and read or format its directories. How it connects, prints and says
what went wrong is in `odradek.apps.terminal`. Start-up time is a feature: a command imports what it needs when it runs,
so that `odradek --help` costs little more than the interpreter.
"""
