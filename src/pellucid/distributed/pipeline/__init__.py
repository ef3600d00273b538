"""A model over several machines: each Ray actor has a range of its layers.

    Engine: scheduler, sampler --Step--> stage 1 --rows--> stage 2 --logits--> Engine

The engine is the same, with its pages, prefix cache, chunks and preemptions; in the place of its
model is one that sends each step through the stages. Every stage has the pages of its own layers,
and they are numbered alike. Rows go from actor to actor, not through this process.

One step is under way at a time: stages wait for each other, and a pipeline is for what does not fit
one machine, not for speed. Nothing is imported here.
"""
