"""An engine in a process of its own.

    event loop: ProcessClient --requests--> child: Host --> AsyncLLM's thread
                Arrivals      <--letters, one message a step--  Wire
                News          <--records, in the same message-- Feed, while somebody watches

The two ends of a socket pair speak in frames: a length, then a pickle. Both are ours and nobody
else can reach the pair, so what arrives is trusted. Text becomes tokens in the client's process;
the child computes, and finds stop strings.

1. Whatever ends the child (a crash, a kill, three failed steps in a row), each request that is
   under way is told so, once, by an error.
2. A child that ended is started again, at once the first time, then at growing intervals; requests
   that come meanwhile wait for a bounded time.
3. A child whose client is gone ends at once. It minds no Ctrl-C or SIGTERM: the client says when.
4. The engine never waits for its client: what cannot be sent is kept, and what nobody has read yet
   is joined, so that it is bounded by the answers' own length.

Nothing is imported here.
"""
