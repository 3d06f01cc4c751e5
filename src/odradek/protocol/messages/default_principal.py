"""Who sent a forwarded request, as Envelope carries it."""

from __future__ import annotations

from odradek.protocol.codec import Message
from odradek.protocol.primitives import boolean, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: string
    name: string
    token_authenticated: boolean
