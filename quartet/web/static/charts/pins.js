// Which further metrics are shown: a search in their list; the address holds the choice, and the browser remembers it.

const board = document.querySelector("[data-charts]");
const KEY = `quartet-pins ${board.querySelector("[data-run]").dataset.run}`;
const form = document.querySelector("#view");
const listed = new Set([...document.querySelectorAll("input[name=pin]")].map((box) => box.value));

/** A page that is opened without any choice takes the last one for this run: then this one is left. A metric that is not
 * listed any more, such as that of a part which is not installed, is forgotten: its address would be an error. */
const kept = location.search
  ? []
  : JSON.parse(localStorage.getItem(KEY) ?? "[]").filter((pin) => listed.has(pin));
export const leaving = kept.length > 0;
if (leaving) location.replace(`?${new URLSearchParams(kept.map((pin) => ["pin", pin]))}`);
else localStorage.setItem(KEY, JSON.stringify(new URLSearchParams(location.search).getAll("pin")));

/** The ticks of the form, and what else the address chose: axis, smoothing, zoom. */
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
