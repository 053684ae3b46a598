// Navigation without reloading: content is fetched from the server as a fragment. Each entry of the history knows how far
// the page was scrolled; Back and reload return to it.

import { $, createElement } from "./dom.js";

export const main = $("#main");
const handlers = [];
let pending = null; // AbortController of the running request

// Call a function for all content: that of the page as it is now, and all that is loaded later.
export function onContent(handler) {
  handlers.push(handler);
}

// Show the page of a URL. replace: the current entry of the history; keep: the scroll position, and the focus.
export async function navigate(url, { replace = false, focus = true, keep = false } = {}) {
  saveScroll();
  const shown = await load(url, { focus, keep });
  if (!shown) return;
  const clean = withoutFragment(shown);
  if (replace) history.replaceState({ scroll: window.scrollY }, "", clean);
  else if (clean !== location.href) history.pushState({ scroll: 0 }, "", clean);
}

// Load the content of a URL, and return the URL that the server redirected to; null if it failed or was replaced.
export async function load(url, { focus = false, keep = false, scroll = 0, body = null } = {}) {
  pending?.abort();
  const controller = (pending = new AbortController());
  setBusy(true);
  try {
    const target = new URL(url, location.href);
    target.searchParams.set("fragment", "1");
    const response = await fetch(target, { signal: controller.signal, ...(body ? { method: "POST", body } : {}) });
    const html = await response.text();
    if (controller.signal.aborted) return null;
    showContent(html, { focus, keep, scroll });
    return response.url;
  } catch (error) {
    if (error.name !== "AbortError") showError("The server does not respond", "Check that logt serve is running and try again.");
    return null;
  } finally {
    if (pending === controller) setBusy(false);
  }
}

export function withoutFragment(url) {
  const clean = new URL(url, location.href);
  clean.searchParams.delete("fragment");
  return clean.href;
}

function showContent(html, { focus, keep, scroll }) {
  const before = window.scrollY;
  const focused = selectorOf(document.activeElement);
  main.innerHTML = html; // rendered and escaped by the server
  for (const handler of handlers) handler();
  const status = $("[data-status]", main)?.dataset.status ?? $("h1", main)?.textContent ?? "";
  announce(status);
  const title = $("#page-title", main)?.content.textContent;
  if (title) document.title = title;
  window.scrollTo(0, keep ? before : scroll);
  if (focus) main.focus({ preventScroll: true });
  else if (focused) $(focused, main)?.focus({ preventScroll: true });
}

// Return a selector that finds a control again in new content; null if there is none.
function selectorOf(element) {
  if (!element || element === main || !main.contains(element)) return null;
  const card = element.closest(".card");
  if (card) return `.card[data-id="${CSS.escape(card.dataset.id)}"] ${element.matches("[data-select]") ? "[data-select]" : ".tile"}`;
  if (element.id) return `#${CSS.escape(element.id)}`;
  const within = element.form?.matches("#filters") ? "#filters " : "";
  if (element.name) return `${within}${element.localName}[name="${CSS.escape(element.name)}"]`;
  return element.matches("[role=switch]") ? "[role=switch]" : within && `${within}${element.localName}`;
}

export function showError(heading, message) {
  const section = createElement("section", { className: "message error" });
  section.setAttribute("role", "alert");
  const link = createElement("a", { className: "button primary", textContent: "Back to start", href: "/" });
  link.dataset.go = "";
  section.append(createElement("h1", { textContent: heading }), createElement("p", { textContent: message }), link);
  main.replaceChildren(section);
  announce(heading);
}

function setBusy(busy) {
  $("#progress").hidden = !busy;
  main.setAttribute("aria-busy", String(busy));
}

// Write a message for screen readers.
export function announce(message) {
  $("#status").textContent = message;
}

// ------------------------------------------------------------------------------------------------ history

export function saveScroll() {
  history.replaceState({ ...history.state, scroll: window.scrollY }, "");
}

let saving = 0;
addEventListener("scroll", () => {
  clearTimeout(saving);
  saving = setTimeout(saveScroll, 120);
}, { passive: true });
addEventListener("pagehide", saveScroll);

addEventListener("popstate", (event) => {
  clearTimeout(saving);
  if (event.state?.large) return; // the large view handles it
  if (popHandlers.some((handler) => handler())) return saveScroll(); // the large view scrolls the page under it
  if (!/^\/(duplicates)?$/.test(location.pathname)) return void location.reload();
  load(location.href, { scroll: event.state?.scroll ?? 0 });
});

const popHandlers = [];

// Call a function before an entry of the history is loaded; if it returns true, nothing is loaded.
export function onPop(handler) {
  popHandlers.push(handler);
}

// Prepare the page that the server has rendered.
export function restore() {
  history.scrollRestoration = "manual";
  if (history.state?.large) history.replaceState({ ...history.state, large: false }, "");
  for (const handler of handlers) handler();
  window.scrollTo(0, history.state?.scroll ?? 0);
}
