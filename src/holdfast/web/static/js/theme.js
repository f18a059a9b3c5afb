// Dark or light: as the system says, unless the user has chosen; the choice is remembered.

const NAME = "holdfast-theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

export function chosenTheme() {
  try {
    const theme = localStorage.getItem(NAME);
    return theme === "light" || theme === "dark" ? theme : "auto";
  } catch {
    return "auto"; // a notebook's frame may have no storage
  }
}

/** What the button changes to: first what looks different from the system's, so that no first click seems to do nothing. */
export function nextTheme(theme) {
  const order = dark.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
  return order[(order.indexOf(theme) + 1) % order.length];
}

export function chooseTheme(theme) {
  try {
    localStorage.setItem(NAME, theme);
  } catch {
    // it lasts until the page is closed
  }
  apply(theme);
  return theme;
}

function apply(theme) {
  document.documentElement.dataset.theme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
  window.dispatchEvent(new Event("themechange"));
}

dark.addEventListener("change", () => apply(chosenTheme()));
apply(chosenTheme());
