// The page works with links and forms alone. This script adds drop and paste of photos, selection of a region, the large
// view, the list of all photos and keyboard navigation.
// The server renders and escapes file names; scripts handle them as text only, never as HTML.

import { initExport, syncSelection } from "./selection.js";
import { $, $$ } from "./dom.js";
import { initDuplicates } from "./duplicates.js";
import { initMap } from "./map.js";
import { openLightbox } from "./lightbox.js";
import { RegionSelector, formatRegion } from "./region.js";
import { watchIndexing } from "./indexing.js";
import { VirtualGrid } from "./virtual_grid.js";
import "./filters.js";
import "./photo_input.js";

const main = $("#main");

function initCards(root) {
  for (const image of $$(".tile img", root)) {
    const markMissing = () => image.closest(".tile")?.classList.add("missing");
    if (image.complete && image.currentSrc && !image.naturalWidth) markMissing();
    else image.addEventListener("error", markMissing, { once: true });
  }
  syncSelection(root);
}

function initRegion(container) {
  const image = $("#query");
  const enable = () => {
    $("#region-tools").hidden = false;
    new RegionSelector(container, (box) => {
      const url = new URL(location.href);
      if (box) url.searchParams.set("box", formatRegion(box));
      else url.searchParams.delete("box");
      url.searchParams.delete("k");
      location.assign(url);
    });
  };
  const hide = () => {
    container.hidden = true;
    $("#no-preview").hidden = false;
    $("#region-help").hidden = true;
  };
  if (image.complete && image.naturalWidth) enable();
  else if (image.complete) hide();
  image.addEventListener("error", hide, { once: true });
  image.addEventListener("load", enable, { once: true });
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const tile = event.target.closest("a.tile:not(.text-tile, .group-tile), .caption");
  if (!tile || $(".text-tile", tile.closest(".card"))) return;
  event.preventDefault();
  openLightbox(tile.closest(".card"));
});

// Arrow keys move between photos, Space selects, S finds similar ones; Enter follows the link.
main.addEventListener("keydown", (event) => {
  const tile = document.activeElement?.closest?.(".tile");
  if (!tile || event.ctrlKey || event.metaKey || event.altKey) return;
  const card = tile.closest(".card");
  const checkbox = $("[data-select]", card);
  if (event.key === " " && checkbox) {
    event.preventDefault();
    checkbox.click();
  } else if (event.key.toLowerCase() === "s" && checkbox) {
    location.assign(tile.href);
  } else {
    const next = neighbor(card, event.key);
    if (next) { event.preventDefault(); $(".tile", next).focus(); }
  }
});

// Return the card next to one, in the direction of an arrow key, by their positions.
function neighbor(card, key) {
  const cards = $$(".card", main);
  const position = cards.indexOf(card);
  if (key === "ArrowRight") return cards[position + 1];
  if (key === "ArrowLeft") return cards[position - 1];
  if (key !== "ArrowDown" && key !== "ArrowUp") return null;
  const from = card.getBoundingClientRect();
  const sign = key === "ArrowDown" ? 1 : -1;
  let best = null, bestDistance = Infinity;
  for (const other of cards) {
    const to = other.getBoundingClientRect();
    const down = sign * (to.top - from.top);
    if (down < from.height / 2) continue;
    const distance = 4 * down + Math.abs(to.left - from.left);
    if (distance < bestDistance) [best, bestDistance] = [other, distance];
  }
  return best;
}

const virtualGrid = $("#virtual") ? new VirtualGrid($("#virtual"), initCards) : null;
initCards(main);
if ($("#region-tools")) initRegion($("#query-photo"));
const filters = $(".filter-box");
if (filters && matchMedia("(max-width: 760px)").matches) filters.open = Boolean($(".filter-actions a", filters));
initExport(virtualGrid);
initDuplicates(initCards);
initMap();
watchIndexing();
