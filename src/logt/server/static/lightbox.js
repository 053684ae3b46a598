// The lightbox: one photo in full size, with buttons and arrow keys for its neighbours.

import { $ } from "./dom.js";

const dialog = $("#lightbox");
let current = null; // the card whose photo is shown

export function openLightbox(card) {
  current = card;
  const image = $("#lightbox-image");
  const tile = $(".tile", card);
  image.src = $("[data-large]", card).dataset.large;
  image.alt = tile.dataset.id;
  $("#lightbox-name").textContent = tile.dataset.id;
  $("#lightbox-score").textContent = $(".score", card)?.textContent ?? "";
  const link = $("#lightbox-search");
  link.href = tile.href;
  link.dataset.id = tile.dataset.id;
  $("[data-step='-1']").disabled = !card.previousElementSibling;
  $("[data-step='1']").disabled = !card.nextElementSibling;
  if (!dialog.open) dialog.showModal();
}

export function closeLightbox() {
  dialog.close();
}

function showNeighbour(step) {
  const card = step < 0 ? current?.previousElementSibling : current?.nextElementSibling;
  if (card) openLightbox(card);
}

dialog.addEventListener("click", (event) => {
  const button = event.target.closest("[data-step]");
  if (button) showNeighbour(Number(button.dataset.step));
  else if (event.target.closest("[data-close]") || event.target.matches("dialog, figure, img")) closeLightbox();
});
dialog.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step) { event.preventDefault(); showNeighbour(step); }
});
dialog.addEventListener("close", () => $(".tile", current ?? $("#main"))?.focus());
