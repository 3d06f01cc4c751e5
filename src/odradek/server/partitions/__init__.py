"""The partitions this node hosts: opened, appended to, read, watched, kept tidy and closed.

Cores decide (`replication`, `storage`); this room finds the right partition, tells those who wait, and takes a log
directory offline when its disk fails. Powers: the log directories, workers, the clock. Invariants: all state is touched
by the loop's thread alone; nobody is told of bytes that a reader may not see; what fails costs its partition or its
directory.
"""
