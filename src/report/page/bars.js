// Time of each stage, stacked, and bytes up and down: a row for each method.

const STAGES = ["sift", "encode", "exchange", "decode", "merge", "apply"];

function mean_column(runs, key) {
  let sum = 0, n = 0;
  for (const run of runs) for (const value of column(run, key) || []) if (is_number(value)) { sum += value; ++n; }
  return n ? sum / n : null;
}

function runs_by_method(runs) {
  return method_items(runs).map((item) => ({...item, runs: runs.filter((run) => run.method === item.index)}));
}

function stage_chart(runs) {
  const present = STAGES.filter((stage) => runs.some((run) => (column(run, "ns_" + stage) || []).some(is_number)));
  const shown = () => present.filter((stage) => !(stage === "exchange" && setting("stages.exchange") === "0"));
  const colour = (stage) => "var(--s" + STAGES.indexOf(stage) + ")";
  const times = runs_by_method(runs).map((item) => ({...item, means: Object.fromEntries(present.map((stage) => [stage, mean_column(item.runs, "ns_" + stage) || 0]))}));
  const rows = () => times.map((item) => {
    let low = 0;
    const marks = shown().map((stage) => {
      const high = low + item.means[stage] / 1e9, mark = {kind: "bar", low, high, colour: colour(stage), text: stage, hint: stage + ": " + seconds_text(item.means[stage] / 1e9)};
      low = high;
      return mark;
    });
    return {...item, marks, text: seconds_text(low)};
  });
  return row_chart({
    id: "stages", title: "Time of a step by stage", rows, axis: {words: "mean time of a step on rank 0", format: seconds_text, from_zero: true},
    key: () => shown().map((stage) => ({label: stage, colour: colour(stage)})),
    csv: () => [["method", ...present.map((stage) => "ns_" + stage)]].concat(times.map((item) => [item.label, ...present.map((stage) => item.means[stage])])),
    controls: () => (present.includes("exchange") ? [check_of("stages.exchange", "with exchange (includes waiting for others)", setting("stages.exchange") !== "0",
        (to) => set("stages.exchange", to ? null : 0))] : []),
    caption: "Measured on the machine of these runs, mean over the lines of the metrics. Exchange includes waiting for other workers, so on few cores it mostly shows how busy the machine was.",
  });
}

function last_number(run, key) {
  const values = column(run, key) || [];
  for (let i = values.length - 1; i >= 0; --i) if (is_number(values[i])) return values[i];
  return null;
}

function bytes_chart(runs) {
  const kinds = [["total_bytes_up", "up", "triangle"], ["total_bytes_down", "down", "down"]];
  const totals = runs_by_method(runs).map((item) => ({...item, means: Object.fromEntries(kinds.map(([key]) => {
    const values = item.runs.map((run) => last_number(run, key)).filter(is_number);
    return [key, values.length ? mean_of(values) : null];
  }))}));
  const rows = () => totals.map((item) => {
    const marks = kinds.filter(([key]) => is_number(item.means[key]))
        .map(([key, words, shape]) => ({kind: "value", marker: shape, is_open: key === "total_bytes_down", x: item.means[key], hint: words + ": " + bytes_text(item.means[key])}));
    return {...item, marks: marks.filter((mark) => mark.x > 0), text: kinds.map(([key, words]) => words + " " + bytes_text(item.means[key])).join(", ")};
  });
  return row_chart({
    id: "bytes", title: "Bytes of all steps", rows, axis: {words: "bytes of all workers, mean over the runs", format: bytes_text, is_log: true},
    key: () => [{label: "up, from the workers", draw: (x, y) => marker("triangle", x, y, 5, "var(--soft)")}, {label: "down, to the workers", draw: (x, y) => marker("down", x, y, 5, "var(--soft)", true)}],
    csv: () => [["method", ...kinds.map(([key]) => key)]].concat(totals.map((item) => [item.label, ...kinds.map(([key]) => item.means[key])])),
    caption: "What all workers sent and received until the last line of the metrics, with headers and trailers. A method that compresses the uplink alone gets the union of all workers’ entries back, which is why down is larger than up.",
  });
}
