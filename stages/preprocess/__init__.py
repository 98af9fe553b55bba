"""Requests to tickets: validation, chat templates, tokenization."""
