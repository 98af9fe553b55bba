"""`/v1/chat/completions`: a body becomes a request, the chunks of its answer become OpenAI's objects."""
