"""The routes that generate nothing: models, tokenizer, probes, the API's own document."""
