// An experiment as the server would describe it, always the same.

export const BEGAN = 1_795_722_800;
const ENDED = BEGAN + 7200;
export const HOSTILE = ["<script>window.hacked=1</script>", "<img src=x onerror=window.hacked=1>", "{a|x}{b}{c}%s", "\u001b[31mred\u0000", "x".repeat(100_000)];

function random(seed) {
  let state = seed;
  return () => (state = (state * 16807) % 2147483647) / 2147483647;
}

/** `{answer, facts}` as of api/e/KEY/trials and api/e/KEY, with so many trials; the last four run. */
export function experiment(count, isHostile) {
  const next = random(7);
  const ids = Array.from({ length: count }, (_, at) => `2e8cf_${String(at).padStart(5, "0")}`);
  const columns = { index: [], name: [], status: [], stop_reason: [], iteration: [], failures: [], time_total_s: [], reported_at: [], value: [], error: [] };
  const params = { lr: [], width: [], optimizer: [], warmup: [] };
  const metrics = { loss: [], latency_ms: [] };
  ids.forEach((_, at) => {
    const [lr, width] = [10 ** (-5 + 4 * next()), [16, 32, 64, 128][Math.floor(next() * 4)]];
    const runs = at >= count - 4;
    const failed = !runs && at % 9 === 2;
    const iteration = failed && at % 2 === 0 ? 0 : Math.floor(20 + 80 * next());
    const loss = iteration === 0 ? null : 0.1 + Math.abs(Math.log10(lr) + 3) * 0.2 + 4 / width + 0.1 * next();
    const row = { index: at, name: `train_${at}`, status: runs ? "RUNNING" : failed ? "ERROR" : "TERMINATED", stop_reason: runs ? null : failed ? "failed" : "finished", iteration, failures: failed ? 2 : 0, time_total_s: iteration * 3, reported_at: iteration ? BEGAN + at * 100 + iteration * 3 : null, value: loss, error: failed ? "ValueError: loss is NaN" : null };
    for (const [name, value] of Object.entries(row)) columns[name].push(value);
    const texts = isHostile ? HOSTILE : ["sgd", "adam", "adamw"];
    for (const [name, value] of Object.entries({ lr, width, optimizer: texts[at % texts.length], warmup: at % 3 ? null : at })) params[name].push(value);
    metrics.loss.push(loss);
    metrics.latency_ms.push(loss === null ? null : width / 10 + 3 * next());
  });
  if (isHostile) {
    columns.name = columns.name.map((_, at) => HOSTILE[at % HOSTILE.length]);
    columns.error = columns.error.map((error) => error && HOSTILE[0].repeat(1000));
    params[HOSTILE[0]] = params.lr;
    // Its name is that of the accessor through which all objects can be changed.
    Object.defineProperty(params, "__proto__", { value: params.lr, enumerable: true });
    metrics[HOSTILE[2]] = metrics.loss;
  }
  const facts = {
    key: "demo", state: "finished", metric: "loss", mode: "min", goals: { loss: "min", latency_ms: "min" }, began_at: BEGAN, now: ENDED, updated_at: ENDED, max_concurrent: 4, counts: { TERMINATED: count },
    varied: Object.keys(params), metrics: Object.keys(metrics), space: [{ name: "lr", log: true }], scheduler: "ASHAScheduler", scheduler_line: "",
    timeline: [{ at: BEGAN, kind: "began", text: "The experiment began.", epoch: 1 }, { at: BEGAN + 3000, kind: "restored", text: isHostile ? HOSTILE[1] : "Restored after 2 min.", epoch: 2 }],
  };
  return { answer: { version: 1, ids, columns, params, metrics }, facts };
}

/** The page's `api`; `asked` gets what rows were asked for. */
export function api(store, facts, asked) {
  const takeovers = store.ids.slice(0, 6).map((id, at) => ({ trial_id: id, source: store.ids[(at + 1) % 6], iteration: 10 + at, source_iteration: 10, changes: { lr: [0.1, 0.2] }, at: BEGAN + 600 + at }));
  const visits = store.ids.flatMap((id, at) => [1, 3, 9].slice(0, 1 + (at % 3)).map((milestone, rung, all) => ({ trial_id: id, milestone, bracket: at % 2, promoted: rung < all.length - 1 ? true : at % 5 ? false : null, value: at % 7 ? 1 / (at + 1) + 1 / milestone : "NaN", cutoff: 0.5 + 1 / milestone, at: BEGAN + milestone })));
  return {
    async rows(_, { trials, metrics: [metric] }) {
      asked.push(trials);
      const answer = { trials: {}, missing: {} };
      for (const [id, after = "0"] of trials.map((one) => one.split(":"))) {
        const [from, to, at] = [Number(after) + 1, store.value(id, "iteration"), store.position(id)];
        const iteration = Array.from({ length: to - from + 1 }, (_, step) => from + step);
        const values = iteration.map((step) => (step % 50 === 40 ? "NaN" : (store.metrics.loss[at] ?? 1) + Math.exp(-step / 20)));
        answer.trials[id] = { from, iteration, time_total_s: iteration.map((step) => step * 3), timestamp: iteration.map((step) => BEGAN + at * 100 + step * 3), metrics: { [metric]: values }, starts: at % 5 ? [] : [{ iteration: 10, at: BEGAN }] };
      }
      return answer;
    },
    importance: async (_, metric) => ({ algorithm: "rank", metric, trials: 50, scores: { lr: 0.6, width: 0.2, [facts.varied.at(-1)]: 0.01 }, spread: {}, chance: { lr: 0.1, width: 0.1, [facts.varied.at(-1)]: 0.1 }, note: "" }),
    scheduler: async () => ({ scheduler: "ASHAScheduler", visits, takeovers }),
  };
}

export const trial = (isHostile) => ({
  trial_id: "2e8cf_00007",
  attempts: [
    { attempt: 1, began_at: BEGAN, ended_at: BEGAN + 300, from_iteration: 0, to_iteration: 40, node: "a", hostname: "a", end: "failed", why: "", error: { headline: isHostile ? HOSTILE[4] + HOSTILE[0] : "ValueError: loss is NaN" } },
    { attempt: 2, began_at: BEGAN + 400, ended_at: null, from_iteration: 40, to_iteration: 60, node: "b", hostname: "b", end: "running", why: "", error: null },
  ],
});
