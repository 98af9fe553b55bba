"""Whether answers are the right ones: what a client received, and what is stored for those who come later. No I/O."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.chunk import Chunk
from load.chaos_requests import HALF, Case, Truth
from schemas.result import Result, Usage

LOOK = 8
"""Ids in a row that have to agree for a shift to be recognised."""


@dataclass
class Received:
    """One choice as a client got it."""

    ids: list[int] = field(default_factory=list[int])
    text: str = ""
    logprobs: list[float] = field(default_factory=list[float])
    finish: str = ""
    stop_reason: str | int | None = None
    usage: Usage | None = None
    gaps: int = 0

    def take(self, chunk: Chunk) -> None:
        """The next piece."""
        if (chunk.token_from, chunk.text_from) != (len(self.ids), len(self.text)):
            self.gaps += 1
        self.ids += chunk.ids
        self.text += chunk.text
        self.logprobs += [entry.logprob for entry in chunk.logprobs or ()]
        if chunk.finish:
            self.finish, self.stop_reason, self.usage = chunk.finish, chunk.stop_reason, chunk.usage


@dataclass
class Flaws:
    """What is wrong with an answer. Tokens are counted, texts and ends are 1 or 0 a choice; `said` explains."""

    missing: int = 0
    doubled: int = 0
    wrong: int = 0
    said: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return bool(self.missing or self.doubled or self.wrong)

    def add(self, other: "Flaws") -> None:
        self.missing += other.missing
        self.doubled += other.doubled
        self.wrong += other.wrong
        self.said += other.said


def check_received(case: Case, choices: dict[int, Received], fault: str) -> Flaws:
    """`fault` is the code that the answer ended with, "" where it ended well."""
    flaws = Flaws()
    numbers = choices if fault else range(case.n)
    for number in numbers:
        flaws.add(_check_choice(case.truth, choices.get(number, Received()), whole=not fault))
    return flaws


def check_texts(case: Case, choices: dict[int, Received], fault: str) -> Flaws:
    """As `check_received` where a client sees no ids: characters are counted in their place, usage is of all choices.

    `stop_reason` None says nothing: not every API tells it.
    """
    flaws = Flaws()
    for number in choices if fault else range(case.n):
        got = choices.get(number, Received())
        flaws.add(_check_text(case.truth, got, whole=not fault))
        used = (got.usage.prompt_tokens, got.usage.completion_tokens) if got.usage else None
        wanted = (case.truth.prompt_tokens, case.n * len(case.truth.ids))
        if not fault and not flaws and used != wanted:
            flaws.add(Flaws(wrong=1, said=[f"usage {used}, not {wanted}"]))
    return flaws


def _check_text(truth: Truth, got: Received, *, whole: bool) -> Flaws:
    if not whole and _begins(truth.text, got.text):
        return Flaws()
    flaws = compare_ids([ord(each) for each in got.text], [ord(each) for each in truth.text], whole=whole)
    stopped_right = got.stop_reason in (None, truth.stop_reason)
    if whole and not flaws and not (got.finish == truth.finish and stopped_right and not got.gaps):
        return Flaws(wrong=1, said=[f"ended with {got.finish!r}, not {truth.finish!r}; {got.gaps} gaps"])
    return flaws


def _check_choice(truth: Truth, got: Received, *, whole: bool) -> Flaws:
    """A whole answer equals the truth; one that a fault cut off is a beginning of it."""
    flaws = compare_ids(got.ids, truth.ids, whole=whole)
    if got.gaps:
        flaws.add(Flaws(wrong=1, said=[f"{got.gaps} chunks that do not follow each other"]))
    if flaws:  # the rest follows from it
        return flaws
    if not (got.text == truth.text if whole else _begins(truth.text, got.text)):
        return Flaws(wrong=1, said=[f"text differs from character {_first_difference(got.text, truth.text)} on"])
    wrong = _wrong_ends(truth, got) if whole else []
    return Flaws(wrong=len(wrong[:1]), said=wrong)


def _wrong_ends(truth: Truth, got: Received) -> list[str]:
    wrong: list[str] = []
    if (got.finish, got.stop_reason) != (truth.finish, truth.stop_reason):
        wrong.append(f"ended with {got.finish!r}, not {truth.finish!r}, or for another reason")
    used = (got.usage.prompt_tokens, got.usage.completion_tokens) if got.usage else None
    if used != (truth.prompt_tokens, len(truth.ids)):
        wrong.append(f"usage {used}, not {(truth.prompt_tokens, len(truth.ids))}")
    if truth.logprobs is not None and got.logprobs != truth.logprobs:
        wrong.append(f"logprobs differ from entry {_first_difference(got.logprobs, truth.logprobs)} on")
    return wrong


def compare_ids(got: list[int], truth: list[int], *, whole: bool) -> Flaws:
    """Tells left out and repeated ids from wrong ones."""
    if got == truth or (not whole and got == truth[: len(got)]):
        return Flaws()
    at = _first_difference(got, truth)
    rest, wanted = got[at : at + LOOK], truth[at : at + LOOK]
    if not rest:
        return Flaws(missing=len(truth) - at, said=[f"{len(truth) - at} ids are missing at the end"])
    if not wanted:
        return Flaws(doubled=len(got) - at, said=[f"{len(got) - at} ids too many"])
    if left_out := _shift(rest, truth, at):
        return Flaws(missing=left_out, said=[f"{left_out} ids are missing at {at}"])
    if repeated := _shift(wanted, got, at):
        return Flaws(doubled=repeated, said=[f"{repeated} ids are doubled at {at}"])
    return Flaws(wrong=1, said=[f"other ids from {at} on"])


def _shift(rest: list[int], within: list[int], at: int) -> int:
    """How many ids later `rest` comes in `within`, after `at`; 0 where it does not."""
    return next((start - at for start in range(at + 1, len(within)) if within[start : start + len(rest)] == rest), 0)


def _first_difference(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


@dataclass
class StoredFlaws:
    """What the stored results of a request say beyond one right answer.

    `duplicates`: ends of one choice that differ from its first; `repeats`: the same end once more, as two owners
    write it; `endless`: choices without an end; `after_end`: pieces that readers ignore; `wrong`: pieces that
    contradict the truth; `missing`: tokens that no piece holds.
    """

    duplicates: int = 0
    repeats: int = 0
    endless: int = 0
    after_end: int = 0
    wrong: int = 0
    missing: int = 0
    said: list[str] = field(default_factory=list[str])


def check_stored(case: Case, results: list[Result]) -> StoredFlaws:
    """All stored results of one request, in their order."""
    flaws = StoredFlaws()
    for choice in range(case.n):
        _check_stored_choice(case.truth, [each for each in results if each.choice == choice], flaws)
    return flaws


def _check_stored_choice(truth: Truth, results: list[Result], flaws: StoredFlaws) -> None:
    ends = [_end(each) for each in results if each.terminal]
    if ends:
        flaws.duplicates += len(set(ends)) - 1
        flaws.repeats += len(ends) - len(set(ends))
    else:
        flaws.endless += 1
    reached, ended = 0, False
    for each in results:
        flaws.after_end += ended and not each.terminal
        flaws.missing += max(0, each.token_from - reached)
        reached, ended = max(reached, each.token_to), ended or each.terminal
        if not _is_true(truth, each):
            flaws.wrong += 1
            flaws.said.append(f"stored piece {each.token_from}..{each.token_to} of attempt {each.attempt} is not true")
    if len(set(ends)) > 1:
        flaws.said.append(f"ends: {Counter(ends)}")


def _is_true(truth: Truth, result: Result) -> bool:
    ids, text = truth.ids[result.token_from : result.token_to], truth.text[result.text_from :]
    return result.fault is not None or (result.ids == ids and _begins(text, result.text))


def _begins(text: str, beginning: str) -> bool:
    """Half a character, where a fault cut the answer off, is one replacement character."""
    return text.startswith(beginning) or (beginning.endswith(HALF) and text.startswith(beginning[:-1]))


def _end(result: Result) -> tuple[str, str, str, int, int]:
    """What a terminal result says, without when and where it was written."""
    tokens = result.usage.completion_tokens if result.usage else 0
    fault = result.fault.code if result.fault else ""
    return result.finish, fault, str(result.stop_reason), result.token_to, tokens
