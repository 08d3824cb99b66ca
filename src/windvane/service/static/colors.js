/** The colours of the style sheet, as a canvas needs them. */

/** @type {Map<string, string>} */
const colors = new Map();

/** @param {string} name of a custom property, without its dashes */
export function color(name) {
  if (!colors.has(name)) {
    colors.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return /** @type {string} */ (colors.get(name));
}

/** The colours of the page have changed. */
export const forgetColors = () => colors.clear();
