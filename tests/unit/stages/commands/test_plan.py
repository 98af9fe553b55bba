"""From what was typed to the processes of `headrace up`."""

import json
from pathlib import Path

import pytest

from stages.commands.plan import UpOptions, limits, patterns, plan
from stages.sections import present_stages
from stages.settings import SettingsError


def test_one_process_of_every_stage_unless_asked_otherwise() -> None:
    """In the order of a request's way; a number of replicas for one stage, none for another."""
    names = [spec.name for spec in plan(UpOptions(), {})]
    assert names == [f"{stage}.0" for stage in present_stages()]
    specs = plan(UpOptions(replicas={"schedule": 2, "postprocess": 0}), {})
    stages = [spec.stage for spec in specs]
    assert stages.count("schedule") == 2
    assert "postprocess" not in stages


def test_every_model_has_workers_of_its_own() -> None:
    """Replicas of inference count for each model."""
    options = UpOptions(models=("a/one", "b/two"), engine="simulated", replicas={"inference": 2})
    workers = [spec for spec in plan(options, {}) if spec.stage == "inference"]
    assert [spec.name for spec in workers] == ["inference.0", "inference.1", "inference.2", "inference.3"]
    assert [spec.environ["HEADRACE_INFERENCE_MODEL"] for spec in workers] == ["a/one", "b/two"] * 2
    assert {spec.environ["HEADRACE_INFERENCE_ENGINE"] for spec in workers} == {"simulated"}


def test_engine_options_reach_the_engine_alone(tmp_path: Path) -> None:
    """As JSON, so that any value survives; a file by its full path, whatever folder the worker runs in."""
    options = UpOptions(
        engine_options={"tensor_parallel_size": "4", "override": '{"a": "b,c"}'},
        engine_options_file=tmp_path / "o.json",
    )
    specs = {spec.stage: spec.environ for spec in plan(options, {})}
    given = json.loads(specs["inference"]["HEADRACE_INFERENCE_ENGINE_OPTIONS"])
    assert given == {"tensor_parallel_size": "4", "override": '{"a": "b,c"}'}
    assert specs["inference"]["HEADRACE_INFERENCE_ENGINE_OPTIONS_FILE"] == str(tmp_path / "o.json")
    assert "HEADRACE_INFERENCE_ENGINE_OPTIONS" not in specs["schedule"]


def test_set_gives_a_stage_s_setting_to_its_processes() -> None:
    """`stage.field`, and `process.field` for all of them."""
    specs = plan(UpOptions(overrides={"schedule.window": "7", "process.grace_s": "3", "topology.partitions": "2"}), {})
    environ = next(spec.environ for spec in specs if spec.stage == "schedule")
    assert environ == {"HEADRACE_SCHEDULE_WINDOW": "7", "HEADRACE_GRACE_S": "3"}


@pytest.mark.parametrize(
    ("replicas", "overrides", "environ", "expected"),
    [
        ({}, {}, {}, 2),
        ({"postprocess": 5}, {}, {}, 5),
        ({"postprocess": 1, "schedule": 7}, {}, {}, 2),
        ({"postprocess": 5}, {"topology.partitions": "3"}, {}, 3),
        ({"postprocess": 5}, {}, {"HEADRACE_TOPOLOGY_PARTITIONS": "4"}, 4),
    ],
)
def test_no_postprocess_stays_without_a_partition(
    replicas: dict[str, int], overrides: dict[str, str], environ: dict[str, str], expected: int
) -> None:
    """Unless somebody says how many partitions there are: then that counts."""
    assert limits(UpOptions(replicas=replicas, overrides=overrides), environ).partitions == expected


def test_everything_wrong_is_said_at_once_and_before_anything_starts() -> None:
    """Names and values, of the command line and of the environment, each once."""
    overrides = {"schedule.window": "many", "schedule.windo": "1", "nowhere.x": "1", "window": "1"}
    options = UpOptions(replicas={"scheduler": 2}, overrides=overrides, engine="magic")
    with pytest.raises(SettingsError) as caught:
        plan(options, {"HEADRACE_GRACE_S": "x"})
    assert sorted(problem.name for problem in caught.value.problems) == [
        "--engine",
        "--replicas scheduler",
        "--set nowhere.x",
        "--set schedule.windo",
        "--set schedule.window",
        "--set window",
        "HEADRACE_GRACE_S",
    ]


def test_an_error_names_the_place_where_the_value_stands() -> None:
    """A variable where it was a variable, an option where it was typed: `--set process.…` too."""
    with pytest.raises(SettingsError) as caught:
        plan(UpOptions(overrides={"process.grace_s": "x"}), {"HEADRACE_INFERENCE_ENGINE": "magic"})
    assert {problem.name for problem in caught.value.problems} == {"--set process.grace_s", "HEADRACE_INFERENCE_ENGINE"}


def test_health_ports_count_up() -> None:
    """One variable for all would be one port for all."""
    specs = plan(UpOptions(), {"HEADRACE_HEALTH_PORT": "9000"})
    ports = [spec.environ["HEADRACE_HEALTH_PORT"] for spec in specs]
    assert ports == [str(9000 + number) for number in range(len(specs))]


@pytest.mark.parametrize("port", ["\u00b3", "\u0663", "1_0", "x"])
def test_a_health_port_that_is_no_number_is_named(port: str) -> None:
    """As any other setting, whatever Python takes for a digit."""
    with pytest.raises(SettingsError, match="HEADRACE_HEALTH_PORT="):
        plan(UpOptions(), {"HEADRACE_HEALTH_PORT": port})


def test_of_each_stage_one_more_can_be_started() -> None:
    """Also where none was at the start, except for an edge: its port is found then. A model's workers have its name."""
    options = UpOptions(models=("a/one", "b/two"), engine="simulated", replicas={"inference": 0, "edge": 0})
    found = patterns(options, {}, plan(options, {}))
    assert list(found) == ["preprocess", "schedule", "inference:a-one", "inference:b-two", "postprocess"]
    assert found["inference:b-two"].environ["HEADRACE_INFERENCE_MODEL"] == "b/two"
    one = UpOptions(replicas={"edge": 1})
    told = [spec.with_more({"HEADRACE_EDGE_PORT": "1"}) for spec in plan(one, {})]
    assert list(patterns(one, {}, told)) == list(present_stages())
    assert patterns(one, {}, told)["edge"].environ["HEADRACE_EDGE_PORT"] == "1"


def test_a_model_in_a_folder_is_named_after_it(tmp_path: Path) -> None:
    """As its workers will name it; the simulated engine looks at no folder."""
    (tmp_path / "m.1").mkdir()
    models = (str(tmp_path / "m.1"), "org/b")
    assert {spec.model for spec in plan(UpOptions(models=models), {})} == {"", "m-1", "org-b"}
    simulated = {spec.model for spec in plan(UpOptions(models=models, engine="simulated"), {})}
    assert "m-1" not in simulated


def test_settings_of_what_starts_later_are_wrong_now() -> None:
    """Not when there is work for it."""
    options = UpOptions(engine="magic", replicas={"inference": 0})
    with pytest.raises(SettingsError, match="--engine"):
        plan(options, {})


def test_a_demo_needs_one_of_each() -> None:
    """It would wait for its answer for ever."""
    with pytest.raises(SettingsError, match="--replicas inference=0: must be at least 1: the demo asks a question"):
        plan(UpOptions(demo=True, replicas={"inference": 0, "edge": 0}), {})
