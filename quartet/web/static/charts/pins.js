// Choice of further metrics ("pins"), with a search in their list. The choice is stored in the address and the browser.

const board = document.querySelector("[data-charts]");
const KEY = `quartet-pins ${board.querySelector("[data-run]").dataset.run}`;
const form = document.querySelector("#view");
const listed = new Set([...document.querySelectorAll("input[name=pin]")].map((box) => box.value));

/** If the address holds no choice, the page redirects to the last choice for this run. Metrics that are no longer
 * listed, such as those of a part that is not installed, are left out, since the server rejects them. */
const kept = location.search
  ? []
  : JSON.parse(localStorage.getItem(KEY) ?? "[]").filter((pin) => listed.has(pin));
export const leaving = kept.length > 0;
if (leaving) location.replace(`?${new URLSearchParams(kept.map((pin) => ["pin", pin]))}`);
else localStorage.setItem(KEY, JSON.stringify(new URLSearchParams(location.search).getAll("pin")));

/** Load the page with the form's ticked metrics and runs, keeping axis, smoothing and zoom of the address. */
function show(event) {
  event?.preventDefault();
  const chosen = new URLSearchParams(location.search);
  for (const name of ["pin", "with"]) chosen.delete(name);
  for (const [name, value] of new FormData(form)) chosen.append(name, value);
  if (![...chosen].length) chosen.set("axis", "train_step");
  location.search = chosen;
}

form.addEventListener("submit", show);
for (const box of document.querySelectorAll("input[name=with]")) box.addEventListener("change", () => show());

const rows = [...document.querySelectorAll("[data-metrics] .metrics li")];
document.querySelector("[data-search]").addEventListener("input", ({ target }) => {
  const words = target.value.toLowerCase().split(/\s+/);
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
});
