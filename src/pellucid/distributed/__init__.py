"""Past one process and one machine, on Ray: replicas of the engine, batches, pipelines of layers.

    server --> ReplicaClient --route--> Serve replica: AsyncLLM
                  |   `--> Placement: who holds which prefix, who has how much to do
                  `<-- letters: an acceptance, then increments, joined while nobody takes them

1. A replica answers as an engine in this process does, byte for byte: text becomes tokens and seeds
   are drawn on the client's side, and an answer does not depend on what else runs.
2. Whatever ends a replica, each request under way there is told so, once, by an error; one of which
   nothing has come yet is asked of another replica instead.
3. A client that leaves ends its request on the replica within one step.
4. What we started we end: the cluster, if it is ours, and in any case the application.

Ray is imported in this package alone, and only by whoever asks for it (`pellucid[ray]`). Nothing is
imported here.
"""
