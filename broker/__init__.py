"""NATS and JetStream for the stages: streams, queues, journals, leases, registry, client. Nobody else imports nats."""
