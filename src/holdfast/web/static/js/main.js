// Starts the page: its frame, the routes, the theme, the keys.

import { api, connection } from "./api.js";
import { sentence } from "./format.js";
import { hashOf, routeOf } from "./route.js";
import { html, render, useEffect, useLayoutEffect, useReducer, useRef, useState, useLoaded, Dialog, Icon, Failed, useErrorBoundary } from "./ui.js";
import { Toasts } from "./toast.js";
import { chosenTheme, nextTheme, chooseTheme } from "./theme.js";
import { ExperimentsPage } from "./pages/experiments.js";
import { ExperimentPage } from "./pages/experiment.js";
import { TrialPage } from "./pages/trial.js";
import { ComparePage } from "./pages/compare.js";

const PAGES = { experiments: ExperimentsPage, experiment: ExperimentPage, trial: TrialPage, compare: ComparePage };

const KEYS = [
  ["?", "show these keys"],
  ["/", "search, or filter the trials"],
  ["↑ ↓ Page Home End", "move in the table of trials"],
  ["Space", "select the row; with Shift and an arrow: several"],
  ["Enter", "open the row's trial"],
  ["Ctrl A", "select all rows that are shown"],
  ["Esc", "close a dialog or a message; in the table: select nothing"],
  ["← →", "move between tabs"],
  ["g e", "go to the list of experiments"],
];

function useRoute() {
  const [route, setRoute] = useState(() => routeOf(location.hash));
  // Before the first paint, and so before anyone can follow a link.
  useLayoutEffect(() => {
    const changed = () => setRoute(routeOf(location.hash));
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  // What is only looked at otherwise replaces the address: the Back button goes to the page before.
  const onView = (patch) =>
    setRoute((old) => {
      const next = { ...old, view: Object.assign(Object.create(null), old.view, patch) };
      history.replaceState(history.state, "", hashOf(next));
      return next;
    });
  return [route, onView];
}

const scrolled = new Map();

/** A page that one goes to begins at its top; one that one comes back to is where it was. */
function useArrival(place, main) {
  const last = useRef(null);
  useEffect(() => {
    if (last.current !== null) main.current.focus({ preventScroll: true });
    last.current = place;
    const isBack = history.state?.isSeen === true;
    history.replaceState({ isSeen: true }, "");
    if (isBack) requestAnimationFrame(() => window.scrollTo(0, scrolled.get(place) ?? 0));
    else window.scrollTo(0, 0);
    const remember = () => scrolled.set(place, window.scrollY);
    const timer = setTimeout(() => window.addEventListener("scroll", remember, { passive: true }), 300);
    return () => {
      clearTimeout(timer);
      window.removeEventListener("scroll", remember);
    };
  }, [place]);
}

function useConnection() {
  const [, changed] = useReducer((n) => n + 1, 0);
  useLayoutEffect(() => connection.subscribe(changed), []);
  return connection;
}

const isUnnamed = () => location.hash.replace(/^#\/?/, "") === "";

/** Goes to the only experiment, if the server shows one and the address names none. */
function opened(about) {
  if (about.single && isUnnamed()) {
    history.replaceState(history.state, "", hashOf({ page: "experiment", key: about.single }));
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  }
  return about;
}

function App() {
  const [route, onView] = useRoute();
  const about = useLoaded(() => api.about().then(opened), []);
  const { isLost, refused, trouble } = useConnection();
  const [showsKeys, showKeys] = useState(false);
  const main = useRef();
  const place = `${route.page} ${route.key} ${route.trial}`;
  useKeys(showKeys);
  useArrival(place, main);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <header class="top" role="banner">
      <a class="brand" href="#/">holdfast</a>
      <nav aria-label="Where you are"><${Crumbs} route=${route} /></nav>
      <span class="grow"></span>
      <button type="button" class="icon" aria-label="Keys" title="Keys (?)" onClick=${() => showKeys(true)}>?</button>
      <${Theme} />
    </header>
    <div role="status" class="banner-slot">${isLost && html`<div class="banner"><${Icon} name="warning" />The connection to the server is lost. What you see may be old. ${refused === "" ? "The page reconnects by itself." : sentence(refused)}</div>`}
      ${!isLost && trouble !== "" && html`<div class="banner"><${Icon} name="warning" />${sentence(trouble)}</div>`}</div>
    <main id="main" ref=${main} tabindex="-1">
      ${about.error !== null && about.value === null
        ? html`<${Failed} error=${about.error} retry=${about.again} />`
        : about.value === null && isUnnamed()
          ? html`<p class="loading">Loading…</p>`
          : html`<${Shown} key=${place} route=${route} view=${route.view} onView=${onView} about=${about.value} />`}
    </main>
    <footer class="bottom">${about.value && html`<span>holdfast ${about.value.version}</span> <span class="path">${about.value.place}</span>`}</footer>
    <${Toasts} />
    ${showsKeys && html`<${Dialog} title="Keys" onClose=${() => showKeys(false)}>
      <table class="plain"><tbody>${KEYS.map(([keys, what]) => html`<tr key=${keys}><th scope="row"><kbd>${keys}</kbd></th><td>${what}</td></tr>`)}</tbody></table>
    <//>`}
  `;
}

function Shown({ route, ...props }) {
  const [error, reset] = useErrorBoundary();
  const Page = PAGES[route.page];
  useEffect(() => {
    document.title = [route.trial, route.key, "holdfast"].filter(Boolean).join(" · ");
  }, [route.page, route.key, route.trial]);
  if (error) return html`<${Failed} error=${new Error(`This page failed (a bug in holdfast): ${error.message}`)} retry=${reset} />`;
  if (!Page) return html`<h1>There is no such page</h1><p>The link may be incomplete. <a href="#/">See the experiments</a>.</p>`;
  return html`<${Page} key_=${route.key} trial=${route.trial} ...${props} />`;
}

function Crumbs({ route }) {
  const items = [];
  if (route.page !== "experiments") items.push(["Experiments", "#/"]);
  if (route.key) items.push([route.key, hashOf({ page: "experiment", key: route.key })]);
  if (route.trial) items.push([route.trial, hashOf(route)]);
  if (route.page === "compare") items.push(["Compare", hashOf(route)]);
  return html`<ol class="crumbs">${items.map(([text, href], at) => html`<li key=${at}><a href=${href} aria-current=${at === items.length - 1 ? "page" : null}>${text}</a></li>`)}</ol>`;
}

function Theme() {
  const [theme, setTheme] = useState(chosenTheme());
  const names = { auto: "as the system", light: "light", dark: "dark" };
  const next = nextTheme(theme);
  return html`<button type="button" class="icon" id="theme" title=${`Colours: ${names[theme]}`} aria-label=${`Colours: ${names[theme]}. Change to: ${names[next]}`}
    onClick=${() => setTheme(chooseTheme(next))}><${Icon} name="theme" /></button>`;
}

function useKeys(showKeys) {
  useEffect(() => {
    let before = "";
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
      if (event.key === "?") showKeys(true);
      if (event.key === "/") {
        const search = document.querySelector("[data-search]");
        if (search) event.preventDefault();
        search?.focus();
      }
      if (before === "g" && event.key === "e") location.hash = "#/";
      before = event.key;
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}

const app = document.getElementById("app");
app.replaceChildren();
history.scrollRestoration = "manual";
render(html`<${App} />`, app);
