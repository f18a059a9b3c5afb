// A chart: one ECharts picture with what every chart of the page needs. Size, theme, hovering, dragging, export, and a
// text and a table for those who do not see it.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../vendor/htm-preact.module.js";
import { Button, Nothing } from "./controls.js";
import { useDrag } from "./drag.js";
import { Export } from "./export.js";
import { useTheme } from "./theme.js";
import { cut } from "./pure/ticks.js";

// ECharts keeps the widths of texts in a plain object: with a parameter of this name it would write into the prototype of
// all objects. Nothing here uses this old accessor.
delete Object.prototype.__proto__;

let library = null;
/** ECharts, loaded with the first chart. */
export const echarts = () => (library ??= import("../../vendor/echarts.esm.min.js"));

const COMMON = (theme) => ({
  animation: false,
  textStyle: { fontFamily: theme.font, color: theme.text },
  tooltip: { show: false },
});

/**
 * `scene(size, theme)` describes the picture: `{option, pick?, overlay?, area?}`; keep its identity while nothing changes.
 * `option` is ECharts'. `pick(px, py)` returns what is there (`{id, tip}`: a trial's id or null, and the nodes of a
 * tooltip) or null; `overlay(hovered)` returns SVG that lies above; `area(kind, points, event)` takes a dragged area.
 *
 * `label` says in words what the picture shows; `table()` returns it as `{columns, rows}`. `onDrawn(ms)` hears how
 * long drawing took.
 */
export function Chart({
  name,
  label,
  scene,
  table,
  height = 340,
  hovered = null,
  onHover,
  onPick,
  drag = null,
  onReset,
  tools,
  note,
  onDrawn,
}) {
  const theme = useTheme();
  const host = useRef(null);
  const [size, setSize] = useState(null);
  const chart = useInstance(host, setSize);
  const drawn = useMemo(() => (size === null ? null : scene(size, theme)), [scene, size?.width, size?.height, theme]);
  useDrawn(chart, drawn, theme, name, onDrawn);
  const [asTable, setAsTable] = useState(false);
  const [tip, setTip] = useState(null);
  const area = useDrag(host, drag, (kind, points, event) => drawn?.area?.(kind, points, event));
  useEffect(() => setTip(null), [area === null, drawn]);
  const hover = (event) => {
    if (area !== null || drawn?.pick === undefined) return;
    const [x, y] = placeIn(host.current, event);
    const hit = drawn.pick(x, y);
    onHover?.(hit?.id ?? null);
    setTip(hit === null ? null : { x, y, nodes: hit.tip });
  };
  const leave = () => {
    setTip(null);
    onHover?.(null);
  };
  const pick = (event) => {
    const hit = drawn?.pick?.(...placeIn(host.current, event)) ?? null;
    if (hit?.id) onPick?.(hit.id, event);
  };
  return html`
    <figure class="chart">
      <div class="chart-area" style=${{ height: `${height}px` }} hidden=${asTable}>
        <div class=${`chart-host${drag ? " chart-drags" : ""}`} ref=${host} role="img" aria-label=${label} onPointerMove=${hover} onPointerLeave=${leave} onClick=${pick} onDblClick=${onReset}></div>
        ${
          size &&
          html`<svg class="chart-over" aria-hidden="true" width=${size.width} height=${size.height}>
          ${drawn?.overlay?.(hovered)}
          ${area && html`<polygon class="chart-dragged" points=${area.map((point) => point.join(",")).join(" ")} />`}
        </svg>`
        }
        ${tip && size && html`<${Tip} ...${tip} size=${size} />`}
      </div>
      ${asTable && html`<${Table} ...${table()} />`}
      <figcaption class="chart-foot">
        <span class="chart-note">${note}</span>
        <span class="chart-tools">
          ${tools}
          ${table && html`<${Button} text=${asTable ? "Chart" : "Table"} label=${asTable ? `Show ${name} as a chart` : `Show ${name} as a table`} onClick=${() => setAsTable(!asTable)} />`}
          ${drawn && html`<${Export} name=${name} table=${table} picture=${() => ({ chart, option: { ...COMMON(theme), ...drawn.option }, size, theme })} />`}
        </span>
      </figcaption>
    </figure>`;
}

function placeIn(host, event) {
  const box = host.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

/** The ECharts instance of an element, once it has a size; `setSize` follows the size. */
function useInstance(host, setSize) {
  const [chart, setChart] = useState(null);
  useEffect(() => {
    let instance = null;
    let isGone = false;
    const observer = new ResizeObserver(([{ contentRect }]) => {
      const size = { width: Math.floor(contentRect.width), height: Math.floor(contentRect.height) };
      if (size.width === 0 || size.height === 0) return;
      instance?.resize(size);
      setSize(size);
    });
    echarts().then((library) => {
      if (isGone) return;
      const first = new ResizeObserver(([{ contentRect }]) => {
        if (isGone || contentRect.width === 0) return;
        first.disconnect();
        instance = library.init(host.current, null, { renderer: "canvas" });
        setChart(instance);
        observer.observe(host.current);
      });
      first.observe(host.current);
      stopFirst = () => first.disconnect();
    });
    let stopFirst = () => {};
    return () => {
      isGone = true;
      stopFirst();
      observer.disconnect();
      instance?.dispose();
    };
  }, []);
  return chart;
}

function useDrawn(chart, drawn, theme, name, onDrawn) {
  useLayoutEffect(() => {
    if (chart === null || drawn === null) return;
    const start = performance.now();
    chart.setOption({ ...COMMON(theme), ...drawn.option }, { notMerge: true });
    chart.getZr().flush();
    const end = performance.now();
    performance.measure(`chart: ${name}`, { start, end });
    onDrawn?.(end - start);
  }, [chart, drawn]);
}

function Tip({ x, y, nodes, size }) {
  const style = { top: `${Math.min(y + 12, size.height - 20)}px` };
  if (x > size.width / 2) style.right = `${size.width - x + 12}px`;
  else style.left = `${x + 12}px`;
  if (y > size.height / 2) Object.assign(style, { top: "auto", bottom: `${size.height - y + 12}px` });
  return html`<div class="chart-tip" style=${style}>${nodes}</div>`;
}

/** A tooltip: a heading, and lines of a name and a value. */
export const tipOf = (heading, lines) => html`
  <strong>${cut(heading, 160)}</strong>
  <dl>${lines.filter(Boolean).map(([name, value]) => html`<dt key=${name}>${cut(name, 60)}</dt><dd>${cut(String(value), 240)}</dd>`)}</dl>`;

const MOST_ROWS = 500;

function Table({ columns, rows }) {
  if (rows.length === 0) return html`<${Nothing}>There are no values yet.<//>`;
  return html`
    <div class="chart-table" tabindex="0" role="region" aria-label="Values of the chart">
      <table>
        <thead><tr>${columns.map((column) => html`<th key=${column} scope="col">${column}</th>`)}</tr></thead>
        <tbody>${rows.slice(0, MOST_ROWS).map((row, at) => html`<tr key=${at}>${row.map((value) => html`<td>${shown(value)}</td>`)}</tr>`)}</tbody>
      </table>
      ${rows.length > MOST_ROWS && html`<p>The first ${MOST_ROWS} of ${rows.length.toLocaleString("en")} rows; the CSV has all.</p>`}
    </div>`;
}

const shown = (value) =>
  value === null || value === undefined
    ? "–"
    : typeof value === "number"
      ? String(Number(value.toPrecision(6)))
      : cut(typeof value === "string" ? value : JSON.stringify(value), 240);
