// The graph: how deep each queue is, how many replicas each stage has, and where the request of this page is.
import { bytes, byId, count, percent, plural, seconds, text } from "./words.js";

const FULL = 10_000;
const part = (name) => byId("graph").querySelector(`[data-part="${name}"]`);

export function drawGraph(pipeline, edge) {
  for (const name of ["REQUESTS", "TICKETS", "JOURNAL", "RESULTS"]) drawQueue(name, pipeline.queues[name]);
  byId("graph").toggleAttribute("data-flows", pipeline.tokens_per_s > 0 || pipeline.requests_per_s > 0);
  stage("edge", `${count(edge.in_hand)} in hand`, "at this edge");
  stage("preprocess", replicas(pipeline.replicas.preprocess));
  stage("schedule", replicas(pipeline.replicas.schedule), waits(pipeline.backlogs));
  drawInference(pipeline);
  drawPostprocess(pipeline);
}

export function showHere(names) {
  for (const each of byId("graph").querySelectorAll(".stage")) {
    each.toggleAttribute("data-here", names.includes(each.dataset.part));
  }
}

function drawQueue(name, queue) {
  const [number, fill, more] = [".number", ".bar i", ".more"].map((what) => part(name).querySelector(what));
  if (!queue) {
    text(number, "–");
    fill.style.width = "0";
    return text(more, "not to be seen");
  }
  text(number, count(queue.messages));
  const depth = name === "RESULTS" ? queue.full : Math.log10(1 + queue.messages) / Math.log10(1 + FULL);
  fill.style.width = `${Math.min(100, depth * 100).toFixed(1)}%`;
  fill.dataset.mood = queue.full > 0.9 ? "bad" : queue.full > 0.7 ? "warn" : "";
  if (queue.unclaimed) text(more, `${count(queue.unclaimed)} unclaimed: no scheduler`, "bad");
  else text(more, said(name, queue));
}

function said(name, queue) {
  if (queue.full > 0.7) return `${percent(queue.full)} of its room is used`;
  if (name === "RESULTS") return `stored, ${bytes(queue.bytes)}`;
  if (name === "JOURNAL") return "entries to read";
  if (queue.waiting === null) return "";
  return `${count(queue.waiting)} waiting, ${count(queue.in_hand)} in hand`;
}

function stage(name, said, more = "", { mood = "", moreMood = "" } = {}) {
  text(part(name).querySelector(".count"), said, mood);
  text(part(name).querySelector(".more"), more, moreMood);
}

function replicas(number) {
  return number === null ? "replicas not known" : plural(number, "replica");
}

function waits(backlogs) {
  const longest = backlogs.reduce((high, each) => Math.max(high, each.seconds), 0);
  if (longest > 0) return `backlog ${seconds(longest)}`;
  return backlogs.some((each) => each.seconds < 0) ? "backlog, rate not known" : "";
}

function drawInference({ replicas: { inference }, workers }) {
  const running = workers.reduce((sum, each) => sum + each.running, 0);
  const slots = workers.reduce((sum, each) => sum + each.slots, 0);
  const said = inference === null ? "workers not to be seen" : plural(inference, "worker");
  stage("inference", said, slots ? `${count(running)} of ${count(slots)} slots` : "", { mood: inference === 0 ? "bad" : "" });
}

function drawPostprocess({ replicas: { postprocess }, partitions, unowned, unseen }) {
  if (unowned.length) return stage("postprocess", replicas(postprocess), `${plural(unowned.length, "partition")} unowned`, { moreMood: "bad" });
  stage("postprocess", replicas(postprocess), "leases" in unseen ? "" : plural(partitions, "partition"));
}
