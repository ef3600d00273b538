"""The running engine, for whoever looks: its records over HTTP.

    engine's ring --news, 30 times a second while somebody watches--> Hub --queue--> each viewer

1. Nobody watches: nothing is asked of the engine and nothing is made here.
2. A record is turned into JSON once, however many watch.
3. A viewer has a bounded queue. What does not fit is left out, oldest first, and counted.
4. The engine is never waited upon by it, nor it by a viewer.
"""
