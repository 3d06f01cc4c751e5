"""Odradek: Kafka in Python.

The rooms of the house and the one way down its stairs are drawn in `docs/architecture.md`; this package itself imports
nothing, so that `import odradek` costs nothing.
"""

__version__ = "0.1.0"
