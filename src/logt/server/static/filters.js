// The filters: a choice is applied at once, a typed date when the focus leaves the fields or with Enter. The page that is
// loaded then has the focus where it was.

import { $, $$ } from "./dom.js";

const form = $("#filters");
const FOCUS = "logt-focus";
let typed = null; // the date field that keys were pressed in

// Leave out what is empty or the default, so that the URL is short.
form?.addEventListener("formdata", ({ formData }) => {
  for (const [name, value] of [...formData]) if (!value || (name === "order" && value === "date")) formData.delete(name);
});

// While a date is typed, each digit can make it another valid date: 0002-07-01 on the way to 2023-07-01.
form?.addEventListener("keydown", (event) => {
  if (event.target.matches("[type=date]") && event.key !== "Tab") typed = event.target;
});
form?.addEventListener("pointerdown", (event) => {
  if (event.target === typed) typed = null; // the calendar of the field
});
form?.addEventListener("change", (event) => {
  if (event.target !== typed && event.target.matches("select, [type=date]")) form.requestSubmit();
});

// From one date to the other, nothing is sent: the second one may be typed already when the answer comes.
form?.addEventListener("focusout", (event) => {
  if (event.relatedTarget?.matches("#filters input, #filters button")) return;
  const dates = $$("[type=date]", form);
  if (dates.some((date) => date.value !== date.defaultValue && !date.validity.badInput)) form.requestSubmit();
});

const focused = sessionStorage.getItem(FOCUS);
if (focused) $(`#filters [name="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
addEventListener("pagehide", () => {
  sessionStorage.setItem(FOCUS, (form?.contains(document.activeElement) && document.activeElement.name) || "");
});

// Return whether the user is in the filters, or has typed what is not applied yet.
export function filtersInUse() {
  if (!form) return false;
  return form.contains(document.activeElement) || $$("input", form).some((input) => input.value !== input.defaultValue);
}
