// What a click in a chart selects.

/** The selection after a click on a trial: this one alone, or, with a key held, with or without it. */
export function toggled(selection, id, isMore) {
  if (!isMore) return new Set([id]);
  const next = new Set(selection);
  if (!next.delete(id)) next.add(id);
  return next;
}

/** What happens on a click: Shift, Ctrl or Cmd adds or removes. */
export const picking = (selection, onSelect) => (id, event) =>
  onSelect(toggled(selection, id, event.shiftKey || event.ctrlKey || event.metaKey));
