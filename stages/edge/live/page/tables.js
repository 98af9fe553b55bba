// The workers, what waits for them, and the slowest requests.
import { bar, byId, count, make, percent, plural, seconds } from "./words.js";

const GONE_S = 60;
const SHOWN = 8;
const known = new Map(); // by name: the worker as it was last, and when
const STATE_MOOD = { ready: "", draining: "warn", stalled: "bad" };

export function drawWorkers(pipeline) {
  for (const worker of pipeline.workers) known.set(worker.name, { worker, at: pipeline.at });
  for (const [name, { at }] of known) if (pipeline.at - at > GONE_S) known.delete(name);
  const rows = [...known.values()].sort((a, b) => order(a.worker).localeCompare(order(b.worker)));
  byId("workers").tBodies[0].replaceChildren(...rows.map((each) => workerRow(each, pipeline.at)));
  byId("workers").hidden = !rows.length;
  byId("no-workers").hidden = Boolean(rows.length) || "workers" in pipeline.unseen;
  const gone = rows.length - pipeline.workers.length;
  byId("workers-count").textContent = gone ? `${count(pipeline.workers.length)} beat, ${count(gone)} gone` : rows.length ? `${count(rows.length)} beat` : "";
  byId("backlogs").replaceChildren(...backlogs(pipeline));
}

const order = (worker) => `${worker.model} ${worker.name}`;

function workerRow({ worker, at }, now) {
  const gone = at < now;
  const name = make("th", { scope: "row", class: "name" }, worker.name);
  if (gone) name.append(make("span", { class: "badge", "data-mood": "bad" }, `gone ${seconds(now - at)} ago`));
  else if (worker.state !== "ready") name.append(make("span", { class: "badge", "data-mood": STATE_MOOD[worker.state] ?? "warn" }, worker.state));
  name.append(make("span", { class: "model" }, worker.model));
  const row = make("tr", { "data-worker": worker.name }, name, ...(gone ? [dash("Running"), dash("KV cache"), dash("Step", "num")] : cells(worker)));
  row.toggleAttribute("data-gone", gone);
  return row;
}

function cells(worker) {
  const share = worker.slots ? worker.running / worker.slots : 0;
  const running = `${count(worker.running)} / ${count(worker.slots)}${worker.waiting ? ` +${count(worker.waiting)}` : ""}`;
  return [
    make("td", { "data-label": "Running" }, make("span", { class: "gauge" }, running, bar(share, worker.waiting ? "warn" : ""))),
    worker.kv_used === null
      ? dash("KV cache")
      : make("td", { "data-label": "KV cache" }, make("span", { class: "gauge" }, percent(worker.kv_used), bar(worker.kv_used, worker.kv_used > 0.95 ? "warn" : ""))),
    make("td", { class: "num", "data-label": "Step" }, worker.step_ms ? seconds(worker.step_ms / 1000) : "–"),
  ];
}

const dash = (label, kind = "") => make("td", { class: kind, "data-label": label }, "–");

function backlogs({ backlogs: all, unseen }) {
  if ("backlogs" in unseen) return [make("li", {}, make("span", {}, "not to be seen"))];
  if (!all.length) return [make("li", {}, make("span", {}, "no scheduler speaks"))];
  return all.map((each) => {
    const wait = each.seconds < 0 ? "wait not known" : each.tickets ? `${seconds(each.seconds)} of work` : "nothing waits";
    const said = each.tickets ? `${plural(each.tickets, "ticket")}, ${count(each.tokens)} tokens${each.rate ? ` at ${count(each.rate)}/s` : ""}` : plural(each.schedulers, "scheduler");
    return make("li", {}, make("b", {}, each.model), make("span", {}, `${wait} · ${said}`));
  });
}

export function drawSlowest(slowest, open) {
  const more = byId("all-slowest");
  const all = more.getAttribute("aria-expanded") === "true";
  more.hidden = slowest.length <= SHOWN;
  more.textContent = all ? `Show ${SHOWN}.` : `Show all ${slowest.length}.`;
  more.onclick = () => {
    more.setAttribute("aria-expanded", String(!all));
    drawSlowest(slowest, open);
  };
  const body = byId("slowest").tBodies[0];
  const focused = body.contains(document.activeElement) ? document.activeElement.textContent : null;
  body.replaceChildren(...slowest.slice(0, all ? slowest.length : SHOWN).map((each) => slowRow(each, open)));
  if (focused) [...body.querySelectorAll("button")].find((each) => each.textContent === focused)?.focus();
  byId("slowest").hidden = !slowest.length;
  byId("no-slowest").hidden = Boolean(slowest.length);
}

function slowRow(slow, open) {
  const name = make("button", { type: "button", class: "link", title: "What it went through" }, slow.id);
  name.addEventListener("click", () => open(slow.id));
  const ended = slow.status !== 0;
  const failed = slow.status >= 400 || (ended && !["", "stop", "length", "tool_calls"].includes(slow.outcome));
  const status = ended ? [slow.status, slow.outcome].filter(Boolean).join(" ") : "in hand";
  return make(
    "tr",
    {},
    make("th", { scope: "row", class: "name" }, name, make("span", { class: "model" }, slow.model)),
    make("td", { class: "num", "data-label": "Took" }, seconds(slow.seconds)),
    make("td", { class: "num", "data-label": "Tokens in" }, ended ? count(slow.input_tokens) : "–"),
    make("td", { class: "num", "data-label": "Tokens out" }, ended ? count(slow.output_tokens) : "–"),
    make("td", { "data-label": "Status" }, make("span", { class: "badge first", "data-mood": failed ? "bad" : ended ? "" : "good" }, status)),
  );
}
