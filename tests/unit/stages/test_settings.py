"""Settings: from text to values, all errors at once, no secret shown."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from stages.settings import SettingsError, load_settings, setting, shown, unknown_variables


@dataclass(frozen=True)
class Sample:
    """One of every type that a setting may have."""

    SECTION: ClassVar[str] = "sample"

    threads: int = setting(2, "Threads.", minimum=1, maximum=8)
    ratio: float = setting(0.5, "Ratio.", minimum=0)
    eager: bool = setting(False, "Eager.")
    name: str = setting("a", "Name.", choices=("a", "b"))
    kind: Literal["x", "y"] = setting("x", "Kind.")
    folder: Path = setting(Path("/tmp"), "Folder.")
    models: tuple[str, ...] = setting((), "Models.")
    tags: list[str] = setting([], "Tags.")
    options: dict[str, str] = setting({}, "Options.")
    limit: int | None = setting(None, "Limit.", minimum=1)
    password: str = setting("", "Password.", secret=True)
    pin: int = setting(0, "Pin.", secret=True)
    url: str = setting("nats://u:secret@host:4222", "Address.")


def loaded(environ: dict[str, str], overrides: dict[str, str] | None = None) -> Sample:
    return load_settings(Sample, {f"HEADRACE_SAMPLE_{name}": text for name, text in environ.items()}, overrides)


def test_nothing_set_gives_the_defaults() -> None:
    """Every setting has a default; an empty variable counts as not set."""
    assert loaded({}) == Sample()
    assert loaded({"THREADS": ""}) == Sample()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("threads", "8", 8),
        ("threads", "1", 1),
        ("ratio", "1e-3", 0.001),
        ("eager", "Yes", True),
        ("eager", "0", False),
        ("name", "b", "b"),
        ("kind", "y", "y"),
        ("folder", "/srv/x", Path("/srv/x")),
        ("models", "a, b", ("a", "b")),
        ("models", '["a,b", "c"]', ("a,b", "c")),
        ("tags", "a", ["a"]),
        ("options", "a=1,b=x=y", {"a": "1", "b": "x=y"}),
        ("options", '{"a": 1, "b": "x,y", "c": {"d": true}}', {"a": "1", "b": "x,y", "c": '{"d": true}'}),
        ("limit", "none", None),
        ("limit", "7", 7),
    ],
)
def test_text_becomes_a_value_of_the_field_s_type(name: str, text: str, value: object) -> None:
    """From a variable and from `--set` alike."""
    assert getattr(loaded({name.upper(): text}), name) == value
    assert getattr(loaded({}, {name: text}), name) == value


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("threads", "0", "a whole number from 1 to 8"),
        ("threads", "9", "a whole number from 1 to 8"),
        ("threads", "2.5", "a whole number"),
        ("threads", "\u0663", "a whole number from 1 to 8"),
        ("threads", "0_3", "a whole number from 1 to 8"),
        ("ratio", "\u0663", "a number, at least 0"),
        ("ratio", "1_000", "a number, at least 0"),
        ("ratio", "infinity", "a number, at least 0"),
        ("ratio", "-1", "a number, at least 0"),
        ("ratio", "nan", "a number, at least 0"),
        ("eager", "maybe", "true or false"),
        ("name", "c", "one of a, b"),
        ("kind", "z", "one of x, y"),
        ("options", "a", "a map"),
        ("options", '{"a": ', "a map"),
        ("options", "[1]", "a map"),
        ("limit", "0", "a whole number, at least 1 or none"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name: str, text: str, allowed: str) -> None:
    """The message names the variable, the value found and what it may be."""
    with pytest.raises(SettingsError) as caught:
        loaded({name.upper(): text})
    message = str(caught.value)
    assert f"HEADRACE_SAMPLE_{name.upper()}=" in message
    assert text in message
    assert allowed in message


def test_all_errors_come_at_once() -> None:
    """Whoever sets up a machine corrects everything in one go."""
    with pytest.raises(SettingsError) as caught:
        loaded({"THREADS": "many", "EAGER": "perhaps"}, {"threds": "3", "ratio": "x"})
    assert [problem.name for problem in caught.value.problems] == [
        "--set threds",
        "HEADRACE_SAMPLE_THREADS",
        "--set ratio",
        "HEADRACE_SAMPLE_EAGER",
    ]
    assert "did you mean threads?" in str(caught.value)


def test_set_wins_over_the_variable() -> None:
    """What is typed for this one start is meant."""
    assert loaded({"THREADS": "4"}, {"threads": "3"}).threads == 3


def test_secrets_are_never_shown() -> None:
    """Neither in the log of the start, nor in an error, nor inside a URL."""
    values = shown(Sample(password="hush"))
    assert "hush" not in str(values)
    assert "secret" not in str(values)
    assert values["url"] == "nats://***@host:4222"
    with pytest.raises(SettingsError) as caught:
        loaded({"PIN": "hush"})
    assert "hush" not in str(caught.value)


def test_a_mistyped_variable_is_pointed_at() -> None:
    """It is no error, since Kubernetes adds variables of this form, but it is not silent either."""
    hints = unknown_variables(Sample, {"HEADRACE_SAMPLE_THREDS": "1", "HEADRACE_OTHER_X": "1"})
    assert hints == ["HEADRACE_SAMPLE_THREDS is no setting, did you mean HEADRACE_SAMPLE_THREADS?"]


def test_a_field_without_help_is_no_setting() -> None:
    """Every setting is documented: the page of settings is made of their help."""

    @dataclass(frozen=True)
    class Careless:
        threads: int = 1

    with pytest.raises(TypeError, match="threads is no setting"):
        load_settings(Careless, {})


def test_a_class_can_check_its_fields_against_each_other() -> None:
    """A ValueError from `__post_init__` is a wrong setting like any other."""

    @dataclass(frozen=True)
    class Pair:
        SECTION: ClassVar[str] = "pair"
        low: int = setting(1, "Low.")
        high: int = setting(2, "High.")

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low must not be above high")

    with pytest.raises(SettingsError, match="low must not be above high"):
        load_settings(Pair, {"HEADRACE_PAIR_LOW": "3"})
