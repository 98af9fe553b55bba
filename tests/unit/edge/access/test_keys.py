"""Who may come in: the file of keys, the limits of a key, and the command that makes one."""

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schemas.model import ModelCard
from schemas.ticket import EngineSampling
from stages.cli import app
from stages.edge.access.callers import Caller
from stages.edge.access.doorkeeper import Doorkeeper
from stages.edge.access.keys import LOOK_EVERY_S, KeyEntry, KeysError, KeysFile, add_key, digest_of, new_key, read_keys
from stages.edge.http.errors import ApiError

TINY = ModelCard(
    slug="org-tiny",
    name="org/tiny",
    aliases=["tiny"],
    engine="simulated",
    context_length=8,
    vocab_size=8,
    eos_ids=[1],
    defaults=EngineSampling(max_tokens=0),
)


def file_of(tmp_path: Path, *entries: KeyEntry) -> Path:
    path = tmp_path / "keys.toml"
    for entry in entries:
        add_key(path, entry)
    return path


class Clock:
    """Seconds as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_was_added_is_read_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    """Comments and order are a person's; only digests are in the file, which nobody else may read."""
    key, other = new_key(), new_key()
    path = file_of(tmp_path, KeyEntry(name="alice", sha256=digest_of(key), tenant="a", models=["tiny"], concurrent=2))
    path.write_text(f"# keys of the team\n{path.read_text()}# end\n")
    add_key(path, KeyEntry(name='b"ob\\', sha256=digest_of(other)))
    assert read_keys(path) == {
        digest_of(key): Caller("a", "alice", frozenset({"tiny"}), concurrent=2),
        digest_of(other): Caller("default", 'b"ob\\'),
    }
    assert path.read_text().startswith("# keys of the team\n")
    assert "# end" in path.read_text()
    assert key not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["smile 😀", "\x7f del", "nul \x00", "tab\t", 'q"uote\\', "Zoë", "\u2028"])
def test_any_name_can_be_read_back(tmp_path: Path, name: str) -> None:
    """What is written is what is read; a name that TOML cannot hold is refused, and the file stays as it was."""
    path = file_of(tmp_path, KeyEntry(name="alice", sha256=digest_of("a")))
    add_key(path, KeyEntry(name=name, sha256=digest_of("b"), models=["é 😀"]))
    assert read_keys(path)[digest_of("b")] == Caller("default", name, frozenset({"é 😀"}))


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    """A lone surrogate (a shell's bytes that are no UTF-8), a key that is there: the file stays as it was."""
    path = file_of(tmp_path, KeyEntry(name="alice", sha256=digest_of("a")))
    before = path.read_bytes()
    for entry in (KeyEntry(name="\udc80", sha256=digest_of("b")), KeyEntry(name="bob", sha256=digest_of("a"))):
        with pytest.raises(KeysError, match=str(path)):
            add_key(path, entry)
    assert path.read_bytes() == before
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(f"{path.name}.")]


def test_keys_made_at_once_are_all_there(tmp_path: Path) -> None:
    """Each waits for the others: nobody puts back the file as it was before somebody else's key."""
    path = tmp_path / "keys.toml"

    def add(number: int) -> None:
        add_key(path, KeyEntry(name=f"k{number}", sha256=digest_of(f"{number}")))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    assert set(read_keys(path)) == {digest_of(f"{n}") for n in range(24)}


@pytest.mark.parametrize(
    "text",
    [
        "keys = 1",
        "[[keys]]\nname = 'a'",
        "[[keys]]\nname = 'a'\nsha256 = 'abc'",
        f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\ntenant = 'a.b'",
        f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\nmodel = ['x']",
        f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\nconcurrent = 0",
        f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\n[[keys]]\nname = 'b'\nsha256 = '{'0' * 64}'",
        "[[keys",
        f"x = {'[' * 5000}",
        f"x = {'1' * 5000}",
    ],
    ids=range(10),
)
def test_a_file_with_a_mistake_is_refused_whole(tmp_path: Path, text: str) -> None:
    """A wrong tenant, a misspelt limit, a key twice: better no start than another tenant's bill."""
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(KeysError, match=str(path)):
        read_keys(path)


def test_a_changed_file_counts_and_a_broken_one_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New keys work and removed ones stop without a restart; a file that broke, or is gone, opens nothing."""
    clock = Clock()
    monkeypatch.setattr("stages.edge.access.keys.time.monotonic", clock)
    path = file_of(tmp_path, KeyEntry(name="alice", sha256=digest_of("one")))
    keys = KeysFile(path)
    assert keys.caller_of("one") == (digest_of("one"), Caller(name="alice"))
    assert keys.caller_of("two") is None
    assert keys.caller_of("") is None
    add_key(path, KeyEntry(name="bob", sha256=digest_of("two")))
    clock.now += LOOK_EVERY_S
    assert keys.caller_of("two") is not None
    path.write_text(path.read_text().replace(digest_of("one"), digest_of("other")))
    clock.now += LOOK_EVERY_S
    assert keys.caller_of("one") is None
    path.write_text("broken")
    clock.now += LOOK_EVERY_S
    assert keys.caller_of("two") is not None
    path.unlink()
    clock.now += LOOK_EVERY_S
    assert keys.caller_of("two") is not None


class FixedKeys:
    """Two keys, without a file."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def caller_of(self, key: str) -> tuple[str, Caller] | None:
        return (key, self._caller) if key in ("k1", "k2") else None


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic k1", "k1", "Bearer nobody", "Bearer k1 k2"])
def test_who_has_no_key_is_told_how(header: str) -> None:
    """401 in the envelope, with the scheme that is wanted."""
    with pytest.raises(ApiError) as caught:
        Doorkeeper(FixedKeys(Caller())).admit(header, [])
    assert caught.value.status == 401
    assert (caught.value.headers or {})["WWW-Authenticate"].startswith("Bearer")
    assert caught.value.body["error"]["code"] in ("missing_api_key", "invalid_api_key")


def test_without_keys_everybody_is_the_default_tenant() -> None:
    """Whatever the header says."""
    assert Doorkeeper(None).admit("Bearer anything", []) == Caller("default")


def test_a_key_has_so_many_requests_at_once() -> None:
    """A request that ends makes room; another key has its own limit."""
    doorkeeper = Doorkeeper(FixedKeys(Caller("a", concurrent=2)))
    ends: list[list[object]] = [[], [], []]
    for end in ends[:2]:
        doorkeeper.admit("Bearer k1", end)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ApiError) as caught:
        doorkeeper.admit("bearer k1", [])
    assert (caught.value.status, (caught.value.headers or {})["Retry-After"]) == (429, "1")
    doorkeeper.admit("Bearer k2", [])
    for leave in ends[0]:
        leave()  # pyright: ignore[reportCallIssue]
    doorkeeper.admit("Bearer k1", ends[2])  # pyright: ignore[reportArgumentType]


def test_a_key_has_so_many_requests_a_minute() -> None:
    """Beyond that 429 says when the next one may come, and then it may."""
    clock = Clock()
    doorkeeper = Doorkeeper(FixedKeys(Caller("a", requests_per_minute=6)), clock)
    for _ in range(6):
        doorkeeper.admit("Bearer k1", [])
    with pytest.raises(ApiError) as caught:
        doorkeeper.admit("Bearer k1", [])
    wait_s = int((caught.value.headers or {})["Retry-After"])
    assert wait_s == 10
    doorkeeper.admit("Bearer k1", [], asks=False)  # who polls for what was asked
    clock.now += wait_s
    doorkeeper.admit("Bearer k1", [])
    with pytest.raises(ApiError):
        doorkeeper.admit("Bearer k1", [])


@pytest.mark.parametrize(
    ("models", "may"), [(None, True), ({"tiny"}, True), ({"org/tiny"}, True), ({"org-tiny"}, True), ({"x"}, False)]
)
def test_a_key_s_models_are_named_as_anybody_names_them(models: set[str] | None, may: bool) -> None:
    """By name, alias or slug."""
    assert Caller(models=None if models is None else frozenset(models)).may_use(TINY) is may


def test_keys_new_prints_the_key_once_and_keeps_its_digest(tmp_path: Path) -> None:
    """What is printed opens the door; the file can be given by its setting, too."""
    path = tmp_path / "keys.toml"
    arguments = [
        "keys",
        "new",
        "--name",
        "alice",
        "--tenant",
        "team-a",
        "--model",
        "tiny",
        "--requests-per-minute",
        "60",
    ]
    done = CliRunner().invoke(app, [*arguments, "--file", str(path)])
    assert done.exit_code == 0, done.output
    (key,) = re.findall(r"^hr-\S+$", done.stdout, re.MULTILINE)
    expected = Caller("team-a", "alice", frozenset({"tiny"}), requests_per_minute=60)
    assert KeysFile(path).caller_of(key) == (digest_of(key), expected)
    done = CliRunner().invoke(
        app, ["keys", "new", "--name", "bob"], env={**os.environ, "HEADRACE_EDGE_KEYS_FILE": str(path)}
    )
    assert done.exit_code == 0, done.output
    assert len(read_keys(path)) == 2


def test_keys_new_says_what_is_wrong(tmp_path: Path) -> None:
    """No file named, a tenant that cannot stand in a subject, a name twice: nothing is written."""
    path = tmp_path / "keys.toml"
    invoke = CliRunner().invoke
    assert invoke(app, ["keys", "new", "--name", "a"], env={"HEADRACE_EDGE_KEYS_FILE": ""}).exit_code == 2
    assert invoke(app, ["keys", "new", "--name", "a", "--tenant", "a.b", "--file", str(path)]).exit_code == 2
    assert not path.exists()
    assert invoke(app, ["keys", "new", "--name", "a", "--file", str(path)]).exit_code == 0
    again = invoke(app, ["keys", "new", "--name", "a", "--file", str(path)])
    assert again.exit_code == 2
    assert len(read_keys(path)) == 1
