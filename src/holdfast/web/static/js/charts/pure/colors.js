// Colours for numbers: viridis, which is even in lightness and safe for colour-blind people.

const VIRIDIS = ["#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
// From what stands out most on the page's background to what stands out least; without the end that it would hide.
const PROMINENT = { light: VIRIDIS.slice(0, 8), dark: VIRIDIS.slice(3).reverse() };

/** The colours from the lowest value to the highest; the best value of a goal ("min" or "max") stands out most. */
export const colors = (theme, mode = "min") => (mode === "max" ? [...PROMINENT[theme]].reverse() : PROMINENT[theme]);

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** The colour at `share` (from 0 to 1) of a list of colours. */
export function mixed(list, share) {
  const place = Math.min(Math.max(share, 0), 1) * (list.length - 1);
  const at = Math.min(Math.floor(place), list.length - 2);
  const [from, to] = [channels(list[at]), channels(list[at + 1])];
  const hex = from.map((channel, part) => Math.round(channel + (to[part] - channel) * (place - at)));
  return `#${hex.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
}

/** Where a value is between the ends of a range, from 0 to 1. */
export function shareOf(value, [low, high], log = false) {
  if (low === high) return 0.5;
  return log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
}
