// Colours of the style sheet, for a canvas.

const NAMES = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"];

/** Return the value of a style sheet's colour in the current theme. */
export function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

export const nthName = (index) => NAMES[index % NAMES.length];

/** Return the dashes of the nth line, which distinguish lines of the same colour. */
export const nthDash = (index) => [[], [7, 4], [2, 3], [10, 3, 2, 3], [1, 5]][index % 5];
