"""What a request waits for, and how long.

A `Deferred` is completed by a plain call; purgatory bounds all waits with one timer; a coroutine that has to wait is
stepped by hand. Powers: the clock and the loop. Invariants: who waits hears exactly once, at the latest when its time
is up, and waiting costs no task. Knows nothing of requests or partitions.
"""
