"""Engines run side by side: each in a process of its own, with its own interpreter.

A worker (`*_worker.py`) is started once, answers requests one at a time, and sleeps in between, so
that it takes nothing from whoever runs. `serve.py` is the loop that all workers share; `client.py`
is the other end.
"""
