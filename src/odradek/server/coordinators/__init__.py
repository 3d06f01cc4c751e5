"""State machines over internal topics at work: shards are loaded, asked, written and dropped with their partition.

`coordinator` decides; what it decides is appended, replayed and answered here. Powers: hosted partitions, the clock.
Invariants: nothing is answered before all it rests on is committed; a shard that loses its partition, or breaks, is
dropped whole.
"""
