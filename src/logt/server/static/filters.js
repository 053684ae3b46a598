// The filters: a choice is applied at once, a typed date when the focus leaves the fields or with Enter.

import { $, $$ } from "./dom.js";
import { navigate } from "./navigation.js";

let typed = null; // the date field that keys were pressed in

document.addEventListener("submit", (event) => {
  if (!event.target.matches("#filters")) return; // its property id can be the field of that name
  event.preventDefault();
  typed = null;
  const url = new URL(event.target.action);
  for (const [name, value] of new FormData(event.target)) {
    if (value && !(name === "order" && value === "date")) url.searchParams.set(name, value);
  }
  navigate(url, { focus: false });
});

// While a date is typed, each digit can make it another valid date: 0002-07-01 on the way to 2023-07-01.
document.addEventListener("keydown", (event) => {
  if (event.target.matches("#filters [type=date]") && event.key !== "Tab") typed = event.target;
});
document.addEventListener("pointerdown", (event) => {
  if (event.target === typed) typed = null; // the calendar of the field
});
document.addEventListener("change", (event) => {
  if (event.target !== typed && event.target.matches("#filters select, #filters [type=date]")) event.target.form.requestSubmit();
});

// From one date to the other, nothing is sent: the second one may be typed already when the answer comes.
document.addEventListener("focusout", (event) => {
  const form = event.target.closest("#filters");
  if (!form || event.relatedTarget?.matches("#filters input, #filters button")) return;
  const dates = $$("[type=date]", form);
  if (dates.some((date) => date.value !== date.defaultValue && !date.validity.badInput)) form.requestSubmit();
});

// Return whether the user is in the filters, or has typed what is not applied yet.
export function filtersInUse() {
  const form = $("#filters");
  if (!form) return false;
  return form.contains(document.activeElement) || $$("input", form).some((input) => input.value !== input.defaultValue);
}
