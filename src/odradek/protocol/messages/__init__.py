"""One API a file, all its versions: `fetch.py` declares FetchRequest and FetchResponse.

Files are imported when their API is first asked for (see `protocol.api`), so an API that nobody uses costs nothing.
"""
