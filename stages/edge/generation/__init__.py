"""What all routes that generate text share: parameters, submitting, idempotency, usage."""
