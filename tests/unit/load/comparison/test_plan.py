"""Runs are interleaved: what a machine does for a while meets every arm alike."""

from load.comparison.plan import Job, expected_s, jobs, limit_job
from load.comparison.results import Key
from load.comparison.workloads import WORKLOADS

W1, W3 = WORKLOADS["W1-C64"], WORKLOADS["W3"]
SLOW, TWO = WORKLOADS["h100-W1-C64"], WORKLOADS["h100-W1-C64-gpus2"]
ARMS = {"a": 1, "b": 8}


def test_interleaved() -> None:
    """Repeats are outside, then arms, each started once for all its workloads; each repeat begins with another arm."""
    planned = list(jobs(ARMS, [W1, W3], 2))
    assert [(job.repeat, job.arm) for job in planned] == [(1, "a"), (1, "b"), (2, "b"), (2, "a")]
    assert all(job.workloads == (W1, W3) for job in planned)


def test_another_gpu_is_another_start() -> None:
    """Profile and number of GPUs are given at a start; an arm is left out of what it has too few GPUs for."""
    planned = list(jobs(ARMS, [W1, SLOW, TWO, W3], 1))
    assert [(job.arm, job.profile, job.gpus, len(job.workloads)) for job in planned] == [
        ("a", "fast", 1, 2),
        ("a", "h100-70b", 1, 1),
        ("b", "fast", 1, 2),
        ("b", "h100-70b", 1, 1),
        ("b", "h100-70b", 2, 1),
    ]


def test_other_options_are_another_start() -> None:
    """Options of vLLM that a workload wants for itself are given at a start of its own."""
    traced = WORKLOADS["W4"]
    assert dict(traced.options) == dict(WORKLOADS["W4-limit"].options)
    planned = list(jobs({"a": 1}, [W1, traced, W3], 1))
    assert [[workload.name for workload in job.workloads] for job in planned] == [["W1-C64", "W3"], ["W4"]]
    assert [job.options for job in planned] == [{}, dict(traced.options)]


def test_continued() -> None:
    """What is done is not run again, and an arm with nothing left is not started."""
    done = {Key("a", "W1-C64", "fast", 1), Key("b", "W1-C64", "fast", 1), Key("b", "W3", "fast", 1)}
    assert list(jobs(ARMS, [W1, W3], 1, done)) == [Job(1, "a", (W3,))]


def test_limit() -> None:
    """The limit is measured on the same GPU, with the lengths of the trace."""
    job = limit_job("engine-only", "h100-70b")
    assert (job.arm, job.profile) == ("engine-only", "h100-70b")
    assert job.workloads[0].needs_trace


def test_expected() -> None:
    """More runs take longer, and so does each start."""
    one, two = Job(1, "a", (W1,)), Job(1, "a", (W1, W3))
    assert expected_s([one], 28) < expected_s([two], 28) < expected_s([one, one], 28)
