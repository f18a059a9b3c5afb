// Loads the page again if one of its files did not come: through a tunnel, a connection can end at any time. No
// module, so that it runs although the modules fail.

window.addEventListener("load", () => {
  const waiting = document.querySelector("#app > .loading");
  if (waiting === null) return;
  const again = history.state?.again ?? 0;
  if (again < 3) {
    history.replaceState({ ...history.state, again: again + 1 }, "");
    setTimeout(() => location.reload(), 300 * 3 ** again);
  } else {
    history.replaceState({ ...history.state, again: 0 }, "");
    waiting.textContent = "The browser did not get all files of this page. Check that `holdfast web` is still running, then reload the page.";
  }
});
