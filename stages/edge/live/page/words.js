// Numbers as a person reads them, and the few ways in which the page is changed.
export const byId = (id) => document.getElementById(id);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const rate = (value) => (value < 99.95 && value > 0 ? tenth.format(value) : whole.format(value));
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
export const percent = (share) => `${whole.format(share * 100)} %`;

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return `${(value * 1000).toFixed(2)} ms`;
  if (value < 0.1) return `${(value * 1000).toFixed(1)} ms`;
  if (value < 1) return `${(value * 1000).toFixed(0)} ms`;
  return value < 100 ? `${value.toFixed(1)} s` : `${whole.format(value)} s`;
}

export const bytes = (value) => {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${value < 10 && unit ? tenth.format(value) : whole.format(value)} ${units[unit]}`;
};

export function text(element, value, mood = "") {
  if (element.textContent !== value) element.textContent = value;
  if (mood) element.dataset.mood = mood;
  else delete element.dataset.mood;
}

// A new element; `parts` are texts and other elements. Nothing is ever read as HTML.
export function make(tag, attributes = {}, ...parts) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== "" && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...parts);
  return element;
}

export function bar(share, mood = "") {
  const fill = make("i", { "data-mood": mood });
  fill.style.width = `${Math.round(Math.min(1, Math.max(0, share)) * 1000) / 10}%`;
  return make("div", { class: "bar" }, fill);
}
