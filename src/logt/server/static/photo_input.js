// Photos from the user: choose, paste or drop one to search with it; add photos to the index where that is allowed.

import { $, createElement } from "./dom.js";
import { filtersInUse } from "./filters.js";
import { leaveLightbox } from "./lightbox.js";
import { announce, load, main, saveScroll, showError, withoutFragment } from "./navigation.js";

const fileInput = $("#photo");
const newPhotos = $("#new-photos");
const dropOverlay = $("#drop-overlay");
const PLACEHOLDERS = 12;
const MB = 1 << 20; // as in --upload-mb

async function searchPhoto(photo) {
  if (!photo || !fileInput) return;
  saveScroll();
  const replace = leaveLightbox();
  if (isTooLarge(photo)) return;
  showPlaceholders(photo);
  const body = new FormData();
  body.append("photo", photo, photo.name || "pasted photo");
  announce("Searching");
  const url = await load(withFilters("/"), { body, focus: true });
  if (!url || !new URL(url).searchParams.has("photo")) return;
  history[replace ? "replaceState" : "pushState"]({ scroll: 0 }, "", withoutFragment(url));
}

// Return a URL with the filters of the page.
function withFilters(path) {
  const url = new URL(path, location.href), page = new URL(location.href);
  for (const name of ["name", "folder", "from", "to"]) {
    if (page.searchParams.get(name)) url.searchParams.set(name, page.searchParams.get(name));
  }
  return url;
}

function isTooLarge(photo) {
  const maxBytes = Number(document.body.dataset.maxUploadBytes);
  if (photo.size <= maxBytes) return false;
  showError("File too large", `The file has ${Math.ceil(photo.size / MB)} MB. The limit is ${Math.floor(maxBytes / MB)} MB.`);
  return true;
}

function showPlaceholders(photo) {
  const page = createElement("div", { className: "results-page" });
  page.innerHTML = '<section class="query"><div class="query-photo"><img alt=""></div></section><section class="results"><h1>Searching…</h1><ol class="grid"></ol></section>';
  $("img", page).src = URL.createObjectURL(photo);
  for (let i = 0; i < PLACEHOLDERS; i++) $("ol", page).append(createElement("li", { className: "skeleton" }));
  main.replaceChildren(page);
  window.scrollTo(0, 0);
}

// Send photos one after another, and report how many were added.
async function addPhotos(photos) {
  const notice = $("#adding"), text = $("p", notice), list = $("ul", notice);
  const failed = [];
  list.replaceChildren();
  notice.hidden = false;
  for (const [number, photo] of [...photos].entries()) {
    text.textContent = `Adding ${number + 1} of ${photos.length}: ${photo.name}`;
    const body = new FormData();
    body.append("photo", photo, photo.name);
    try {
      const response = await fetch("/api/v1/photos", { method: "POST", body });
      const answer = await response.json();
      if (!response.ok) failed.push(`${photo.name}: ${answer.error.message}`);
    } catch {
      failed.push(`${photo.name}: the server does not respond`);
    }
  }
  const added = photos.length - failed.length;
  text.textContent = `${added} photo${added === 1 ? "" : "s"} added${failed.length ? `, ${failed.length} not:` : "."}`;
  list.replaceChildren(...failed.map((textContent) => createElement("li", { textContent })));
  setTimeout(() => { notice.hidden = true; }, failed.length ? 20_000 : 5000);
  if (added && location.pathname === "/" && $("#virtual") && !filtersInUse()) load(location.href, { keep: true });
}

function findPhoto(dataTransfer) {
  const files = [...(dataTransfer?.files ?? [])];
  return files.find((file) => file.type.startsWith("image/")) ?? files[0];
}

function hasFiles(event) {
  return fileInput && [...(event.dataTransfer?.types ?? [])].includes("Files");
}

fileInput?.addEventListener("change", () => { searchPhoto(fileInput.files[0]); fileInput.value = ""; });
newPhotos?.addEventListener("change", () => { addPhotos([...newPhotos.files]); newPhotos.value = ""; });
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-add-photos]")) newPhotos.click();
  else if (event.target.closest("[data-choose-photo]") || (event.target.closest("#dropzone") && fileInput)) fileInput.click();
});
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
