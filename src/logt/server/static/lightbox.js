// The large view: one photo in full size, with buttons and arrow keys for its neighbors. Back closes it.

import { $ } from "./dom.js";

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
  const large = new URL($("img", tile).src);
  large.searchParams.set("size", "large");
  $("#lightbox-missing").hidden = true;
  image.hidden = false;
  image.src = large;
  image.alt = id;
  $("#lightbox-name").textContent = id;
  const score = $(".score", card);
  $("#lightbox-about").textContent = [score && `${score.textContent}${score.title ? ` (${score.title})` : ""}`, about].filter(Boolean).join(" · ");
  $("#lightbox-search").href = tile.href;
  updateButtons();
}

function updateButtons() {
  for (const button of dialog.querySelectorAll("[data-step]")) button.disabled = !step(Number(button.dataset.step));
}

// Return the card before or after the current one, also in the next list.
function step(direction) {
  const cards = [...document.querySelectorAll("#main .card")];
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
  else if (event.target.closest("[data-close]") || event.target.matches("dialog, .stage, img")) dialog.close();
});
dialog?.addEventListener("keydown", (event) => {
  const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (direction) { event.preventDefault(); showNeighbor(direction); }
});
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
image?.addEventListener("error", () => {
  image.hidden = true;
  $("#lightbox-missing").hidden = false;
});
document.addEventListener("cardschange", () => { if (dialog?.open) updateButtons(); });
if (history.state?.large) history.replaceState(null, ""); // the page was loaded again
