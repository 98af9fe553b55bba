// Asks for the state once a second while the page is seen, and has it drawn.
import { NoKey, forgetKey, hasKey, json, useKey } from "./asking.js";
import { drawFigures } from "./figures.js";
import { drawGraph } from "./graph.js";
import { drawJourney } from "./journey.js";
import { loadModels, startPrompt } from "./prompt.js";
import { drawSlowest, drawWorkers } from "./tables.js";
import { byId, make, seconds, text } from "./words.js";

const EVERY_MS = 1000;
const PATIENCE_MS = 8000;
const MODELS_EVERY_MS = 15_000;
let drawn = -1;
let modelsAt = -Infinity;
let wanted = null;

async function look() {
  try {
    const state = await json("/live/state", { signal: AbortSignal.timeout(PATIENCE_MS) });
    if (performance.now() - modelsAt > MODELS_EVERY_MS || !byId("model").options.length) {
      modelsAt = performance.now();
      await loadModels().catch(() => undefined);
    }
    askForKey(false);
    draw(state);
  } catch (error) {
    if (error instanceof NoKey) return askForKey(true, error.message);
    health("bad", "No answer");
    notice("This edge does not answer. The page goes on trying.", "bad");
    stale(true);
  }
}

function draw(state) {
  const { pipeline, edge } = state;
  const fresh = state.number !== drawn;
  drawn = state.number;
  stale(Boolean(state.trouble));
  drawSlowest(edge.slowest, openStory);
  text(byId("about"), `Headrace ${edge.version}, seen from ${edge.name}`);
  if (pipeline) {
    drawFigures(pipeline, fresh && !state.trouble);
    drawGraph(pipeline, edge);
    if (!state.trouble) drawWorkers(pipeline);
  }
  sayHow(state);
}

function sayHow({ trouble, pipeline }) {
  if (trouble) {
    const age = pipeline ? ` The numbers below are ${seconds(Math.max(0, Date.now() / 1000 - pipeline.at))} old.` : "";
    health("bad", trouble.startsWith("the broker") ? "Broker away" : "Not seen");
    return notice(`${trouble[0].toUpperCase()}${trouble.slice(1)}.${age}`, "bad");
  }
  const unseen = Object.entries(pipeline.unseen);
  if (unseen.length) {
    const list = make("ul", {}, ...unseen.map(([part, why]) => make("li", {}, `${part}: `, make("code", {}, why))));
    notice(["This edge cannot see all of the pipeline:", list]);
  } else notice("");
  const wrong = wrongWith(pipeline);
  if (wrong) health("warn", wrong);
  else health("good", unseen.length ? "Partly seen" : "All stages there");
}

function wrongWith({ replicas, unowned, workers }) {
  const missing = Object.entries(replicas).filter(([, number]) => number === 0).map(([stage]) => stage);
  if (missing.length) return `No ${missing.join(", no ")}`;
  if (unowned.length) return "Partitions without owner";
  if (workers.some((each) => each.state === "stalled")) return "A worker has stalled";
  return "";
}

function health(kind, said) {
  byId("health").dataset.health = kind;
  text(byId("health-text"), said);
}

function notice(parts, kind = "") {
  const said = typeof parts === "string" ? parts : parts.map((each) => each.textContent ?? each).join("");
  const box = byId("notice");
  box.hidden = !said;
  box.dataset.kind = kind;
  if (box.textContent !== said) box.replaceChildren(...(typeof parts === "string" ? [parts] : parts));
}

const stale = (is) => document.body.toggleAttribute("data-stale", is);

function askForKey(needed, why = "") {
  byId("forget").hidden = needed || !hasKey();
  if (byId("key-form").hidden !== needed) return;
  byId("key-form").hidden = !needed;
  stale(needed);
  if (!needed) return;
  health("warn", "Needs a key");
  notice("");
  if (hasKey()) {
    forgetKey();
    text(byId("key-hint"), `${why}.`);
  }
  byId("key").focus();
}

async function openStory(id) {
  byId("story-title").textContent = id;
  byId("story-body").replaceChildren();
  byId("story").showModal();
  const journey = await json(`/live/requests/${id}`).catch((error) => ({ failed: error.message }));
  if (journey.failed) byId("story-body").textContent = journey.failed;
  else drawJourney(byId("story-body"), journey);
}

// One look after the other: a slow edge is not asked twice at once. A page that nobody sees asks nothing.
async function run() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((wake) => {
      wanted = wake;
      setTimeout(wake, EVERY_MS);
    });
  }
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value);
  byId("key").value = "";
  byId("key-form").hidden = true;
  modelsAt = -Infinity;
  wanted?.();
});
byId("forget").addEventListener("click", () => {
  forgetKey();
  location.reload();
});
document.addEventListener("visibilitychange", () => wanted?.());
startPrompt();
run();
