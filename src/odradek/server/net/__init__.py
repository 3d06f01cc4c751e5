"""From the bytes of a connection to a handler and back: listeners, buffers, connections, routes and their versions.

Powers: the network's ports and the loop. Invariants: answers leave in the order of the requests; views into a receive
buffer are good until the request first waits; a broken frame costs its connection and nobody else.
"""
