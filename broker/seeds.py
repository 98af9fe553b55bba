"""Seeds of users' nkeys: made, and read back with nothing taken on trust."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownArgumentType=false
# nkeys comes without types.

import os
from pathlib import Path

import nkeys

from broker.private_files import SecretsError


def new_seed() -> bytes:
    """Of a user's nkey."""
    return nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)


def public_key(seed: Path) -> str:
    """Raises `SecretsError` for what is no user's seed."""
    try:
        text = seed.read_bytes().strip()
        _, raw = nkeys.decode_seed(text)
        # nkeys checks no checksum: one wrong letter would be somebody else's key.
        if nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER) == text:
            return nkeys.from_seed(text).public_key.decode()
    except OSError as error:
        raise SecretsError(f"{seed} cannot be read: {error.strerror}") from error
    except (nkeys.NkeysError, ValueError) as error:
        raise SecretsError(_no_seed(seed)) from error
    raise SecretsError(_no_seed(seed))


def _no_seed(seed: Path) -> str:
    return f"{seed} is no nkey seed of a user: empty, cut off or damaged; without it a new one is made"
