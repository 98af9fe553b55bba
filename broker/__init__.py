"""NATS and JetStream for the stages: streams, queues, journals, leases, registry, client. Nothing above imports nats."""
