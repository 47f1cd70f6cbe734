// Colours of the style sheet, for a canvas.

const NAMES = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"];

/** What a colour of the style sheet is in the theme of the moment. */
export function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

export const nthName = (index) => NAMES[index % NAMES.length];

/** Lines that share a colour differ in their dashes. */
export const nthDash = (index) => [[], [7, 4], [2, 3], [10, 3, 2, 3], [1, 5]][index % 5];
