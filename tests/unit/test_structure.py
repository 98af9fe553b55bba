"""The promises of the layout that the import linter does not hold, or would hold too late."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "broker", "stages", "load")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
CPU_STAGES = ("edge", "preprocess", "schedule", "postprocess")
# A file that is named so has no idea of its own, and grows.
NAMELESS = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}


def imports(path: Path) -> Iterator[str]:
    """Yield the top-level name of everything that a file imports, within functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def importers(*names: str) -> set[str]:
    """Return the files, from the root, that import one of the names."""
    return {path.relative_to(ROOT).as_posix() for path in SOURCES if not set(names).isdisjoint(imports(path))}


def test_imports_point_downwards() -> None:
    """load, stages → broker → schemas: nothing imports what stands above it, and all of it can be split off."""
    for depth, package in enumerate(PACKAGES):
        above = importers(*PACKAGES[depth + 1 :], "headrace")
        assert not {path for path in above if path.startswith(f"{package}/")}


def test_only_the_broker_speaks_nats() -> None:
    """A stage is plain logic: it never sees a NATS message."""
    assert all(path.startswith("broker/") for path in importers("nats", "nkeys"))


def test_only_the_engine_side_knows_vllm_and_torch() -> None:
    """What runs on a CPU stage needs neither vLLM nor torch installed."""
    allowed = ("stages/inference/", "load/simulated_gpu.py")
    assert all(path.startswith(allowed) for path in importers("vllm", "torch"))


@pytest.mark.parametrize("stage", CPU_STAGES)
def test_a_cpu_stage_loads_no_torch(stage: str) -> None:
    """Not by a detour either: importing every file of the stage leaves vLLM and torch unloaded."""
    folder = ROOT / "stages" / stage
    modules = [f"stages.{stage}.{path.stem}" for path in folder.glob("*.py") if not path.stem.startswith("__")]
    code = f"import sys, importlib; [importlib.import_module(m) for m in {modules}]; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


def test_files_are_named_after_one_idea() -> None:
    """No utils, helpers, base or manager: the name says what is inside."""
    assert not {str(path) for path in SOURCES if not NAMELESS.isdisjoint(path.stem.split("_"))}
