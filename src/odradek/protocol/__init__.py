"""The wire language: frames, primitives, the codec, record batches, error codes, and which APIs there are.

Pure: bytes in, values out, and back. Never a clock, a socket or a file. Bytes that are no message raise
`MalformedFrame`; memory is never allocated by what a message merely claims to hold. A message is declared once for all
its versions (`declare`, `messages`), and its codecs are compiled when first asked for (`codec`): a node declares
far more than it uses. `docs/internals/protocol.md` tells the language and how it is proven equal to Kafka's own.
"""
