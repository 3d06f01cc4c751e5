"""This node as a member of its cluster: whose directories these are, registration, heartbeats, fencing and leaving.

Powers: the directories' own files, the controller, the clock. Invariants: an empty directory is never taken for a whole
one; what the cluster is told of the last life is true, or the node registers anew.
"""
