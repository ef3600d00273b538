"""Requests from a file, answers to a file: OpenAI's batches, without a server.

IN has a request on each line, OUT gets a line for each. Invariants:

1. OUT alone says what is done. The id of each of its lines is a function of the model, the
   settings and the request (`identity`), so that a line is known to answer a line of IN, or not to.
2. A line is in OUT whole, or it is not done. What a crash left at its end is cut off and done again
   (`output`).
3. Whatever would be drawn at random for a request is a function of its custom_id and the batch's
   seed, and an answer does not depend on what else runs: so a batch that was killed and resumed
   has the answers of one that was not.
4. In memory are one number for each line of IN, and the requests in flight.

The life of a batch: `source` reads IN and `Index` notes each line, refusing a custom_id that comes
twice; `Output` locks OUT and the index strikes off what is there; `run` answers the rest, many at a
time, and writes each answer as it ends.
"""
