"""The real world: clock, randomness, files, sockets and threads behind the ports.

An adapter may touch the operating system and nothing else: it does not know what it writes to a file or sends.
"""
