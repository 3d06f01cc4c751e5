"""Front doors: what people run.

Each speaks to a running node as any client does; the command line alone may also start a `Node` or read a log offline.
Nothing in the house imports a front door, but for the two short ones that users name: `odradek.clients` and
`odradek.pipelines`. The command line and pipelines do not import each other either: what both need is in `terminal`.
"""
