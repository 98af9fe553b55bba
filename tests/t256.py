"""Tokenizers small enough to reason about, built here: nothing to download."""

# pyright: reportUnknownMemberType=false
# (the library types its lists of added tokens only in part)

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

IM_END, IM_START = 256, 257


def byte_character(byte: int) -> str:
    """The character by which a byte-level vocabulary writes `byte`."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if byte in printable:
        return chr(byte)
    others = [each for each in range(256) if each not in printable]
    return chr(0x100 + others.index(byte))


def t256() -> Tokenizer:
    """T256: byte-level BPE of the 256 bytes (id = byte), no merges, `<|im_end|>` = 256, `<|im_start|>` = 257."""
    tokenizer = Tokenizer(models.BPE(vocab={byte_character(byte): byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in ("<|im_end|>", "<|im_start|>")]
    )
    return tokenizer


WORDS = ["▁", "▁leading", "▁x", "x", "»", "a", "▁hi", "\ufffd", "好"]


def sentencepiece() -> Tokenizer:
    """As Llama's: `<s>` = 0, bytes from 1 on (`<0x00>` = 1), then `WORDS`. Its decoder eats one leading space."""
    pieces = ["<s>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
    tokenizer = Tokenizer(
        models.BPE(vocab={piece: index for index, piece in enumerate(pieces)}, merges=[], byte_fallback=True)
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    return tokenizer


def byte_token(byte: int) -> int:
    """The id of a byte in `sentencepiece()`."""
    return byte + 1


def word(piece: str) -> int:
    """The id of one of `WORDS` in `sentencepiece()`."""
    return 257 + WORDS.index(piece)
