"""The command `odradek`: what a person types, and one clear sentence back where it cannot be done.

May start a `Node` and read or format its directories. Start-up time is a feature: a command imports what it needs when
it runs, so that `odradek --help` costs little more than the interpreter.
"""
