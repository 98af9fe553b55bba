"""Under which message id a request is stored: one that only its sender can say."""

from pathlib import Path

from broker.options import BrokerOptions
from broker.request_names import RequestNames


def named(**options: str) -> str:
    return RequestNames(BrokerOptions(**options)).of("acme.r1")


def test_it_is_the_same_for_who_has_the_same_secret(tmp_path: Path) -> None:
    """A retry by another process of the tenant is one; another tenant that knows the id cannot say the name."""
    seeds = [tmp_path / name for name in "abc"]
    for seed, text in zip(seeds, ["SUA1", "SUA1\n", "SUB2"], strict=True):
        seed.write_text(text)
    first, again, other = (named(nkey_seed=str(seed)) for seed in seeds)
    assert first == again != other
    assert first.startswith("acme.r1.")
    assert len(first) == len("acme.r1.") + 32
    assert "SUA1" not in first


def test_other_secrets_count_likewise(tmp_path: Path) -> None:
    """A credentials file, a password, a token."""
    file = tmp_path / "acme.creds"
    file.write_text("SUA1")
    names = {named(credentials=str(file)), named(user="a", password="x"), named(token="y")}
    assert len(names) == 3
    assert "acme.r1" not in names


def test_without_a_secret_it_is_the_key() -> None:
    """Where everybody may connect everybody is trusted, and other clients can say the same."""
    assert named() == "acme.r1"
