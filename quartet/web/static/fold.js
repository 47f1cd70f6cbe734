// On a narrow screen, filters are folded away unless one is set.
"use strict";

if (matchMedia("(max-width: 40rem)").matches) {
  for (const fold of document.querySelectorAll("details[data-fold='']")) fold.open = false;
}
