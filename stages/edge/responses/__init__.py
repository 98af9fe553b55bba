"""`/v1/responses`: OpenAI's Responses API, whose answers outlive the edge that took the request in."""
