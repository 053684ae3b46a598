// The page works with links and forms alone. This script adds search without reloading, drop and paste of photos,
// selection of a region, the lightbox and keyboard navigation.
// The server renders and escapes file names; this script handles them as text only, never as HTML.

import { $, $$, createElement } from "./dom.js";
import { closeLightbox, openLightbox } from "./lightbox.js";
import { RegionSelector, formatRegion, parseRegion } from "./region.js";

const main = $("#main");
const fileInput = $("#photo");
const dropOverlay = $("#drop-overlay");
const PLACEHOLDERS = 12;
const MB = 1 << 20; // as in --upload-mb

// A query is {id, box} or {photo, url, box}; null is the start page.
let query = null;
let pending = null; // AbortController of the running request
const uploads = new Map(); // queries by photo of this visit, so that Back can repeat them

// ------------------------------------------------------------------------------------------------ search

async function search(next, { push = true, k = null, focus = true } = {}) {
  pending?.abort();
  const controller = (pending = new AbortController());
  setBusy(true);
  if (next?.photo && query?.photo !== next.photo) showPlaceholders(next);
  try {
    const response = await fetch(...buildRequest(next, k, controller.signal));
    const html = await response.text();
    if (controller.signal.aborted) return;
    query = next;
    if (push && !(history.state && pageUrl(next) === location.pathname + location.search && !next?.photo)) {
      history.pushState(historyState(next), "", pageUrl(next));
    }
    showContent(html, focus);
  } catch (error) {
    if (error.name !== "AbortError") showError("The server does not respond", "Check that logt serve is running and try again.");
  } finally {
    if (pending === controller) setBusy(false);
  }
}

function buildRequest(next, k, signal) {
  if (next?.photo) {
    const form = new FormData();
    form.append("photo", next.photo, next.photo.name || "pasted photo");
    form.append("box", formatRegion(next.box));
    if (k) form.append("k", k);
    return ["/?fragment=1", { method: "POST", body: form, signal }];
  }
  const url = new URL(pageUrl(next), location.href);
  url.searchParams.set("fragment", "1");
  if (k) url.searchParams.set("k", k);
  return [url, { signal }];
}

function pageUrl(next) {
  if (next?.id === undefined) return "/";
  const params = new URLSearchParams({ id: next.id });
  if (next.box) params.set("box", formatRegion(next.box));
  return `/?${params}`;
}

function historyState(next) {
  if (!next?.photo) return next;
  next.key ??= crypto.randomUUID?.() ?? String(Math.random());
  uploads.set(next.key, next);
  return { key: next.key, box: next.box };
}

// ------------------------------------------------------------------------------------------------ content

function showContent(html, focus) {
  main.innerHTML = html; // rendered and escaped by the server
  if (query?.photo) $("#query")?.setAttribute("src", query.url);
  initContent();
  const results = $(".results-page");
  if (results) {
    document.title = `${results.dataset.name} · logt`;
    announce(`${results.dataset.count} results for ${results.dataset.name}`);
  } else {
    announce($("h1", main)?.textContent ?? "");
  }
  if (focus) {
    window.scrollTo({ top: 0 });
    main.focus({ preventScroll: true });
  }
}

// Attach handlers to the images in the content: mark missing previews, enable the region selection.
function initContent() {
  for (const image of $$(".tile img", main)) {
    const markMissing = () => image.parentElement.classList.add("missing");
    if (image.complete && image.currentSrc && !image.naturalWidth) markMissing();
    else image.addEventListener("error", markMissing, { once: true });
  }
  const container = $("#query-image");
  if (!container) return;
  const image = $("#query");
  const enableRegion = () => {
    if (!container.isConnected) return; // other content is shown by now
    $("#region-tools").hidden = false;
    new RegionSelector(container, (box) => search({ ...query, box }, { focus: false }));
  };
  const hideImage = () => {
    if (!container.isConnected) return;
    container.hidden = true;
    $("#no-preview").hidden = false;
    $("#region-help").hidden = true;
  };
  image.addEventListener("error", hideImage, { once: true });
  if (image.complete && image.naturalWidth) enableRegion();
  else image.addEventListener("load", enableRegion, { once: true });
}

function showPlaceholders(next) {
  const page = createElement("div", { className: "results-page" });
  page.innerHTML = '<section class="query"><div class="query-image"><img alt=""></div></section><section class="results"><h1>Searching…</h1><ol class="grid"></ol></section>';
  $("img", page).src = next.url;
  for (let i = 0; i < PLACEHOLDERS; i++) $("ol", page).append(createElement("li", { className: "skeleton" }));
  main.replaceChildren(page);
}

function showError(heading, message) {
  const section = createElement("section", { className: "message error" });
  section.setAttribute("role", "alert");
  const button = createElement("button", { className: "button primary", textContent: "Back to start" });
  button.addEventListener("click", () => search(null));
  section.append(
    createElement("h1", { textContent: heading }),
    createElement("p", { textContent: message }),
    button,
  );
  main.replaceChildren(section);
  query = null;
  announce(heading);
}

function setBusy(busy) {
  $("#progress").hidden = !busy;
  main.setAttribute("aria-busy", String(busy));
  if (busy) announce("Searching");
}

// Write a message for screen readers.
function announce(message) {
  $("#status").textContent = message;
}

// ------------------------------------------------------------------------------------------------ photos: choose, paste, drop

function searchPhoto(photo) {
  if (!photo || !fileInput) return;
  const maxBytes = Number(document.body.dataset.maxUploadBytes);
  if (photo.size > maxBytes) {
    showError("File too large", `The file has ${Math.ceil(photo.size / MB)} MB. The limit is ${Math.floor(maxBytes / MB)} MB.`);
    return;
  }
  search({ photo, url: URL.createObjectURL(photo), box: null });
}

function findPhoto(dataTransfer) {
  const files = [...(dataTransfer?.files ?? [])];
  return files.find((file) => file.type.startsWith("image/")) ?? files[0];
}

function hasFiles(event) {
  return fileInput && [...(event.dataTransfer?.types ?? [])].includes("Files");
}

fileInput?.addEventListener("change", () => { searchPhoto(fileInput.files[0]); fileInput.value = ""; });
document.addEventListener("paste", (event) => {
  const photo = findPhoto(event.clipboardData);
  if (photo) { event.preventDefault(); searchPhoto(photo); }
});

let dragDepth = 0; // dragenter and dragleave also fire for child elements
document.addEventListener("dragenter", (event) => { if (hasFiles(event)) { dragDepth++; dropOverlay.hidden = false; } });
document.addEventListener("dragleave", (event) => {
  if (hasFiles(event) && --dragDepth <= 0) { dragDepth = 0; dropOverlay.hidden = true; }
});
document.addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
document.addEventListener("drop", (event) => {
  dragDepth = 0;
  if (dropOverlay) dropOverlay.hidden = true;
  if (!hasFiles(event)) return;
  event.preventDefault();
  searchPhoto(findPhoto(event.dataTransfer));
});

// ------------------------------------------------------------------------------------------------ links, history, keys

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const target = event.target;
  if (target.closest("[data-choose-photo]") || (target.closest("#dropzone") && fileInput)) return void fileInput.click();
  const enlarge = target.closest("[data-large]");
  if (enlarge) return void openLightbox(enlarge.closest(".card"));
  const more = target.closest("[data-more]");
  if (more) {
    event.preventDefault();
    return void search(query, { k: more.dataset.more, push: false, focus: false });
  }
  const link = target.closest("a[data-id], #lightbox-search");
  if (link) {
    event.preventDefault();
    closeLightbox();
    search({ id: link.dataset.id, box: null });
  } else if (target.closest("[data-home]") && location.pathname === "/") {
    event.preventDefault();
    search(null);
  }
});

addEventListener("popstate", (event) => {
  const state = event.state;
  if (location.pathname !== "/") return void location.reload();
  if (state?.key && !uploads.has(state.key)) return void search(null, { push: false });
  search(state?.key ? { ...uploads.get(state.key), box: state.box } : state, { push: false, focus: false });
});

// Arrow keys move between results, Space opens the lightbox.
main.addEventListener("keydown", (event) => {
  const tiles = $$(".tile", main);
  const position = tiles.indexOf(document.activeElement);
  if (position < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  const card = tiles[position].parentElement;
  if (event.key === " " && $("[data-large]", card)) {
    event.preventDefault();
    return openLightbox(card);
  }
  const firstRow = tiles[0].parentElement.offsetTop;
  const columns = tiles.filter((tile) => tile.parentElement.offsetTop === firstRow).length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
  if (step && tiles[position + step]) { event.preventDefault(); tiles[position + step].focus(); }
});

const params = new URLSearchParams(location.search);
query = params.has("id") ? { id: params.get("id"), box: parseRegion(params.get("box")) } : null;
history.replaceState(query, "");
initContent();
