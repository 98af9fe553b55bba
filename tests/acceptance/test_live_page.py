"""The live page in a real browser, on a pipeline of real processes."""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route, expect, sync_playwright

from broker.free_ports import free_port
from load.chromium import browser_path, flags
from load.pipeline import Pipeline
from stages.edge.access.keys import KeyEntry, add_key, digest_of

pytestmark = [
    pytest.mark.skipif(not browser_path(), reason="no Chromium on the path (Debian: the package chromium)"),
    pytest.mark.timeout(120),
]

STAGES = ["edge", "preprocess", "schedule", "inference", "postprocess"]
QUEUES = ["REQUESTS", "TICKETS", "JOURNAL", "RESULTS"]
JOURNEY = ["preprocess", "schedule", "inference", "postprocess"]
AA = 4.5
"""WCAG 2.1, 1.4.3: the contrast that text has to have."""

CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = rgba(getComputedStyle(each).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgba(getComputedStyle(document.body).backgroundColor);
  };
  const found = [];
  for (const element of document.querySelectorAll('body *')) {
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!(says || element.matches('input, textarea, select')) || !element.checkVisibility()) continue;
    const [one, other] = [light(rgba(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
    found.push([(one + 0.05) / (other + 0.05), element.tagName, element.textContent.slice(0, 40)]);
  }
  return found;
}"""


@dataclass
class Seen:
    """A page, and what went wrong on it: errors, what failed, and what it asked of anybody but its edge."""

    page: Page
    url: str
    wrong: list[str] = field(default_factory=list[str])

    def note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def note_request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.wrong.append(f"asks {request.url}")

    def state(self) -> dict[str, Any]:
        return httpx.get(f"{self.url}/live/state").json()


Opens = Callable[..., Seen]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of this file."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=flags())
        yield browser
        browser.close()


@pytest.fixture
def opens(browser: Browser) -> Iterator[Opens]:
    """Opens the live page of a pipeline, drawn once; at the end nothing may have gone wrong on it."""
    opened: list[Seen] = []

    def open_page(
        pipeline: Pipeline,
        *,
        url: str = "",
        width: int = 1280,
        scheme: Literal["light", "dark"] = "light",
        quietly: bool = True,
        ready: bool = True,
    ) -> Seen:
        url = url or pipeline.api_url.removesuffix("/v1")
        until_it_listens(url)
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce")
        seen = Seen(page, url)
        if quietly:
            page.on("console", seen.note_console)
        page.on("pageerror", lambda error: seen.wrong.append(str(error)))
        page.on("request", seen.note_request)
        opened.append(seen)
        page.goto(url)
        if ready:
            expect(page.locator("#health")).to_have_attribute("data-health", "good", timeout=15_000)
        return seen

    yield open_page
    for seen in opened:
        seen.page.close()
        assert not seen.wrong


def until_it_listens(url: str) -> None:
    """An edge that was just started needs a moment."""
    deadline = time.monotonic() + 20
    while True:
        try:
            httpx.get(f"{url}/live")
            return
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def answered(state: dict[str, Any] | None, route: Route) -> None:
    """In the place of the edge; None: nobody answers."""
    route.abort() if state is None else route.fulfill(json=state)


def ask(page: Page, prompt: str, max_tokens: int) -> None:
    page.fill("#prompt", prompt)
    page.fill("#max-tokens", str(max_tokens))
    page.click("#send")


def test_the_graph_shows_what_the_edge_tells(echo: Pipeline, opens: Opens) -> None:
    """Every stage and queue in the order of a request; numbers are those of `/live/state`."""
    seen = opens(echo)
    graph = seen.page.locator("#graph")
    assert graph.locator(".stage").evaluate_all("all => all.map(each => each.dataset.part)") == STAGES
    assert graph.locator(".queue:not(.grant)").evaluate_all("all => all.map(each => each.dataset.part)") == QUEUES
    ask(seen.page, "one two three", 3)
    expect(seen.page.locator("#journey .spans")).to_be_visible(timeout=10_000)
    expect(graph.locator("[data-part=RESULTS] .number")).not_to_have_text("0", timeout=5_000)
    pipeline = seen.state()["pipeline"]
    for name in QUEUES:
        depth = graph.locator(f"[data-part={name}] .number")
        expect(depth).to_have_text(f"{pipeline['queues'][name]['messages']:,}", timeout=5_000)
    for stage in ("preprocess", "schedule", "postprocess"):
        assert pipeline["replicas"][stage] == 1
        expect(graph.locator(f"[data-part={stage}] .count")).to_have_text("1 replica")
    (worker,) = pipeline["workers"]
    row = seen.page.locator(f"#workers tr[data-worker='{worker['name']}']")
    expect(row).to_contain_text(f"{worker['running']} / {worker['slots']}")


def test_a_prompt_is_answered_and_its_way_is_shown(echo: Pipeline, opens: Opens) -> None:
    """The answer streams; then every stage in order, with its times, the worker, and why there."""
    seen = opens(echo)
    ask(seen.page, "The river feeds the mill.", 64)
    expect(seen.page.locator("#answer")).to_have_text("The river feeds the mill.", timeout=10_000)
    spans = seen.page.locator("#journey tbody tr")
    expect(spans).to_have_count(len(JOURNEY), timeout=10_000)
    assert spans.evaluate_all("all => all.map(each => each.dataset.stage)") == JOURNEY
    for times in spans.evaluate_all("all => all.map(each => [...each.cells].slice(2).map(cell => cell.textContent))"):
        assert all(time.endswith(("ms", "s")) for time in times), times
    worker = seen.state()["pipeline"]["workers"][0]["name"]
    expect(seen.page.locator("#journey .why")).to_contain_text(worker)
    expect(seen.page.locator("#journey .why li").first).to_be_visible()
    assert seen.page.locator("#steps [data-state=done]").count() == len(STAGES) + 1
    slowest = seen.page.locator("#slowest tbody tr")
    expect(slowest.filter(has_text="200 stop").first).to_be_visible(timeout=5_000)
    slowest.first.locator("button").click()
    expect(seen.page.locator("#story[open] .spans")).to_be_visible()


def test_where_a_request_is_while_it_runs(edges: Pipeline, opens: Opens) -> None:
    """It stands at the worker while it generates, in the graph too; stopped, it is cancelled in the engine."""
    seen = opens(edges)
    ask(seen.page, "a long one", 4000)
    expect(seen.page.locator("#steps [data-step=inference]")).to_have_attribute("aria-current", "step", timeout=10_000)
    expect(seen.page.locator("#graph [data-part=inference][data-here]")).to_be_visible()
    expect(seen.page.locator("#workers tbody tr")).to_contain_text("1 /", timeout=5_000)
    expect(seen.page.locator("#slowest tbody tr").filter(has_text="in hand")).to_have_count(1, timeout=5_000)
    seen.page.click("#stop")
    expect(seen.page.locator("#ask-status")).to_contain_text("Stopped")
    expect(seen.page.locator("#workers tbody tr")).to_contain_text("0 /", timeout=5_000)


def test_light_and_dark(echo: Pipeline, opens: Opens) -> None:
    """Both as the reader's system is, and all that is written can be read in either."""
    backgrounds: list[str] = []
    for scheme in ("light", "dark"):
        seen = opens(echo, scheme=scheme)
        ask(seen.page, "hello", 8)
        expect(seen.page.locator("#journey .spans")).to_be_visible(timeout=10_000)
        contrasts: list[list[Any]] = seen.page.evaluate(CONTRASTS)
        assert len(contrasts) > 60
        assert not [each for each in contrasts if each[0] < AA], scheme
        backgrounds.append(seen.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(set(backgrounds)) == 2


@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_screen(echo: Pipeline, opens: Opens, width: int) -> None:
    """Nothing is wider than it, with an answer and a journey on it too."""
    seen = opens(echo, width=width)
    ask(seen.page, "a word that has no end: " + "w" * 200, 300)
    expect(seen.page.locator("#journey .spans")).to_be_visible(timeout=10_000)
    expect(seen.page.locator("#slowest tbody tr").first).to_be_visible(timeout=5_000)
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width


def test_by_keyboard_alone(echo: Pipeline, opens: Opens) -> None:
    """The first stop leads to the prompt; Ctrl+Enter sends it."""
    seen = opens(echo)
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.className") == "skip"
    seen.page.keyboard.press("Enter")
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.id") == "prompt"
    seen.page.keyboard.press("Control+A")
    seen.page.keyboard.type("by hand")
    seen.page.keyboard.press("Control+Enter")
    expect(seen.page.locator("#answer")).to_have_text("by hand", timeout=10_000)


def test_trouble_is_said_and_passes(echo: Pipeline, opens: Opens) -> None:
    """The broker is away, a part may not be seen, the edge itself is gone: each in words; then all is well again."""
    seen = opens(echo, quietly=False)
    health, notice = seen.page.locator("#health-text"), seen.page.locator("#notice")
    state = seen.state()
    away = {**state, "number": 10**6, "trouble": "the broker is away"}
    blind: dict[str, Any] = {
        **state["pipeline"],
        "unseen": {"leases": "the broker does not permit $JS.API.X"},
        "owners": [],
    }
    partly = {**state, "number": 10**6 + 1, "pipeline": blind}
    for answer, word, reason in (
        (away, "Broker away", "The broker is away"),
        (partly, "Partly seen", "$JS.API.X"),
        (None, "No answer", "does not answer"),
    ):
        seen.page.route("**/live/state", partial(answered, answer))
        expect(health).to_have_text(word, timeout=5_000)
        expect(notice).to_contain_text(reason)
        assert seen.page.locator("body[data-stale]").count() == (answer is not partly)
        seen.page.unroute("**/live/state")
    expect(health).to_have_text("All stages there", timeout=5_000)
    expect(notice).to_be_hidden()


def test_where_keys_are_needed(echo: Pipeline, opens: Opens, tmp_path: Path) -> None:
    """The page asks for one and keeps it in its tab alone; a wrong one is refused; it shows its tenant's requests."""
    keys = tmp_path / "keys.toml"
    add_key(keys, KeyEntry(name="k", sha256=digest_of("hr-right"), tenant="team-a", concurrent=1))
    port = free_port()
    echo.start_stage("edge", port=str(port), keys_file=str(keys))
    seen = opens(echo, url=f"http://127.0.0.1:{port}", ready=False, quietly=False)
    page = seen.page
    expect(page.locator("#key-form")).to_be_visible(timeout=10_000)
    expect(page.locator("#health-text")).to_have_text("Needs a key")
    page.fill("#key", "hr-wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#key-hint")).to_contain_text("not known", timeout=5_000)
    page.fill("#key", "hr-right")
    page.keyboard.press("Enter")
    expect(page.locator("#health")).to_have_attribute("data-health", "good", timeout=5_000)
    ask(page, "with a key", 20)
    expect(page.locator("#answer")).to_have_text("with a key", timeout=10_000)
    expect(page.locator("#slowest tbody tr")).to_have_count(1, timeout=5_000)
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 1, ""]
    page.click("#forget")
    expect(page.locator("#key-form")).to_be_visible(timeout=10_000)


def test_a_worker_that_is_killed_shows_as_gone(edges: Pipeline, opens: Opens) -> None:
    """Within seconds, beside the one that is left."""
    seen = opens(edges)
    (first,) = seen.state()["pipeline"]["workers"]
    second = edges.start_stage("inference", engine="simulated")
    rows = seen.page.locator("#workers tbody tr")
    expect(rows).to_have_count(2, timeout=20_000)
    second.send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    gone = seen.page.locator("#workers tr[data-gone]")
    expect(gone).to_have_count(1, timeout=8_000)
    print(f"seen as gone after {time.monotonic() - killed_at:.1f} s")
    expect(gone).to_contain_text("gone")
    assert gone.get_attribute("data-worker") != first["name"]
    expect(rows).to_have_count(2)
