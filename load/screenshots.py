"""Pictures of the live page, light and dark, of a real pipeline under load: `python -m load.screenshots [FOLDER]`.

Needs Chromium and the packages for development. One worker has the bundled model, three are simulated.
"""

import asyncio
import contextlib
import io
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from random import Random
from typing import Literal

import httpx
from PIL import Image
from playwright.async_api import Page, async_playwright

from load.chromium import browser_path, flags
from load.pipeline import ROOT, Pipeline
from load.workload.words import WORDS

IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1280, 900
CURVES_S = 60.0
"""Until the curves have something to show."""

STAGES = ("edge=1", "preprocess=2", "schedule=2", "postprocess=2")
WORKERS = 3
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
MODEL = "simulated-70b"
SIMULATED = {"engine": "simulated", "served_name": MODEL, "slots": "16", "simulated_step_ms": "35"}
PROMPT = "Explain in three sentences how a water wheel works."
MOST_CLIENTS = 84


def main() -> int:
    """Exit status 1 without a browser."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    if not browser_path():
        print("no Chromium on the path", file=sys.stderr)
        return 1
    arguments = [argument for stage in STAGES for argument in ("--replicas", stage)]
    arguments += ["--set", "inference.slots=4", "--set", "topology.partitions=4"]
    with tempfile.TemporaryDirectory() as scratch, Pipeline(Path(scratch), arguments, ready_s=180) as pipeline:
        for _ in range(WORKERS):
            pipeline.start_stage("inference", **SIMULATED)
        asyncio.run(_take(pipeline.api_url.removesuffix("/v1"), folder))
    return 0


async def _take(url: str, folder: Path) -> None:
    async with _load(url), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_path(), args=flags())
        pages: dict[str, Page] = {}
        for scheme in SCHEMES:
            pages[scheme] = await browser.new_page(
                color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1.5
            )
            await pages[scheme].goto(url)
        await asyncio.sleep(CURVES_S)
        for scheme, page in pages.items():
            await page.bring_to_front()
            await _ask(page)
            await _save(page, folder / f"live-{scheme}.png")
        await browser.close()


async def _ask(page: Page) -> None:
    """Sends the prompt to the model that really answers, and waits for the whole journey."""
    names = await page.locator("#model option").all_text_contents()
    await page.select_option("#model", next(name for name in names if name != MODEL))
    await page.fill("#prompt", PROMPT)
    await page.click("#send")
    await page.wait_for_selector("#journey .spans", timeout=60_000)
    await page.evaluate("document.activeElement.blur()")
    await page.wait_for_timeout(1500)


async def _save(page: Page, path: Path) -> None:
    """With 256 colours it has a third of the bytes, and nobody sees the difference."""
    picture = Image.open(io.BytesIO(await page.screenshot(full_page=True))).convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path)


@contextlib.asynccontextmanager
async def _load(url: str) -> AsyncGenerator[None]:
    """Clients that ask, wait a while, and ask again; more of them as time goes on."""
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        asking = [asyncio.create_task(_client(client, number)) for number in range(MOST_CLIENTS)]
        try:
            yield
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)


async def _client(client: httpx.AsyncClient, number: int) -> None:
    random = Random(number)
    await asyncio.sleep(number * 0.4)
    while True:
        words = " ".join(random.choices(WORDS, k=random.randrange(20, 600)))
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": words}],
            "max_tokens": random.randrange(20, 260),
        }
        with contextlib.suppress(httpx.HTTPError):
            await client.post("/v1/chat/completions", json=body)
        await asyncio.sleep(random.expovariate(0.8))


if __name__ == "__main__":
    sys.exit(main())
