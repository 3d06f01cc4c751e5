"""The wire language: frames, primitives, the codec, error codes, and which APIs there are.

Pure: bytes in, values out, and back. Never a clock, a socket or a file. Bytes that are no message raise
`MalformedFrame`; memory is never allocated by what a message merely claims to hold.
"""
