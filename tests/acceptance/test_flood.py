"""One tenant asks for six times what there is: it alone is refused, and all that was accepted is answered."""

from collections.abc import Iterator

import pytest

from load.flood import Findings, measure, pipeline_arguments
from load.pipeline import Pipeline
from tests.acceptance.conftest import running

pytestmark = pytest.mark.timeout(120)

SECONDS, TIMES = 2.0, 6.0


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Two workers of four slots, short queues."""
    with running(tmp_path_factory.mktemp("flood"), pipeline_arguments()) as pipeline:
        yield pipeline


async def test_the_surplus_is_its_own(small: Pipeline) -> None:
    """The flood's surplus is refused as `busy`; the quiet tenant is never refused; every answer is right."""
    found: Findings = await measure(small.url, SECONDS, TIMES)
    assert found.right, found
    assert found.flood.refused["busy"] > found.flood.asked / 2, found.flood.shown()
    assert set(found.flood.refused) == {"busy"}
    assert found.beside.asked >= 5
    assert not found.beside.refused
