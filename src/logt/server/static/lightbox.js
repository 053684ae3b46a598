// The large view: one photo in full size, with buttons and arrow keys for its neighbors. Space selects, S finds similar
// photos, Z or a click zooms. Back closes it.

import { $, $$, photoUrl, send } from "./dom.js";

const dialog = $("#lightbox");
const image = $("#lightbox-photo");
let current = null; // the card whose photo is shown

export function openLightbox(card) {
  show(card);
  if (dialog.open) return;
  history.pushState({ large: true }, "");
  dialog.showModal();
}

function show(card) {
  current = card;
  const tile = $(".tile", card);
  const { id, about } = card.dataset;
  $(".matched", dialog)?.remove();
  const region = $(".matched", card);
  if (region) image.after(region.cloneNode(true));
  const large = photoUrl(id, "large");
  $("#lightbox-missing").hidden = true;
  image.hidden = false;
  image.removeAttribute("src"); // not the photo before
  image.style.background = `center / contain no-repeat url("${photoUrl(id)}")`; // until the large one is there
  image.src = large;
  image.alt = id;
  $("#lightbox-name").textContent = id;
  const score = $(".score", card);
  $("#lightbox-about").textContent = [score && `${score.textContent}${score.title ? ` (${score.title})` : ""}`, about].filter(Boolean).join(" · ");
  $("#lightbox-search").href = tile.href;
  Object.assign($("#lightbox-download"), { href: large, download: id.split("/").at(-1) });
  zoom(false);
  updateButtons();
  describe(id).catch(() => {}); // the photo is shown without it
}

// Add what the file says about the photo.
async function describe(id) {
  const shown = current;
  for (const part of [$("#lightbox-show"), $("#lightbox-path")]) part.hidden = true;
  const response = await fetch(`/api/v1/photo/about?${new URLSearchParams({ id })}`);
  if (!response.ok || current !== shown) return;
  const { camera, original, path } = await response.json();
  if (original) $("#lightbox-download").href = photoUrl(id, "original");
  $("#lightbox-about").textContent = [$("#lightbox-about").textContent, ...Object.entries(camera).map(([name, text]) => (name === "ISO" ? `ISO ${text}` : text))].filter(Boolean).join(" · ");
  $("#lightbox-show").hidden = !path;
  Object.assign($("#lightbox-path"), { textContent: path ?? "", hidden: !path });
}

// Show the photo at twice the size that fits, or more if it has more pixels; the point that was clicked stays visible.
function zoom(on, x = 0.5, y = 0.5) {
  const stage = $(".stage", dialog);
  const { naturalWidth, clientWidth } = image;
  dialog.classList.toggle("zoomed", on);
  image.style.width = on ? `${Math.max(naturalWidth, 2 * clientWidth)}px` : "";
  stage.scrollTo(x * stage.scrollWidth - stage.clientWidth / 2, y * stage.scrollHeight - stage.clientHeight / 2);
}

function updateSelect() {
  const box = $("[data-select]", current);
  $("#lightbox-select").setAttribute("aria-pressed", Boolean(box?.checked));
}

function updateButtons() {
  updateSelect();
  for (const button of $$("[data-step]", dialog)) button.disabled = !step(Number(button.dataset.step));
}

// Return the card before or after the current one, also in the next list.
function step(direction) {
  const cards = $$("#main .card");
  return cards[cards.indexOf(current) + direction];
}

function showNeighbor(direction) {
  const card = step(direction);
  if (!card) return;
  card.scrollIntoView({ block: "nearest" }); // the list of all photos loads what comes next
  show(card);
}

dialog?.addEventListener("click", (event) => {
  const button = event.target.closest("[data-step]");
  if (button) showNeighbor(Number(button.dataset.step));
  else if (event.target === image) zoom(!dialog.classList.contains("zoomed"), event.offsetX / image.clientWidth, event.offsetY / image.clientHeight);
  else if (event.target.closest("#lightbox-select")) KEYS[" "]();
  else if (event.target.closest("#lightbox-show")) showInFolder(current.dataset.id);
  else if (event.target.closest("[data-close]") || event.target.matches("dialog, .stage")) dialog.close();
});

const KEYS = {
  ArrowLeft: () => showNeighbor(-1),
  ArrowRight: () => showNeighbor(1),
  " "() { $("[data-select]", current)?.click(); updateSelect(); },
  s() { location.replace($("#lightbox-search").href); },
  z() { zoom(!dialog.classList.contains("zoomed")); },
};
dialog?.addEventListener("keydown", (event) => {
  const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  action();
});

async function showInFolder(id) {
  if (!(await send(`photo/show?${new URLSearchParams({ id })}`))) dialog.close();
}
dialog?.addEventListener("close", () => {
  $(".tile", current).focus({ preventScroll: true });
  if (history.state?.large) history.back();
});
addEventListener("popstate", () => {
  if (dialog?.open) dialog.close();
  setTimeout(() => current?.scrollIntoView({ block: "nearest" })); // the browser scrolls to where it was opened
});

// The page of similar photos takes the place of the large view in the history.
$("#lightbox-search")?.addEventListener("click", (event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  location.replace(event.target.href);
});
image?.addEventListener("load", () => {
  image.style.background = "";
  const next = step(1);
  if (next) new Image().src = photoUrl(next.dataset.id, "large");
});
image?.addEventListener("error", () => {
  image.hidden = true;
  $("#lightbox-missing").hidden = false;
});
document.addEventListener("cardschange", () => { if (dialog?.open) updateButtons(); });
if (history.state?.large) history.replaceState(null, ""); // the page was loaded again
