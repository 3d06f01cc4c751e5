"""One API a file, all its versions: `fetch.py` declares FetchRequest and FetchResponse.

Files are imported when their API is first asked for (see `protocol.api`), so an API that nobody uses costs nothing.
Names are those of Kafka's schemas. Four files are no APIs: what control batches, the classic consumer protocol,
forwarded requests and the `quorum-state` file hold.
"""
