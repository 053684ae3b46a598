// Photos from the user: choose, paste or drop one to search with it; add photos to the index where that is allowed.

import { $, count, showNotice } from "./dom.js";

const form = $("#photo-form"), fileInput = $("#photo");
const newPhotos = $("#new-photos");
const dropOverlay = $("#drop-overlay");
const MB = 1 << 20; // as in --upload-mb

// Search with the photo that the file input holds.
function search() {
  const [photo] = fileInput.files;
  const maxBytes = Number(document.body.dataset.maxUploadBytes);
  if (!photo) return;
  if (photo.size > maxBytes) {
    const limit = `The file has ${Math.ceil(photo.size / MB)} MB. The limit is ${Math.floor(maxBytes / MB)} MB.`;
    showNotice(`File too large. ${limit}`);
    return;
  }
  $("#progress").hidden = false;
  form.submit();
}

// Search with the first photo of a drop or of the clipboard; return whether there is one.
function searchFirst(dataTransfer) {
  const files = [...(dataTransfer?.files ?? [])];
  if (!files.length || !fileInput) return false;
  const transfer = new DataTransfer();
  transfer.items.add(files.find((file) => file.type.startsWith("image/")) ?? files[0]);
  fileInput.files = transfer.files;
  search();
  return true;
}

// Send photos one after another, and report those that were not added.
async function addPhotos(photos) {
  const failed = [];
  for (const [number, photo] of photos.entries()) {
    showNotice(`Adding ${number + 1} of ${photos.length}: ${photo.name}`);
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
  if (!failed.length) return void location.reload();
  showNotice(`${count(photos.length - failed.length, "photo")} added, ${failed.length} not:`, failed);
}

function hasFiles(event) {
  return fileInput && [...(event.dataTransfer?.types ?? [])].includes("Files");
}

fileInput?.addEventListener("change", search);
newPhotos?.addEventListener("change", () => addPhotos([...newPhotos.files]));
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-add-photos]")) newPhotos.click();
  else if (event.target.closest("[data-choose-photo]") || (event.target.closest("#dropzone") && fileInput)) fileInput.click();
});
document.addEventListener("paste", (event) => {
  if (searchFirst(event.clipboardData)) event.preventDefault();
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
  searchFirst(event.dataTransfer);
});
