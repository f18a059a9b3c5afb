// Dragging over a chart with a mouse or pen: a rectangle or a lasso. A finger scrolls the page instead.

import { useEffect, useRef, useState } from "../../vendor/htm-preact.module.js";

const FEWEST_PX = 6;

/**
 * While dragged, the corners [[x, y], ...] of the area, else null. `kind` is "rectangle", "lasso" or null (no dragging);
 * `done(kind, points, event)` gets the finished area, in pixels of `host`.
 */
export function useDrag(host, kind, done) {
  const [area, setArea] = useState(null);
  const finish = useRef(done);
  finish.current = done;
  useEffect(() => {
    const element = host.current;
    if (kind === null || element === null) return undefined;
    let points = null;
    let draggedAt = -Infinity;
    const place = (event) => {
      const box = element.getBoundingClientRect();
      return [Math.min(Math.max(event.clientX - box.left, 0), box.width), Math.min(Math.max(event.clientY - box.top, 0), box.height)];
    };
    const isLong = () => points.some(([x, y]) => Math.hypot(x - points[0][0], y - points[0][1]) >= FEWEST_PX);
    const outline = () => (kind === "lasso" ? points : corners(points[0], points.at(-1)));
    const down = (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      points = [place(event)];
    };
    const move = (event) => {
      if (points === null) return;
      points.push(place(event));
      if (!isLong()) return;
      element.setPointerCapture(event.pointerId);
      setArea(outline());
    };
    const up = (event) => {
      if (points === null) return;
      points.push(place(event));
      if (isLong()) {
        finish.current(kind, outline(), event);
        draggedAt = event.timeStamp;
      }
      cancel();
    };
    const cancel = () => {
      points = null;
      setArea(null);
    };
    // The click that a browser makes of the end of a drag belongs to the drag.
    const click = (event) => {
      if (event.timeStamp - draggedAt < 50) event.stopImmediatePropagation();
    };
    const listeners = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: cancel, click };
    for (const [name, listener] of Object.entries(listeners)) element.addEventListener(name, listener, true);
    return () => {
      for (const [name, listener] of Object.entries(listeners)) element.removeEventListener(name, listener, true);
    };
  }, [kind]);
  return area;
}

const corners = ([ax, ay], [bx, by]) => [[ax, ay], [bx, ay], [bx, by], [ax, by]];
