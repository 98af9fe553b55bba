// Asking this edge, with the API key where it wants one. The key stays in this tab.
const KEY = "headrace-key";

export class NoKey extends Error {}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export const useKey = (key) => sessionStorage.setItem(KEY, key.trim());
export const forgetKey = () => sessionStorage.removeItem(KEY);

export function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  return fetch(path, { ...options, headers, credentials: "omit" });
}

// The error that an answer holds, in the edge's own words.
export async function errorIn(answer) {
  const body = await answer.json().catch(() => null);
  const error = body?.error;
  if (answer.status === 401) return new NoKey(error?.message ?? "an API key is needed");
  return new Error(error?.message ?? `the edge answered ${answer.status}`);
}

export async function json(path, options) {
  const answer = await ask(path, options);
  if (!answer.ok) throw await errorIn(answer);
  return answer.json();
}
