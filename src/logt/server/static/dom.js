// What all parts of the page use: queries, requests, messages.

export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
export const createElement = (tag, properties = {}) => Object.assign(document.createElement(tag), properties);
export const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
export const photoUrl = (id, size = "thumb") => `/api/v1/photo?${new URLSearchParams({ id, size })}`;

// Send a request of the API, with a body as JSON; return its answer. If it fails, show why, and return null.
export async function send(path, body) {
  const json = body && { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(`/api/v1/${path}`, { method: "POST", ...json });
  const answer = response.status === 204 ? {} : await response.json();
  if (response.ok) return answer;
  showNotice(answer.error.message);
  return null;
}

// label, run: of a button beside the text.
export function showNotice(text, items = [], label = "", run = null) {
  const notice = $("#notice");
  Object.assign($("button", notice), { textContent: label, onclick: run, hidden: !run });
  $("p", notice).textContent = text;
  $("ul", notice).replaceChildren(...items.map((textContent) => createElement("li", { textContent })));
  notice.hidden = false;
}
