"""Who you are and what you may: principals, access rules, SCRAM credentials.

Synchronous, works on bytes and values handed in. SASL and TLS are not there yet, and `server.config` refuses every
configuration that would need them.
"""
