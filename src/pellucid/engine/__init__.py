"""The engine: requests in, outputs out.

Nothing is imported here: what is synchronous starts without asyncio.
"""
