"""What requests look like: one model per route, strict. A field that is not here is refused."""
