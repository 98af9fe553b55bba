"""Dead letters as the stages write them."""

from broker import subjects
from broker.dead_letters import StoredLetter
from schemas.codec import CONTENT_TYPES, Encoding, encode, pack_ids
from schemas.control import DeadAttempt, DeadLetter
from schemas.request import ChatMessage, Request, Sampling
from schemas.ticket import AnswerSpec, EngineSampling, StageTime, Ticket

SECRET = "the secret of the prompt"
PROMPT_IDS = [41, 42, 43]

TICKET = Ticket(
    tenant="acme",
    request="r1",
    choice=2,
    choices=4,
    session="old",
    model="m",
    prompt=pack_ids(PROMPT_IDS),
    sampling=EngineSampling(max_tokens=7, logit_bias={5: 1.0}),
    partition=1,
    deadline_ms=60_000,
    answer=AnswerSpec(stop=[SECRET]),
    received_at=1000.0,
    preprocess=StageTime(1.0, 2.0),
    trace="00-" + "1" * 32 + "-" + "2" * 16 + "-01",
)
REQUEST = Request(
    id="r2",
    session="old",
    messages=[ChatMessage("user", SECRET)],
    sampling=Sampling(temperature=0.5),
    stop=SECRET,
    n=2,
)


def ticket_letter() -> DeadLetter:
    """Of the owner, for poison."""
    return DeadLetter(
        subject=subjects.ticket("m", "acme"),
        reason="three workers in a row died of it",
        payload=encode(TICKET),
        content_type=CONTENT_TYPES["msgpack"],
        key="acme.r1",
        choice=2,
        attempts=[DeadAttempt(7, 0, "w1"), DeadAttempt(9, 3), DeadAttempt(12, 3, "w2")],
    )


def request_letter(encoding: Encoding = "json", *, cut: int = 0) -> DeadLetter:
    """Of preprocess."""
    payload = encode(REQUEST, encoding)
    return DeadLetter(
        subject=subjects.request("acme", "m"),
        reason="preprocess failed on it",
        payload=payload[: len(payload) - cut],
        content_type=CONTENT_TYPES[encoding],
    )


def stored(letter: DeadLetter, sequence: int = 5) -> StoredLetter:
    return StoredLetter(sequence, 1_700_000_000.0, "m", letter)
