"""A CPU step stays short: the budget follows the pace of the machine."""

from stages.inference.step_budget import StepBudget, share_of_one


def test_slow_steps_shrink_it_at_once() -> None:
    """Twice the target halves it, down to the least."""
    budget = StepBudget(500, least=64, most=1024, target_s=0.2)
    assert budget.tokens == 480
    budget.stepped(0.41, prefilling=True)
    assert budget.tokens == 224
    for _ in range(5):
        budget.stepped(5.0, prefilling=False)
    assert budget.tokens == 64


def test_it_grows_only_where_a_prefill_could_use_more() -> None:
    """Short steps of decoding say nothing about prefill; up to the most."""
    budget = StepBudget(64, least=64, most=128, target_s=0.2)
    budget.stepped(0.01, prefilling=False)
    assert budget.tokens == 64
    budget.stepped(0.1, prefilling=True)
    assert budget.tokens == 96
    budget.stepped(0.3, prefilling=True)
    assert budget.tokens == 96
    for _ in range(9):
        budget.stepped(0.1, prefilling=True)
    assert budget.tokens == 128


def test_it_settles_below_the_limit() -> None:
    """On a machine with a steady pace, growing contexts included, no step takes more than 0.5 s for long."""
    budget = StepBudget(1024, least=64, most=1024, target_s=0.2)
    slow = 0
    for step in range(200):
        seconds = budget.tokens / 500 * (1 + step / 200)
        slow += seconds > 0.5
        budget.stepped(seconds, prefilling=True)
    assert slow <= 3


def test_the_share_of_one_prompt() -> None:
    """Half of a step, in whole blocks; one at least."""
    assert [share_of_one(tokens, 16) for tokens in (8192, 100, 31, 1)] == [4096, 48, 16, 16]
