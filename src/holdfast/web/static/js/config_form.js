// A configuration as a person types it, by parameter or as JSON. No DOM in here.

import { valueAt } from "./format.js";

/** The values of a parameter that is one of few; null for others. */
export const choicesOf = ({ choices }) => (Array.isArray(choices) && choices.length > 0 && choices.length <= 200 ? choices : null);

const WHOLE = /^(randint|qrandint|lograndint|qlograndint)$/;
const NUMERIC = /^(uniform|quniform|loguniform|qloguniform|randn|qrandn)$/;

/** The text of each parameter's field: the configuration's value, "" for one to be drawn. */
export function textsOf(space, config) {
  return Object.assign(Object.create(null), Object.fromEntries(space.map((parameter) => [parameter.name, textOf(parameter, config)])));
}

function textOf(parameter, config) {
  const { name } = parameter;
  const choices = choicesOf(parameter);
  const value = config === null ? undefined : valueAt(config, name);
  if (value === undefined) return "";
  if (choices !== null) return choices.some((choice) => JSON.stringify(choice) === JSON.stringify(value)) ? JSON.stringify(value) : "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The configuration of the fields that are not empty, nested by the "/" in their names. Raises an Error with a sentence. */
export function configOf(space, texts) {
  const config = {};
  for (const parameter of space) {
    const text = (texts[parameter.name] ?? "").trim();
    if (text !== "") put(config, parameter.name.split("/"), valueOf(parameter, text));
  }
  return config;
}

function put(config, [part, ...rest], value) {
  const at = (inner) => Object.defineProperty(config, part, { value: inner, enumerable: true, configurable: true, writable: true });
  if (rest.length === 0) return void at(value);
  if (!Object.hasOwn(config, part)) at({});
  put(config[part], rest, value);
}

function valueOf(parameter, text) {
  const { name, kind } = parameter;
  if (choicesOf(parameter) !== null) return JSON.parse(text);
  if (WHOLE.test(kind) || NUMERIC.test(kind)) {
    const value = Number(text);
    if (!Number.isFinite(value)) throw new Error(`${name} must be a number. It is “${text.slice(0, 40)}”.`);
    if (WHOLE.test(kind) && !Number.isInteger(value)) throw new Error(`${name} must be a whole number. It is ${text.slice(0, 40)}.`);
    return value;
  }
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export function jsonOf(text) {
  let config;
  try {
    config = JSON.parse(text);
  } catch (error) {
    throw new Error(`The config is not JSON: ${error.message}`);
  }
  if (config === null || typeof config !== "object" || Array.isArray(config)) throw new Error('The config must be an object, as {"lr": 0.1}.');
  return config;
}
