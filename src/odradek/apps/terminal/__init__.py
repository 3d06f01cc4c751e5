"""What programs at a terminal share: how they connect, what they print, and the one sentence for what goes wrong.

The command line and data pipelines stand on it and do not know each other. `options` declares what many commands
take, `session` makes clients of it (with `profiles` and `properties`, where settings are kept), `output` prints for
people and for programs, and a `Sentence` is an error that a person can do something about.
"""
