"""All sections of one process together, and the page that describes them."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from broker.topology import TopologySettings
from stages.configuration_page import PAGE, page
from stages.sections import all_sections, load_stage_settings, split_overrides
from stages.settings import SettingsError, settings_of, variable
from stages.topology_settings import TopologyLimits

ROOT = Path(__file__).parents[3]


def test_docs_configuration_is_current() -> None:
    """docs/configuration.md says what the code says; `python -m stages.settings` writes it."""
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page()


def test_no_two_settings_have_one_variable() -> None:
    """Every variable means one thing."""
    names = [variable(cls, name) for cls in all_sections() for name in settings_of(cls)]
    assert len(names) == len(set(names))


def test_errors_of_all_sections_come_at_once() -> None:
    """The stage's own settings, the broker's and the process's in one message."""
    environ = {"HEADRACE_GRACE_S": "x", "HEADRACE_HEALTH_PORT": "70000"}
    with pytest.raises(SettingsError) as caught:
        load_stage_settings("schedule", {"no_such": "1", "nowhere.x": "1"}, environ)
    names = {problem.name for problem in caught.value.problems}
    assert names == {"HEADRACE_GRACE_S", "HEADRACE_HEALTH_PORT", "--set no_such", "--set nowhere.x"}


def test_the_streams_limits_are_the_broker_s_own() -> None:
    """Every limit that the broker knows can be set, under its name and with its default."""
    assert TopologyLimits().settings() == TopologySettings()
    assert set(settings_of(TopologyLimits)) == {field.name for field in dataclasses.fields(TopologySettings)}


def test_overrides_name_a_section_or_mean_the_stage() -> None:
    """`--set field=…` is the stage's own, `--set section.field=…` another's."""
    found = split_overrides({"tick_s": "1", "nats.url": "nats://h"}, "schedule")
    assert found == {"schedule": {"tick_s": "1"}, "nats": {"url": "nats://h"}}


def test_settings_modules_are_light() -> None:
    """Reading every section loads no engine, no tokenizer, no broker client: a wrong setting is told in an instant."""
    code = (
        "import sys; from stages.sections import all_sections; all_sections();"
        "print([n for n in ('nats','torch','vllm','transformers','tokenizers','opentelemetry') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
