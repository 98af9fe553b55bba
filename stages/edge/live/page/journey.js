// What a request went through: each stage on one time line, where it ran, and why there.
import { count, make, plural, seconds } from "./words.js";

const ENDS = { runs: "runs", finished: "finished there", failed: "failed there", died: "died there", moved: "went on elsewhere" };

export function drawJourney(into, journey) {
  into.replaceChildren(...journey.choices.flatMap((choice, index) => choiceParts(choice, index, journey.choices.length)));
  if (!journey.choices.length) {
    const said = journey.stage === "unknown" ? "Nothing is stored of it: it waits for a worker, or ended too long ago." : `It is on its way: ${journey.stage}.`;
    into.replaceChildren(make("p", { class: "hint" }, said));
  }
  into.hidden = false;
}

function choiceParts(choice, index, choices) {
  const parts = choices > 1 ? [make("h3", {}, `Choice ${index}`)] : [];
  if (choice.fault) parts.push(make("p", { class: "hint" }, `${choice.fault.code}: ${choice.fault.message}`));
  if (choice.spans.length) parts.push(table(choice));
  parts.push(facts(choice), ...choice.runs.map((run, number) => why(run, number, choice.runs.length)));
  return parts;
}

function table(choice) {
  const total = Math.max(choice.total_s ?? 0, ...choice.spans.map((span) => (span.at ?? 0) + span.waited + (span.stage === "postprocess" ? 0 : span.worked))) || 1;
  const head = ["Stage", "", "Waited", "Worked"].map((title, index) => make("th", { scope: "col", class: index === 1 ? "chart" : "" }, title));
  return make(
    "table",
    { class: "spans" },
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...choice.spans.map((span) => row(span, total, choice.total_s))),
  );
}

function row(span, total, end) {
  const gantt = make("div", { class: "gantt" });
  if (span.at !== null) {
    piece(gantt, "waited", span.at, span.waited, total);
    const from = span.at + span.waited;
    if (span.stage !== "postprocess") piece(gantt, "worked", from, span.worked, total);
    else if (end !== null && span.worked) piece(gantt, "beside", from, end - from, total); // beside the engine, now and then
  }
  return make(
    "tr",
    { "data-stage": span.stage },
    make("th", { scope: "row" }, span.stage[0].toUpperCase() + span.stage.slice(1)),
    make("td", { class: "chart", "aria-hidden": "true" }, gantt),
    make("td", {}, seconds(span.waited)),
    make("td", {}, seconds(span.worked)),
  );
}

function piece(gantt, kind, from, took, total) {
  if (took <= 0) return;
  const part = make("i", { class: kind });
  part.style.left = `min(${((100 * from) / total).toFixed(2)}%, calc(100% - 2px))`;
  part.style.width = `${((100 * took) / total).toFixed(2)}%`;
  gantt.append(part);
}

function facts(choice) {
  const said = [];
  if (choice.total_s !== null) said.push(["In all", seconds(choice.total_s)]);
  if (choice.ttft_s) said.push(["first token after", seconds(choice.ttft_s)]);
  if (choice.itl_s) said.push(["a token each", seconds(choice.itl_s)]);
  if (choice.usage) said.push(["tokens", `${count(choice.usage.prompt_tokens)} in, ${count(choice.usage.completion_tokens)} out`]);
  said.push(["ended with", choice.outcome]);
  return make("p", { class: "facts" }, ...said.map(([what, value]) => make("span", {}, `${what} `, make("b", {}, value))));
}

function why(run, number, runs) {
  const where = runs > 1 ? `Run ${number + 1} of ${runs}, on ` : "Ran on ";
  const end = runs > 1 ? `: ${ENDS[run.end] ?? run.end}` : "";
  const tokens = run.token_to > run.token_from ? ` (${plural(run.token_to - run.token_from, "token")})` : "";
  return make(
    "div",
    { class: "why" },
    make("p", {}, where, make("b", { "data-worker": run.worker }, run.worker || "a worker that is not told"), `${tokens}${end}`),
    make("ul", {}, ...run.why.map((line) => make("li", {}, line))),
  );
}
