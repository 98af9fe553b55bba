"""`/v1/completions`: bodies with one or many prompts become requests, their answers become OpenAI's objects."""
