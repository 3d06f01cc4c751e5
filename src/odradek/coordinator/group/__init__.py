"""Groups: classic and KIP-848 membership, and the offsets they commit."""
