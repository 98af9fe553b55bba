// The row of figures on top, two of them with what they were in the last two minutes.
import { byId, count, percent, plural, rate, seconds, text } from "./words.js";

const POINTS = 120;
const WIDTH = 120;
const HEIGHT = 32;
const SVG = "http://www.w3.org/2000/svg";
const history = { tokens: [], requests: [] };
const most = (numbers) => numbers.reduce((high, each) => Math.max(high, each), 0);

export function drawFigures(pipeline, fresh) {
  if (fresh) {
    remember(history.tokens, pipeline.tokens_per_s);
    remember(history.requests, pipeline.requests_per_s);
  }
  text(byId("tokens-rate"), rate(pipeline.tokens_per_s));
  text(byId("requests-rate"), rate(pipeline.requests_per_s));
  spark(byId("tokens-spark"), history.tokens);
  spark(byId("requests-spark"), history.requests);
  drawBusy(pipeline);
  drawBacklog(pipeline.backlogs, "backlogs" in pipeline.unseen);
  drawTrouble(pipeline);
}

function drawBusy({ workers, unseen }) {
  if ("workers" in unseen) return unknown("busy");
  const running = workers.reduce((sum, each) => sum + each.running, 0);
  const slots = workers.reduce((sum, each) => sum + each.slots, 0);
  text(byId("busy"), slots ? percent(running / slots) : "–", workers.length ? "" : "bad");
  text(byId("busy-under"), workers.length ? `${count(running)} of ${count(slots)} run` : "no worker");
}

function drawBacklog(backlogs, unseen) {
  if (unseen) return unknown("backlog");
  const tickets = backlogs.reduce((sum, each) => sum + each.tickets, 0);
  const waits = backlogs.map((each) => each.seconds);
  const unsure = waits.includes(-1);
  const longest = most(waits);
  text(byId("backlog"), unsure && !longest ? "?" : longest ? seconds(longest) : "0 s", unsure || longest > 30 ? "warn" : "");
  text(byId("backlog-under"), tickets ? `${plural(tickets, "ticket")} wait` : "nothing waits");
}

function drawTrouble(pipeline) {
  if ("leases" in pipeline.unseen) unknown("unowned", "partitions");
  else {
    text(byId("unowned"), count(pipeline.unowned.length), pipeline.unowned.length ? "bad" : "");
    text(byId("unowned-under"), `of ${plural(pipeline.partitions, "partition")}`);
  }
  if (pipeline.dead_letters === null) return unknown("dead");
  text(byId("dead"), count(pipeline.dead_letters), pipeline.dead_letters ? "warn" : "");
  text(byId("dead-under"), pipeline.dead_letters ? "headrace dead list" : "none set aside");
}

function unknown(id, under = "not to be seen") {
  text(byId(id), "–");
  text(byId(`${id}-under`), under);
}

function remember(points, value) {
  points.push(value);
  if (points.length > POINTS) points.shift();
}

function spark(svg, points) {
  if (points.length < 2) return;
  const top = most(points) || 1;
  const at = (value, index) =>
    `${(WIDTH - (points.length - 1 - index) * (WIDTH / (POINTS - 1))).toFixed(1)} ${(HEIGHT - 2 - (value / top) * (HEIGHT - 5)).toFixed(1)}`;
  const line = `M${points.map(at).join("L")}`;
  const left = WIDTH - (points.length - 1) * (WIDTH / (POINTS - 1));
  path(svg, "area", `${line}L${WIDTH} ${HEIGHT}L${left.toFixed(1)} ${HEIGHT}Z`);
  path(svg, "stroke", line);
}

function path(svg, kind, d) {
  let found = svg.querySelector(`.${kind}`);
  if (!found) {
    found = document.createElementNS(SVG, "path");
    found.setAttribute("class", kind);
    svg.append(found);
  }
  found.setAttribute("d", d);
}
