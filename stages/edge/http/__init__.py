"""HTTP itself: bodies, headers, errors, event streams, clients that leave."""
