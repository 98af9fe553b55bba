"""Every subject, stream and bucket name of Headrace, in one place."""

from zlib import crc32

REQUESTS = "REQUESTS"
TICKETS = "TICKETS"
DEAD = "DEAD"
MODELS_BUCKET = "hr_models"
PARTITIONS_BUCKET = "hr_partitions"
CANCELLED_BUCKET = "hr_cancelled"
RESPONSES_BUCKET = "hr_responses"
ARTIFACTS_STORE = "hr_artifacts"

PREPROCESS_CONSUMER = "preprocess"
TOKENIZER_SERVICE = "headrace-tokenizer"
"""The NATS micro service that every preprocess replica is an instance of."""


def partition_of(key: str, partitions: int) -> int:
    """The partition of the request `key` (`<tenant>.<request id>`): the crc32 of its bytes modulo `partitions`."""
    return crc32(key.encode()) % partitions


def journal_stream(partition: int) -> str:
    return f"JOURNAL_{partition}"


def results_stream(partition: int) -> str:
    return f"RESULTS_{partition}"


def schedule_consumer(model: str) -> str:
    return f"schedule_{model}"


def request(tenant: str, model: str) -> str:
    return f"hr.request.{tenant}.{model}"


def ticket(model: str, tenant: str) -> str:
    return f"hr.ticket.{model}.{tenant}"


def journal(partition: int) -> str:
    return f"hr.journal.{partition}"


def result(partition: int | str, tenant: str, session: str, request_id: str) -> str:
    """Where results go; `*` in place of a part subscribes to all of them."""
    return f"hr.result.{partition}.{tenant}.{session}.{request_id}"


def dead(model: str) -> str:
    return f"hr.dead.{model}"


def worker(model: str, worker_id: str) -> str:
    return f"hr.worker.{model}.{worker_id}"


def grant(worker_id: str) -> str:
    return f"hr.grant.{worker_id}"


def drop(worker_id: str) -> str:
    return f"hr.drop.{worker_id}"


def kv(model: str, worker_id: str) -> str:
    return f"hr.kv.{model}.{worker_id}"


def kv_snapshot(worker_id: str) -> str:
    return f"hr.kvsnapshot.{worker_id}"


def backlog(model: str) -> str:
    return f"hr.backlog.{model}"


def tokenize(model: str) -> str:
    return f"hr.tokenize.{model}"


def detokenize(model: str) -> str:
    return f"hr.detokenize.{model}"
