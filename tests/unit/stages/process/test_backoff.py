"""How long a process that died waits."""

from stages.process.backoff import Backoff


def test_it_doubles_to_a_limit_and_starts_anew_after_a_while() -> None:
    """Quick at first, gentle with what keeps failing, quick again for what had run well."""
    backoff = Backoff(first_s=0.2, most_s=10, reset_after_s=30)
    waits = [backoff.after(0.1) for _ in range(8)]
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert backoff.after(31) == 0.2
    assert backoff.after(0.1) == 0.4
