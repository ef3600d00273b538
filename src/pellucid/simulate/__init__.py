"""The capacity simulator: the very scheduler and page tables that serve, driven by traffic that is
made up or recorded, with a cost model in place of the kernels. No arrays, no models, no engine.

    Traffic -> Job -> Replica (Scheduler, StepTime) -> Tally -> Summary -> Point (bands over seeds)
"""
