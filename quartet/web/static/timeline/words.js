// Texts about spans: one span in a line, a link to its rollout or train step, and a window's shares of time.

const MOST_SHARES = 6;
const SVG = "http://www.w3.org/2000/svg";

export const words = (name) => name.replaceAll("_", " ");

// `began`: seconds from the beginning of the run to the beginning of the window.
export function describe({ row, span }, began) {
  const [offset, seconds, name, reason, trace, fields] = span;
  const length = seconds >= 1 ? `${seconds.toFixed(2)} s` : `${(seconds * 1000).toFixed(1)} ms`;
  const more = Object.entries(fields).map(([key, value]) => `${words(key)} ${value}`);
  const place = [row.role, row.lane].filter(Boolean).join(", ");
  const at = `from ${(began + offset).toFixed(2)} s`;
  const what = reason ? `${words(name)}: ${reason}` : words(name);
  return [what, length, at, place, trace, ...more].filter(Boolean).join(" · ");
}

// Link to the rollout of a span, or to the rollouts of its train step; null for other spans.
export function linkTo(trace, rollouts) {
  const [kind, number = ""] = trace.split(" ");
  const [rollout] = number.split(".");
  if (kind === "rollout" && /^\d+$/.test(rollout)) return anchor(`${rollouts}/${rollout}`, `open rollout ${rollout}`);
  if (kind === "train_step" && /^\d+$/.test(number)) return anchor(`${rollouts}?train_step=${number}`, "its rollouts");
  return null;
}

function anchor(href, text) {
  return Object.assign(document.createElement("a"), { href, textContent: text });
}

// One section per module: the activities' shares of the window's time, the largest first.
export function shareSections(shares) {
  return shares.map(({ role, lanes, activities }) => {
    const [section, head, list] = ["section", "h3", "ul"].map((name) => document.createElement(name));
    head.textContent = lanes > 1 ? `${role}, ${lanes} lanes` : role;
    list.append(...activities.slice(0, MOST_SHARES).map(shareItem));
    section.append(head, list);
    return section;
  });
}

function shareItem({ name, reason, share, waits }) {
  const [item, title, number] = ["li", "span", "span"].map((tag) => document.createElement(tag));
  title.textContent = waits ? `waits for ${reason || "something"}` : words(name);
  number.textContent = `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
  if (waits) item.className = "waits";
  item.append(title, number, shareBar(share));
  return item;
}

function shareBar(share) {
  const [bar, filled] = ["svg", "rect"].map((name) => document.createElementNS(SVG, name));
  const attributes = { class: "bar", viewBox: "0 0 1 1", preserveAspectRatio: "none", "aria-hidden": "true" };
  for (const [key, value] of Object.entries(attributes)) bar.setAttribute(key, value);
  filled.setAttribute("width", Math.min(share, 1));
  filled.setAttribute("height", 1);
  bar.append(filled);
  return bar;
}
