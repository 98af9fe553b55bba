"""What the hashes of a prompt's blocks cost preprocess, new or seen, and whether an own encoder would be quicker.

    python -m load.hashing

The arms take turns within one run, on one thread, over the same prompts, and a ratio is that of each round. `cbor2`
remembers nothing; `new` and `seen` are what preprocess does, with prompts that it never saw, and with those that it has
seen twice: `cbor2`/`new` is what remembering costs, `cbor2`/`seen` what it saves. `own` looks every token id up in a
table of encoded ones and joins them. Only where it was more than twice as quick would it be worth having. `text` are
prompts of the bundled model as they come, with few different ids, `random` is one long prompt of a large vocabulary:
its table does not stay in the processor's caches.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from load.generator.option_values import number
from load.tokenizing import CONTEXT, Bench, bundled_files
from stages.preprocess.block_hashes import Memo, block_hashes, hashed_blocks

ROOT = sha256(b"root").digest()
NULL = b"\xf6"
LARGE_VOCABULARY = 151_936

Hashes = Callable[[Sequence[int], int], bytes]


@dataclass
class Arm:
    """Seconds of each round, which begins with `begin`."""

    name: str
    begin: Callable[[], Hashes]
    seconds: list[float] = field(default_factory=list[float])


class OwnEncoder:
    """The same bytes as `block_hashes`, from a table with the CBOR of every token id below `vocab_size`."""

    def __init__(self, vocab_size: int) -> None:
        self._table = [_head(0x00, token) for token in range(vocab_size)]

    def block_hashes(self, ids: Sequence[int], block_size: int, root: bytes = ROOT) -> bytes:
        """As `block_hashes`, of prompts without a cache salt."""
        before, between = b"\x83" + _head(0x40, len(root)), _head(0x80, block_size)
        encoded = [self._table[token] for token in ids]
        parent, low = root, list[bytes]()
        for end in range(block_size, len(ids) + 1, block_size):
            block = b"".join(encoded[end - block_size : end])
            parent = sha256(b"%b%b%b%b%b" % (before, parent, between, block, NULL)).digest()
            low.append(parent[:-9:-1])
        return b"".join(low)


def _head(major: int, value: int) -> bytes:
    """The shortest head of a CBOR item: its major type, and its value or length (RFC 8949, 4.2.1)."""
    if value < 24:
        return bytes([major | value])
    for extra, size in ((24, 1), (25, 2), (26, 4)):
        if value < 1 << 8 * size:
            return bytes([major | extra]) + value.to_bytes(size, "big")
    raise ValueError(f"{value} is no token id")


def compare(prompts: Sequence[Sequence[int]], vocab_size: int, block_size: int, rounds: int) -> dict[str, Any]:
    """All arms over the same prompts, round by round, the one that starts changing."""
    seen, own = with_memo(Memo()), OwnEncoder(vocab_size)
    for ids in [*prompts, *prompts]:
        seen(ids, block_size)
    arms = [
        Arm("cbor2", lambda: lambda ids, size: hashed_blocks(ROOT, tuple(ids), size, "")[1]),
        Arm("new", lambda: with_memo(Memo())),
        Arm("seen", lambda: seen),
        Arm("own", lambda: own.block_hashes),
    ]
    same = True
    for turn in range(rounds):
        found: list[list[bytes]] = []
        for arm in arms if turn % 2 else reversed(arms):
            run, start = arm.begin(), time.thread_time()
            found.append([run(ids, block_size) for ids in prompts])
            arm.seconds.append(time.thread_time() - start)
        same = same and all(one == found[0] for one in found)
    tokens, blocks = sum(map(len, prompts)), sum(len(ids) // block_size for ids in prompts)
    return {"same": same, "blocks": blocks, **_summary(arms, tokens, blocks)}


def with_memo(memo: Memo) -> Hashes:
    """As preprocess hashes, remembering in this one."""
    return lambda ids, size: block_hashes(ids, size, ROOT, seen=memo)


def _summary(arms: Sequence[Arm], tokens: int, blocks: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        arm.name: {
            "us_a_block": round(statistics.median(arm.seconds) / blocks * 1e6, 2) if blocks else "—",
            "us_a_thousand": round(statistics.median(arm.seconds) / tokens * 1e9, 1) if tokens else "—",
        }
        for arm in arms
    }
    library, *others = arms
    for arm in others:
        ratios = [slow / quick for slow, quick in zip(library.seconds, arm.seconds, strict=True)]
        found[arm.name]["ratio"] = round(statistics.median(ratios), 2)
        found[arm.name]["ratios"] = [round(ratio, 2) for ratio in ratios]
    return found


CAPTION = """\
Hashes of a prompt's blocks, on one thread: medians of the rounds.
us/block   microseconds for each block; us/1,000: for 1,000 tokens
cbor2      the library, which remembers nothing
new, seen  preprocess, with prompts that it has never seen, and with those that it remembers
own        an own encoder, from a table of encoded token ids
cbor2/...  how many times as quick as cbor2 the column before is
"""


def table(found: dict[str, dict[str, Any]]) -> Iterable[str]:
    """One line for each kind of prompt and block size, below what the figures are."""
    yield from CAPTION.splitlines()
    yield ""
    over = ["cbor2", "cbor2", "new", "", "seen", "", "own", ""]
    heads = ["us/block", "us/1,000", "us/block", "cbor2/new", "us/block", "cbor2/seen", "us/block", "cbor2/own"]
    for first, line in (("", over), ("prompts, block", heads)):
        yield f"{first:<20} {' '.join(f'{head:>10}' for head in line)}".rstrip()
    for name, row in found.items():
        figures = [row["cbor2"]["us_a_block"], row["cbor2"]["us_a_thousand"]]
        figures += [row[arm][figure] for arm in ("new", "seen", "own") for figure in ("us_a_block", "ratio")]
        same = "" if row["same"] else "  OTHER HASHES"
        yield f"{name:<20} {' '.join(f'{figure:>10}' for figure in figures)}{same}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: `python -m load.hashing --help`."""
    about = "What hashes of a prompt's blocks cost: new, seen, by an own encoder; on one core."
    parser = argparse.ArgumentParser(prog="python -m load.hashing", description=about)
    for name, default, most, what in (
        ("--rounds", 15, 1000, "turns of all arms"),
        ("--prompts", 64, 10_000, "prompts of text"),
        ("--tokens", 512, CONTEXT, "tokens of each of them"),
        ("--long", 32_768, 1_000_000, "tokens of the random prompt"),
    ):
        parser.add_argument(name, type=number(int, 1, most), default=default, help=f"{what} ({default:,}; to {most:,})")
    chosen = parser.parse_args(arguments)
    bench, source = Bench(bundled_files(), 0), random.Random(1)
    texts = bench.completions(chosen.prompts, chosen.tokens).texts
    kinds: dict[str, tuple[list[list[int]], int]] = {
        "text": ([bench.plain.encode(text).ids for text in texts], bench.plain.get_vocab_size()),
        "random": ([[source.randrange(LARGE_VOCABULARY) for _ in range(chosen.long)]], LARGE_VOCABULARY),
    }
    found = {
        f"{name}, {block_size}": compare(prompts, vocab_size, block_size, chosen.rounds)
        for name, (prompts, vocab_size) in kinds.items()
        for block_size in (16, 32)
    }
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
