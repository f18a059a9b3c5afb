// A trial's colour by a column, and the scale that explains it.

import { html } from "../../vendor/htm-preact.module.js";
import { GLYPHS, SYMBOLS, useTheme } from "./theme.js";
import { colors, mixed, shareOf } from "./pure/colors.js";
import { placeOn } from "./pure/dimensions.js";
import { short } from "./pure/numbers.js";

/** `shade(trial)` is the trial's `{color, symbol}` by the column `dim`; grey where it has no value. */
export function shades(dim, theme, mode) {
  const none = { color: theme.dim, symbol: "circle" };
  if (dim?.kind === "flat") return () => ({ color: theme.palette[0], symbol: "circle" });
  if (dim === null || dim.kind === "empty") return () => none;
  if (dim.kind === "category") {
    const { palette } = theme;
    return (trial) => {
      const place = placeOn(dim, dim.values[trial]);
      return place === null ? none : { color: palette[place % palette.length], symbol: SYMBOLS[place % SYMBOLS.length] };
    };
  }
  const list = colors(theme.mode, mode ?? "min");
  return (trial) => {
    const place = placeOn(dim, dim.values[trial]);
    return place === null ? none : { color: mixed(list, shareOf(place, dim.range, dim.log)), symbol: "circle" };
  };
}

const STEPS = 24;
const MOST_KEYS = 7;

/** What the colours mean. */
export function Scale({ dim, mode }) {
  const theme = useTheme();
  if (dim === null || dim.kind === "empty" || dim.range === null) return dim?.kind === "category" ? html`<${Keys} dim=${dim} theme=${theme} />` : null;
  const list = colors(theme.mode, mode ?? "min");
  const [low, high] = dim.range;
  const best = (end) => (mode === end ? " (best)" : "");
  return html`<span class="chart-scale">
    <span>${short(low)}${best("min")}</span>
    <svg width="96" height="12" role="img" aria-label=${`Colours from ${short(low)} to ${short(high)}${dim.log ? ", logarithmic" : ""}`}>
      ${Array.from({ length: STEPS }, (_, at) => html`<rect key=${at} x=${at * 4} y="0" width="4.5" height="12" fill=${mixed(list, at / (STEPS - 1))} />`)}
    </svg>
    <span>${short(high)}${best("max")}</span>
  </span>`;
}

function Keys({ dim, theme }) {
  const shown = dim.categories.slice(0, MOST_KEYS);
  const color = (place) => theme.palette[place % theme.palette.length];
  return html`<span class="chart-scale">
    ${shown.map((text, place) => html`<span key=${text} class="chart-scale"><svg width="12" height="14" aria-hidden="true"><text x="6" y="12" text-anchor="middle" font-size="13" fill=${color(place)}>${GLYPHS[SYMBOLS[place % SYMBOLS.length]]}</text></svg>${text}</span>`)}
    ${dim.categories.length > MOST_KEYS && html`<span>and ${dim.categories.length - MOST_KEYS} more</span>`}
  </span>`;
}
