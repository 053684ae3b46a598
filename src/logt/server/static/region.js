// Selection of a region of the query photo with the mouse, by touch or with the keyboard.
// A region is [left, top, right, bottom], as fractions of the photo.

import { $, $$ } from "./dom.js";

const MIN_SIZE = 0.03;
const MIN_DRAG = 0.02;
const KEY_STEP = 0.02;
const INITIAL_REGION = [0.25, 0.25, 0.75, 0.75];
const ARROW_KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export function formatRegion(region) {
  return region ? region.map((value) => value.toFixed(4)).join(",") : "";
}

export class RegionSelector {
  // container: the element around the query photo; onSearch(region) is called when the user starts a search.
  constructor(container, onSearch) {
    this.container = container;
    this.onSearch = onSearch;
    this.frame = $("#region");
    this.region = container.dataset.box ? container.dataset.box.split(",").map(Number) : null;
    this.searched = formatRegion(this.region);
    $("#clear-region").addEventListener("click", () => this.clear());
    $("#search-region").addEventListener("click", () => this.search());
    $("#select-region").addEventListener("click", () => this.start());
    this.frame.addEventListener("keydown", (event) => this.handleKey(event));
    container.addEventListener("pointerdown", (event) => this.startDrag(event));
    this.draw();
  }

  start() {
    this.region = INITIAL_REGION;
    this.draw();
    this.frame.focus();
  }

  clear() {
    this.region = null;
    this.draw();
    this.search();
  }

  search() {
    if (formatRegion(this.region) === this.searched) return;
    this.searched = formatRegion(this.region);
    this.onSearch(this.region);
  }

  draw() {
    const { region, frame } = this;
    frame.hidden = !region;
    $("#clear-region").hidden = !region;
    $("#select-region").hidden = Boolean(region);
    $("#search-region").hidden = !region || formatRegion(region) === this.searched;
    for (const hint of $$(".region-keys")) hint.hidden = !region;
    this.container.classList.toggle("selecting", Boolean(region));
    if (!region) return;
    const [left, top, right, bottom] = region;
    frame.style.inset = [top, 1 - right, 1 - bottom, left].map((value) => `${100 * value}%`).join(" ");
    const [x0, y0, x1, y1] = region.map((value) => `${Math.round(100 * value)}%`);
    frame.setAttribute("aria-label", `Region, horizontally from ${x0} to ${x1}, vertically from ${y0} to ${y1}`);
  }

  handleKey(event) {
    const direction = ARROW_KEYS[event.key];
    if (direction) {
      event.preventDefault();
      const [dx, dy] = direction.map((value) => value * KEY_STEP);
      this.region = event.shiftKey ? resize(this.region, dx, dy) : move(this.region, dx, dy);
      this.draw();
    } else if (event.key === "Enter") this.search();
    else if (event.key === "Escape") this.clear();
  }

  // Drag inside the region to move it, at a corner to resize it, elsewhere to draw a new one.
  startDrag(event) {
    if (event.button || (event.pointerType === "touch" && !this.region)) return;
    event.preventDefault();
    const { container } = this;
    const start = pointerPosition(event, container);
    const corner = event.target.dataset?.corner;
    const initial = this.region;
    const anchor = corner ? oppositeCorner(initial, corner) : start;
    const inside = event.target === this.frame;
    container.setPointerCapture(event.pointerId);
    container.onpointermove = (moveEvent) => {
      const end = pointerPosition(moveEvent, container);
      const [dx, dy] = [end[0] - start[0], end[1] - start[1]];
      if (inside) this.region = move(initial, dx, dy);
      else if (corner || Math.hypot(dx, dy) > MIN_DRAG) this.region = regionBetween(anchor, end);
      this.draw();
    };
    container.onpointerup = container.onpointercancel = ({ type }) => {
      container.onpointermove = container.onpointerup = container.onpointercancel = null;
      if (type === "pointerup") this.search();
    };
  }
}

function clamp(value, low = 0, high = 1) {
  return Math.min(Math.max(value, low), high);
}

function pointerPosition(event, element) {
  const bounds = element.getBoundingClientRect();
  return [clamp((event.clientX - bounds.left) / bounds.width), clamp((event.clientY - bounds.top) / bounds.height)];
}

function regionBetween([x0, y0], [x1, y1]) {
  const left = Math.min(x0, x1, 1 - MIN_SIZE), top = Math.min(y0, y1, 1 - MIN_SIZE);
  return [left, top, Math.max(x0, x1, left + MIN_SIZE), Math.max(y0, y1, top + MIN_SIZE)];
}

function move([left, top, right, bottom], dx, dy) {
  dx = clamp(dx, -left, 1 - right);
  dy = clamp(dy, -top, 1 - bottom);
  return [left + dx, top + dy, right + dx, bottom + dy];
}

function resize([left, top, right, bottom], dx, dy) {
  return [left, top, clamp(right + dx, left + MIN_SIZE, 1), clamp(bottom + dy, top + MIN_SIZE, 1)];
}

function oppositeCorner([left, top, right, bottom], corner) {
  return [corner.endsWith("w") ? right : left, corner.startsWith("n") ? bottom : top];
}
