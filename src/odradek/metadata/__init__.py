"""What the cluster agreed on: metadata records, the image they make, and the decisions that write more of them.

Powers: none. Everything here is a function or a value over bytes and records handed in; time, randomness and files
belong to `server`, which appends what is decided here and replays what was committed.

Invariants: an `Image` never changes; only replaying a committed record makes a new one; a decision reads an image and
returns records, and nothing else of it lasts.
"""
