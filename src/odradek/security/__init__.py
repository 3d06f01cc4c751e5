"""Who you are and what you may: principals, ACLs, SASL, TLS.

Synchronous, works on bytes and values handed in. Empty so far, and `server.config` refuses every configuration that
would need it.
"""
