"""The guide, "From one token to a thousand requests": chapters in Markdown, figures that ask the
engine that serves them."""
