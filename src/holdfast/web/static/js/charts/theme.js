// The page's colours for charts, which canvas cannot take from CSS by itself.

import { useEffect, useState } from "../../vendor/htm-preact.module.js";

// Okabe and Ito (2008), for colour-blind people. On white, orange and sky blue are darker and yellow is left out: each
// colour has a contrast of at least 3:1 with the background (WCAG 1.4.11).
const PALETTES = {
  light: ["#0072b2", "#d55e00", "#008c67", "#b5578d", "#a87000", "#2b88c0", "#4d4d4d"],
  dark: ["#56b4e9", "#e69f00", "#00b386", "#cc79a7", "#f0e442", "#e8743b", "#c8ccd2"],
};
const FALLBACKS = {
  light: { text: "#1c2126", "text-dim": "#5a636d", line: "#c3c9d0", surface: "#ffffff", accent: "#0072b2" },
  dark: { text: "#e6e9ed", "text-dim": "#a2abb5", line: "#475059", surface: "#181c20", accent: "#56b4e9" },
};
export const DASHES = ["solid", [7, 4], [2, 3], [9, 3, 2, 3]];
export const SYMBOLS = ["circle", "rect", "triangle", "diamond"];
export const GLYPHS = { circle: "●", rect: "■", triangle: "▲", diamond: "◆" };

const preferred = matchMedia("(prefers-color-scheme: dark)");

function read() {
  const root = document.documentElement;
  const mode = root.dataset.theme ?? (preferred.matches ? "dark" : "light");
  const styles = getComputedStyle(root);
  const variable = (name) => styles.getPropertyValue(`--${name}`).trim() || FALLBACKS[mode][name];
  return {
    mode,
    palette: PALETTES[mode],
    text: variable("text"),
    dim: variable("text-dim"),
    line: variable("line"),
    faint: mode === "dark" ? "#2c3238" : "#e6e9ed",
    surface: variable("surface"),
    // Behind words that lie on data.
    veil: mode === "dark" ? "rgba(23,27,33,0.75)" : "rgba(255,255,255,0.75)",
    accent: variable("accent"),
    bad: PALETTES[mode][mode === "dark" ? 5 : 1],
    good: PALETTES[mode][2],
    font: getComputedStyle(document.body).fontFamily,
  };
}

/** The colours of now; a component that uses them is drawn again when the theme changes. */
export function useTheme() {
  const [theme, setTheme] = useState(read);
  useEffect(() => {
    const changed = () => setTheme(read());
    addEventListener("themechange", changed);
    preferred.addEventListener("change", changed);
    return () => {
      removeEventListener("themechange", changed);
      preferred.removeEventListener("change", changed);
    };
  }, []);
  return theme;
}

/** Colour and dash of the trial that has a slot: 28 pairs before they repeat. */
export function strokeOf(theme, slot) {
  const { palette } = theme;
  return { color: palette[slot % palette.length], type: DASHES[Math.floor(slot / palette.length) % DASHES.length] };
}
