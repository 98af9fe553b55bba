"""How much of chats' prompts was found in the workers' KV caches, beside one cache that had all of it."""
