// The map: all photos as points, colored by group; groups have the photo of their representative, and photos appear when
// few are visible. Drag moves, the wheel or two fingers zoom, a click shows a photo and similar ones, a lasso selects.
// Points are written into an array of pixels: 100,000 take a few milliseconds.

import { $, $$, createElement, photoUrl, send } from "./dom.js";
import { selectIds } from "./selection.js";

const canvas = $("#map"), panel = $("#map-panel");
const SIZE = 65535, CELL = 84, MAX_VISIBLE = 1500, MAX_LOADING = 6, MAX_CACHED = 600, NEAR = 16;
const PLAIN = 0xff9a9a9a; // of photos in no group; colors are ABGR
let photos = null; // {ids, x, y, colors, labels}; labels: the rows of the representatives, those of large groups first
let view = { x: SIZE / 2, y: SIZE / 2, scale: 0.01 }; // the place in the middle, and pixels of the canvas per unit
let pixels = null, frame = null, lasso = null, loading = 0, wanted = [];
let drawn = []; // {row, left, top, right, bottom} of the photos on the canvas, those on top last
const thumbs = new Map(); // id -> bitmap, or null while it is loaded
const chosen = new Set(); // rows that a lasso selected

export async function initMap() {
  if (!canvas) return;
  const response = await fetch("/map/data");
  if (!response.ok) return;
  photos = prepare(await response.json());
  fit();
  new ResizeObserver(fit).observe(canvas);
  view.scale = (0.96 * Math.min(canvas.width, canvas.height) - CELL * ratio()) / SIZE;
}

function prepare({ ids, x, y, group, representatives }) {
  const colors = Uint32Array.from(group, (number) => (number < 0 ? PLAIN : groupColor(number)));
  const rows = new Map(ids.map((id, row) => [id, row]));
  const labels = representatives.map((id) => rows.get(id)).filter((row) => row !== undefined);
  return { ids, x: Float32Array.from(x), y: Float32Array.from(y), colors, labels };
}

// Return a color whose hue is far from those of the groups before and after it.
function groupColor(number) {
  const hue = (number * 0.618034) % 1;
  const part = (shift) => Math.round(140 + 100 * Math.cos(2 * Math.PI * (hue + shift)));
  return (0xff000000 | (part(2 / 3) << 16) | (part(1 / 3) << 8) | part(0)) >>> 0;
}

function fit() {
  const ratio = Math.min(devicePixelRatio, 2);
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  pixels = null;
  schedule();
}

const ratio = () => canvas.width / canvas.clientWidth;
const toCanvas = (x, y) => [(x - view.x) * view.scale + canvas.width / 2, (y - view.y) * view.scale + canvas.height / 2];

function schedule() {
  frame ??= requestAnimationFrame(() => { frame = null; draw(); });
}

function draw() {
  const context = canvas.getContext("2d");
  const { width, height } = canvas, { x, y, colors } = photos, { scale } = view;
  pixels ??= context.createImageData(width, height);
  const buffer = new Uint32Array(pixels.data.buffer).fill(0);
  const left = width / 2 - view.x * scale, top = height / 2 - view.y * scale;
  const side = Math.round(Math.min(6, Math.max(2, 400 * scale)) * ratio()), visible = [];
  for (let row = 0; row < x.length; row++) {
    const px = (x[row] * scale + left) | 0, py = (y[row] * scale + top) | 0;
    if (px < 0 || py < 0 || px + side >= width || py + side >= height) continue;
    if (visible.length <= MAX_VISIBLE) visible.push(row);
    const color = colors[row];
    for (let line = py * width + px, end = line + side * width; line < end; line += width) {
      for (let at = line; at < line + side; at++) buffer[at] = color;
    }
  }
  context.putImageData(pixels, 0, 0);
  wanted = [], drawn = [];
  if (visible.length <= MAX_VISIBLE) drawPhotos(context, visible, CELL);
  else drawPhotos(context, photos.labels, 1.5 * CELL);
  if (lasso) drawLasso(context);
  load();
}

// Draw the first photo in each cell of a grid that moves with the map, so that they stay while it is moved.
function drawPhotos(context, rows, width) {
  const cell = width * ratio(), taken = new Set();
  for (const row of rows) {
    const [x, y] = toCanvas(photos.x[row], photos.y[row]);
    const key = Math.floor(photos.x[row] * view.scale / cell) * 1e6 + Math.floor(photos.y[row] * view.scale / cell);
    if (taken.has(key) || x < 0 || y < 0 || x > canvas.width || y > canvas.height) continue;
    taken.add(key);
    drawThumb(context, row, x, y);
  }
}

function drawThumb(context, row, x, y) {
  const id = photos.ids[row], thumb = thumbs.get(id);
  if (thumb === undefined) wanted.push(id);
  if (!thumb) return;
  const scale = (0.86 * CELL * ratio()) / Math.max(thumb.width, thumb.height);
  const width = thumb.width * scale, height = thumb.height * scale;
  context.fillStyle = chosen.has(row) ? "#3b5bdb" : "#fff";
  context.fillRect(x - width / 2 - 2, y - height / 2 - 2, width + 4, height + 4);
  context.drawImage(thumb, x - width / 2, y - height / 2, width, height);
  drawn.push({ row, left: x - width / 2, top: y - height / 2, right: x + width / 2, bottom: y + height / 2 });
}

function drawLasso(context) {
  context.beginPath();
  for (const [x, y] of lasso) context.lineTo(...toCanvas(x, y));
  Object.assign(context, { strokeStyle: "#3b5bdb", lineWidth: 2 * ratio(), fillStyle: "rgb(59 91 219 / .15)" });
  context.stroke();
  context.fill();
}

// Load the photos that the last drawing lacked, some at a time, and make them small.
function load() {
  while (loading < MAX_LOADING && wanted.length) {
    const id = wanted.shift();
    if (thumbs.has(id)) continue;
    thumbs.set(id, null);
    loading++;
    fetchThumb(id).then((thumb) => thumbs.set(id, thumb), () => {}).finally(() => { loading--; schedule(); });
  }
  for (const id of thumbs.keys()) {
    if (thumbs.size <= MAX_CACHED) break;
    thumbs.delete(id);
  }
}

async function fetchThumb(id) {
  const image = createElement("img", { src: photoUrl(id) });
  await image.decode();
  const width = Math.min(image.naturalWidth, Math.round(CELL * 2 * Math.min(1, image.naturalWidth / image.naturalHeight)));
  return createImageBitmap(image, { resizeWidth: Math.max(1, width), resizeQuality: "medium" });
}

function toMap(event) {
  const bounds = canvas.getBoundingClientRect();
  const x = (event.clientX - bounds.left) * ratio(), y = (event.clientY - bounds.top) * ratio();
  return [(x - canvas.width / 2) / view.scale + view.x, (y - canvas.height / 2) / view.scale + view.y];
}

function zoom(factor, [x, y] = [view.x, view.y]) {
  const scale = Math.min(40, Math.max((0.3 * canvas.width) / SIZE, view.scale * factor)), share = view.scale / scale;
  view = { x: x + (view.x - x) * share, y: y + (view.y - y) * share, scale };
  schedule();
}

// Return the row of the photo that is drawn at a place, or whose point is nearest to it; -1 if none is near.
function nearest([x, y]) {
  const [left, top] = toCanvas(x, y);
  const shown = drawn.findLast((at) => at.left <= left && left <= at.right && at.top <= top && top <= at.bottom);
  if (shown) return shown.row;
  let best = -1, least = ((NEAR * ratio()) / view.scale) ** 2;
  for (let row = 0; row < photos.x.length; row++) {
    const distance = (photos.x[row] - x) ** 2 + (photos.y[row] - y) ** 2;
    if (distance < least) [best, least] = [row, distance];
  }
  return best;
}

// Select the photos inside the lasso, for the zip file and the list.
function select() {
  const rows = [];
  for (let row = 0; row < photos.x.length; row++) if (isInside(photos.x[row], photos.y[row])) rows.push(row);
  for (const row of rows) { chosen.add(row); photos.colors[row] = 0xffdb5b3b; }
  selectIds(rows.map((row) => photos.ids[row]));
}

function isInside(x, y) {
  let inside = false;
  for (let at = 0, before = lasso.length - 1; at < lasso.length; before = at++) {
    const [x0, y0] = lasso[at], [x1, y1] = lasso[before];
    if (y0 > y !== y1 > y && x < ((x1 - x0) * (y - y0)) / (y1 - y0) + x0) inside = !inside;
  }
  return inside;
}

async function show(id) {
  panel.hidden = false;
  const search = (other) => `/?${new URLSearchParams({ id: other })}`;
  $("a", panel).href = search(id);
  Object.assign($("img", panel), { src: photoUrl(id, "large"), alt: `Find photos similar to ${id}` });
  $(".name", panel).textContent = id;
  const answer = await send("search/ids", { ids: [id], k: 8 });
  if (!answer || $(".name", panel).textContent !== id) return;
  $("ul", panel).replaceChildren(...answer.results[0].map((hit) => {
    const item = createElement("li"), button = createElement("button", { type: "button", onclick: () => show(hit.id) });
    button.append(createElement("img", { src: photoUrl(hit.id), alt: hit.id }));
    item.append(button);
    return item;
  }));
}

const tools = {
  in: () => zoom(1.5),
  out: () => zoom(1 / 1.5),
  close: () => { panel.hidden = true; },
  lasso: (button) => button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true"),
};
for (const button of canvas ? $$("[data-map]") : []) button.addEventListener("click", () => tools[button.dataset.map](button));

const pointers = new Map(); // id -> the last event of each finger
let moved = 0;
canvas?.addEventListener("pointerdown", (event) => {
  if (event.button || !photos) return;
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, event);
  moved = 0;
  if (event.shiftKey || $("[data-map=lasso]").getAttribute("aria-pressed") === "true") lasso = [toMap(event)];
});
canvas?.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) return;
  moved += Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY);
  pointers.set(event.pointerId, event);
  const [other] = [...pointers.values()].filter(({ pointerId }) => pointerId !== event.pointerId);
  if (other) {
    const distance = (from) => Math.hypot(from.clientX - other.clientX, from.clientY - other.clientY);
    zoom(distance(event) / Math.max(1, distance(before)), toMap(other));
  } else if (lasso) {
    lasso.push(toMap(event));
  } else {
    view.x -= ((event.clientX - before.clientX) * ratio()) / view.scale;
    view.y -= ((event.clientY - before.clientY) * ratio()) / view.scale;
  }
  schedule();
});
for (const type of ["pointerup", "pointercancel"]) {
  canvas?.addEventListener(type, (event) => {
    if (!pointers.delete(event.pointerId)) return;
    const row = type === "pointerup" && moved < 5 ? nearest(toMap(event)) : -1;
    if (row >= 0) show(photos.ids[row]);
    else if (lasso && type === "pointerup") select();
    lasso = null;
    schedule();
  });
}
canvas?.addEventListener("wheel", (event) => {
  event.preventDefault();
  if (photos) zoom(Math.exp(-event.deltaY / 400), toMap(event));
}, { passive: false });
canvas?.addEventListener("keydown", (event) => {
  const step = (0.1 * canvas.width) / view.scale;
  const move = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
  if (!photos || event.ctrlKey || event.metaKey || event.altKey) return;
  if (move) { view.x += move[0]; view.y += move[1]; schedule(); }
  else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.5 : 1 / 1.5);
  else if (event.key === "Enter") { const row = nearest([view.x, view.y]); if (row >= 0) show(photos.ids[row]); }
  else return;
  event.preventDefault();
});
