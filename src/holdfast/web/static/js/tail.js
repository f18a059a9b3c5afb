// The end of a log that grows: at most a megabyte of it is kept. No DOM in here.

const MOST = 1_000_000;
const MOST_FOUND = 1000;

// Colours and other orders to a terminal: in a page they would be noise.
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

export class Tail {
  text = "";
  size = null;
  next = null;
  isCut = false;
  isAnew = false;
  error = null;

  constructor(most = MOST) {
    this.most = most;
  }

  /** Takes in an answer of `log/NAME`; answers whether there is more to read at once. */
  take({ size, offset, text, next }) {
    if (this.next === null) this.isCut = offset > 0;
    else if (offset !== this.next) {
      // Its file has become shorter than what the page has shown.
      this.isAnew = true;
      this.text = "";
      this.isCut = offset > 0;
    }
    this.text = shown(this.text + text.replace(ESCAPES, ""));
    if (this.text.length > this.most) {
      const from = this.text.length - this.most;
      const line = this.text.indexOf("\n", from);
      this.text = this.text.slice(line < 0 || line > from + 10_000 ? from : line + 1);
      this.isCut = true;
    }
    this.error = null;
    this.size = size;
    this.next = next;
    return next < size && next > offset;
  }

  /** Where a text stands, in capitals or not; the first thousand places. */
  find(part) {
    const found = [];
    if (part === "") return found;
    const [text, wanted] = [this.text.toLowerCase(), part.toLowerCase()];
    for (let at = text.indexOf(wanted); at >= 0 && found.length < MOST_FOUND; at = text.indexOf(wanted, at + wanted.length)) found.push(at);
    return found;
  }
}

/** A progress bar writes one line again and again: what a terminal would show of it is its last state. */
const shown = (text) => text.replace(/\r\n/g, "\n").replace(/^.*\r(?=[^\n])/gm, "");
