// The filters: a choice from a list is applied at once, what is typed with Enter or the button. The page that is loaded
// then has the focus where it was.

import { $, $$ } from "./dom.js";

const form = $("#filters");
const FOCUS = "logt-focus";

// Leave out what is empty or the default, so that the URL is short.
form?.addEventListener("formdata", ({ formData }) => {
  for (const [name, value] of [...formData]) if (!value || (name === "order" && value === "date")) formData.delete(name);
});

form?.addEventListener("change", (event) => {
  if (event.target.matches("select")) form.requestSubmit();
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
