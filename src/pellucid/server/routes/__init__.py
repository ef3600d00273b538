"""One module per API: how its requests become prompts, and increments its responses."""
