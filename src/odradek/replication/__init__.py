"""One partition, led or followed by this node: what may be appended to it, and up to where its log is committed.

Touches its own `Log` and nothing else; never sends, waits or looks at a clock. What must hold: the high watermark only
rises while one leader epoch lasts, and never beyond what every in-sync replica holds, counting those that the
controller may have let in already; a follower cuts its log where its history leaves the leader's, which leader epochs
tell and watermarks do not.
"""
