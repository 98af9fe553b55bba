// A prompt, over the edge's own API: its answer as it streams, and where it is meanwhile.
import { ask, errorIn, json } from "./asking.js";
import { showHere } from "./graph.js";
import { drawJourney } from "./journey.js";
import { byId, make, text } from "./words.js";

const STEPS = ["edge", "preprocess", "schedule", "inference", "postprocess", "client"];
const ASK_EVERY_MS = 250;
const STORY_TRIES = 12;
let sending = null;

export async function loadModels() {
  const select = byId("model");
  const names = (await json("/v1/models")).data.map((model) => model.id);
  if (names.join() === [...select.options].map((each) => each.value).join()) return;
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  if (names.includes(chosen)) select.value = chosen;
  byId("send").disabled = !names.length || sending !== null;
}

export function startPrompt() {
  byId("ask-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (sending === null) send();
  });
  byId("stop").addEventListener("click", () => sending?.abort());
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("ask-form").requestSubmit();
  });
}

async function send() {
  const leave = (sending = new AbortController());
  const request = { name: `live-${random()}`, id: "", begun: false, over: false };
  begin();
  follow(request);
  try {
    await stream(request, leave.signal);
    step(["client"], true);
    status("");
  } catch (error) {
    showHere([]);
    if (error.name === "AbortError") status("Stopped: the request is cancelled wherever it is.");
    else status(error.message, "bad");
  } finally {
    request.over = true;
    sending = null;
    byId("stop").hidden = true;
    byId("send").disabled = false;
    byId("answer").removeAttribute("aria-busy");
  }
  await story(request);
}

function begin() {
  byId("answer").replaceChildren();
  byId("answer").hidden = true;
  byId("answer").setAttribute("aria-busy", "true");
  byId("journey").hidden = true;
  byId("steps").hidden = false;
  byId("stop").hidden = false;
  byId("send").disabled = true;
  status("Sent.");
  step(["edge"]);
}

async function stream(request, signal) {
  const body = {
    model: byId("model").value,
    messages: [{ role: "user", content: byId("prompt").value }],
    max_tokens: Number(byId("max-tokens").value),
    stream: true,
  };
  const headers = { "Content-Type": "application/json", "X-Request-Id": request.name };
  const answer = await ask("/v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!answer.ok) throw await errorIn(answer);
  for await (const event of events(answer.body)) take(request, event);
  if (!request.whole) throw new Error("the answer broke off: this edge went away");
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
  }
}

function take(request, event) {
  if (event === "[DONE]") {
    request.whole = true;
    return;
  }
  const said = JSON.parse(event);
  if (said.error) throw new Error(said.error.message);
  request.id = said.id.replace(/^chatcmpl-/, "");
  const delta = said.choices[0]?.delta ?? {};
  const thought = delta.reasoning ?? "";
  if (thought) say(thought, "thought");
  if (delta.content) say(delta.content, "");
  if (!request.begun && (thought || delta.content)) {
    request.begun = true;
    status("The worker generates, postprocess turns its tokens into text.");
    step(["inference", "postprocess"]);
  }
}

function say(piece, kind) {
  const answer = byId("answer");
  const atEnd = answer.scrollHeight - answer.scrollTop - answer.clientHeight < 8;
  answer.hidden = false;
  const last = answer.lastElementChild;
  if (last && last.className === kind) last.append(piece);
  else answer.append(make("span", { class: kind }, piece));
  if (atEnd) answer.scrollTop = answer.scrollHeight;
}

// Asks where it is until its text comes; from then on the stream itself says it.
async function follow(request) {
  const words = {
    preprocess: "In REQUESTS, or being templated and tokenized.",
    schedule: "Its ticket waits in TICKETS: the scheduler looks for a worker with room.",
    inference: "On a worker: its prompt is computed.",
  };
  while (!request.begun && !request.over) {
    await sleep(ASK_EVERY_MS);
    if (request.begun || request.over) return;
    const journey = await json(`/live/requests/${request.id || request.name}`).catch(() => null);
    if (journey && words[journey.stage] && !request.begun && !request.over) {
      step([journey.stage]);
      status(words[journey.stage]);
    }
  }
}

// Its end is stored a moment before or after it is told.
async function story(request) {
  if (!request.id) return;
  for (let tries = 0; tries < STORY_TRIES && sending === null; tries += 1) {
    const journey = await json(`/live/requests/${request.id}`).catch(() => null);
    if (journey?.stage === "ended") return drawJourney(byId("journey"), journey);
    await sleep(ASK_EVERY_MS);
  }
}

function step(here, ended = false) {
  const first = STEPS.indexOf(here[0]);
  for (const each of byId("steps").children) {
    const at = STEPS.indexOf(each.dataset.step);
    const state = here.includes(each.dataset.step) ? (ended ? "done" : "here") : at < first ? "done" : "next";
    each.dataset.state = state;
    if (state === "here") each.setAttribute("aria-current", "step");
    else each.removeAttribute("aria-current");
  }
  showHere(ended ? [] : here);
}

const status = (said, mood = "") => text(byId("ask-status"), said, mood);
const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));
const random = () => [...crypto.getRandomValues(new Uint8Array(8))].map((each) => each.toString(16).padStart(2, "0")).join("");
