"""What a node is configured with: the tables of its keys, the file it starts with, and what changes while it runs.

Each key is declared once, and parsing, DescribeConfigs and the reference read the same table. Powers: none; texts and
images come in, values go out. Invariants: what cannot be honoured is refused or warned of, never passed over.
"""
