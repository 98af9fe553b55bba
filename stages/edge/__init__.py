"""The OpenAI-compatible HTTP edge: HTTP to NATS and back."""
