"""The worker's side: a line of JSON in, a line of JSON out. Standard library only, since every
peer's interpreter runs it.

The first line is the configuration {"model", "threads"}; the answer says who is ready. Then
requests:

    {"do": "measure", "case": {...}, "salt": N}  ->  {"tokens": N, "seconds": S}
    {"do": "quit"}

A case is {"kind": "prefill", "tokens"} or {"kind": "decode", "sequences", "context", "tokens"}; of
kind "serve" the prompts' time counts too, and they may share batches.
`salt` makes prompts differ, so that no prefix cache answers in the engine's place. Anything that
goes wrong is answered by {"error": "..."}.
"""

import json
import os
import sys


def prompt(sequence, length, vocab_size, salt):
    """Token ids; which they are does not change the work."""
    first = 104729 * sequence + 1299709 * salt + 7
    return [(first + 7919 * (i + 1)) % vocab_size for i in range(length)]


def serve(make):
    """Answer requests with `make(configuration)`, which has `info()` and `measure(case, salt)`,
    the latter giving (tokens, seconds)."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    engine = None
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("do") == "quit":
            return
        try:
            if engine is None:
                engine = make(request)
                answer = engine.info()
            else:
                tokens, seconds = engine.measure(request["case"], request["salt"])
                answer = {"tokens": tokens, "seconds": seconds}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
