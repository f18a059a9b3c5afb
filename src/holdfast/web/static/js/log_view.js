// The output of a trial: it follows while the trial writes, unless one has scrolled up. The page keeps the last megabyte.

import { api } from "./api.js";
import { bytes } from "./format.js";
import { Tail } from "./tail.js";
import { html, Failed, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "./ui.js";

const FIRST_BYTES = 256 * 1024;
const EVERY_MS = 1000;

/** Reads a log from its end, then what is new, each second while `follows`. */
function useTail(key, trial, name, follows) {
  const tail = useMemo(() => new Tail(), [key, trial, name]);
  const [, redraw] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    let timer = 0;
    let isWanted = true;
    const read = async () => {
      let more = false;
      try {
        const piece = await api.log(key, trial, name, tail.next ?? -FIRST_BYTES);
        if (!isWanted) return;
        more = tail.take(piece);
        redraw();
      } catch (error) {
        tail.error = error;
        if (isWanted) redraw();
      }
      if (isWanted && (more || follows)) timer = setTimeout(read, more ? 0 : document.hidden ? 5 * EVERY_MS : EVERY_MS);
    };
    read();
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [tail, follows]);
  return tail;
}

export function LogView({ facts, trial, logs, follows, chosen, onChoose }) {
  const log = logs.find(({ name }) => name === chosen) ?? logs[0];
  return html`<div class="row log-tools"><label>Output of <select id="log-choice" value=${log.name} onChange=${(event) => onChoose(event.target.value)}>${logs.map(({ name, label, size_bytes }) => html`<option key=${name} value=${name}>${label || name}${size_bytes === null ? "" : ` (${bytes(size_bytes)})`}</option>`)}</select></label></div>
    <${Lines} key=${log.name} tail=${useTail(facts.key, trial, log.name, follows)} follows=${follows} name=${log.label || log.name} />`;
}

function Lines({ tail, follows, name }) {
  const box = useRef();
  const [isPinned, pin] = useState(true);
  const [search, setSearch] = useState("");
  const [at, setAt] = useState(0);
  const found = useMemo(() => tail.find(search), [tail.text, search]);
  const current = found.length === 0 ? -1 : Math.min(at, found.length - 1);
  useLayoutEffect(() => {
    if (isPinned && search === "") box.current.scrollTop = box.current.scrollHeight;
  }, [tail.text, isPinned]);
  useLayoutEffect(() => {
    const mark = box.current.querySelector("mark.current");
    if (mark) box.current.scrollTop = mark.offsetTop - box.current.clientHeight / 2;
  }, [current, search]);
  const scrolled = () => {
    if (!box.current) return; // the last scroll comes when the log is gone
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    pin(scrollHeight - scrollTop - clientHeight < 24);
  };
  const step = (by) => setAt((current + by + found.length) % Math.max(1, found.length));
  return html`
    <div class="row log-tools">
      <input type="search" aria-label=${`Search in ${name}`} placeholder="Search in the output" value=${search} onInput=${(event) => { setSearch(event.target.value); setAt(0); }} onKeyDown=${(event) => { if (event.key === "Enter") { event.preventDefault(); step(event.shiftKey ? -1 : 1); } }} />
      ${search !== "" && html`<span class="dim" role="status">${found.length === 0 ? "not found" : `${current + 1} of ${found.length}${found.length >= 1000 ? " or more" : ""}`}</span>
        <button type="button" class="small" disabled=${found.length === 0} onClick=${() => step(-1)}>Previous</button><button type="button" class="small" disabled=${found.length === 0} onClick=${() => step(1)}>Next</button>`}
      <span class="grow"></span>
      <span class="dim small">${tail.isAnew && "Its file became shorter: read again from its beginning. "}${tail.isCut ? `the last ${bytes(tail.text.length)} of ${bytes(tail.size)}` : bytes(tail.size ?? null)}${follows ? (isPinned ? ", follows" : ", does not scroll while you read") : ""}</span>
      ${!isPinned && html`<button type="button" class="small" onClick=${() => { setSearch(""); pin(true); box.current.scrollTop = box.current.scrollHeight; }}>To the end</button>`}
    </div>
    ${tail.error && html`<${Failed} error=${tail.error} />`}
    <pre class="log" ref=${box} tabindex="0" aria-label=${`Output: ${name}`} onScroll=${scrolled}>${tail.text === "" ? html`<span class="dim">${tail.next === null ? "Reading…" : follows ? "Nothing yet. What the trial prints appears here." : "The trial printed nothing here."}</span>` : html`<${Marked} text=${tail.text} found=${found} length=${search.length} current=${current} />`}</pre>`;
}

function Marked({ text, found, length, current }) {
  if (found.length === 0) return text;
  const pieces = [];
  let from = 0;
  found.forEach((start, at) => {
    pieces.push(text.slice(from, start), html`<mark key=${at} class=${at === current ? "current" : ""}>${text.slice(start, start + length)}</mark>`);
    from = start + length;
  });
  pieces.push(text.slice(from));
  return pieces;
}
