"""Hand-made readers and writers of the requests that a broker gets most.

Powers: bytes in, a plan out; outcomes in, bytes out. They never decide: a plan and its outcomes are the same whichever
way the bytes were read, and what a reader does not know (None) the compiled decoder reads.
"""
