// A chart as a picture or as values.

import { html, useState } from "../../vendor/htm-preact.module.js";
import { Button } from "./controls.js";
import { csv } from "./pure/csv.js";
import { counted } from "./pure/numbers.js";

/** `picture()` returns `{chart, option, size, theme}`; `table()` the values. */
export function Export({ name, table, picture }) {
  const [said, setSaid] = useState("");
  const file = name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const copy = async () => {
    const values = table();
    const text = csv(values);
    try {
      await navigator.clipboard.writeText(text);
      setSaid(`Copied ${counted(values.rows.length, "row")}.`);
    } catch {
      // Without https, or without the permission, a browser has no clipboard.
      saved(`${file}.csv`, new Blob([text], { type: "text/csv" }));
      setSaid("Saved as a file: this browser allows no copying here.");
    }
  };
  return html`
    <span class="chart-said" role="status">${said}</span>
    <span class="chart-export">
      ${table && html`<${Button} text="Copy CSV" label=${`Copy ${name} as CSV`} onClick=${copy} />`}
      <${Button} text="PNG" label=${`Save ${name} as PNG`} onClick=${() => saved(`${file}.png`, png(picture()))} />
      <${Button} text="SVG" label=${`Save ${name} as SVG`} onClick=${async () => saved(`${file}.svg`, await svg(picture()))} />
    </span>`;
}

function png({ chart, theme }) {
  const [, data] = chart.getDataURL({ type: "png", pixelRatio: 2, backgroundColor: theme.surface }).split(",");
  return new Blob([Uint8Array.from(atob(data), (character) => character.charCodeAt(0))], { type: "image/png" });
}

async function svg({ option, size, theme }) {
  const { init } = await import("../../vendor/echarts.esm.min.js");
  const drawing = init(null, null, { renderer: "svg", ssr: true, ...size });
  drawing.setOption({ ...option, backgroundColor: theme.surface });
  const text = drawing.renderToSVGString();
  drawing.dispose();
  return new Blob([text], { type: "image/svg+xml" });
}

function saved(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
