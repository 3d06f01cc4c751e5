"""One partition, led by this node: what may be appended to it, and up to where its log is committed.

Touches its own `Log` and nothing else; never sends, waits or looks at a clock. What must hold: the high watermark only
rises while one leader epoch lasts, and never beyond what every in-sync replica holds.
"""
