// Which charts the runs of a report have.

// Of the emulated time only where it can be chosen.
function progress_caption(runs) {
  const emulated =
      'Emulated time: every worker has a link of the given rate in each direction, sends and receives one ' +
      'after the other, waits the latency twice a step and computes as long as you say; a server’s own link is not a ' +
      'bottleneck. ';
  return 'A cross at the end of a line: diverged; a mean ends where its first run does. ' +
      (axes_of(runs).some((axis) => axis.key === 'link') ? emulated : '') +
      'Move over the chart, or use the arrow keys, for values.';
}

const MEMORY_CAPTION =
    'The error memory holds what was not sent yet; the total error is the sum of its squared norms ' +
    'over the steps. Smaller at equal bytes is better; dense training owes nothing.';
const DENSITY_CAPTION =
    'Density: the share of all weights that the update of a step changes. It grows with the number ' +
    'of workers where the downlink is not sparsified.';

// The column of the metrics that a study's primary measure is.
function primary_column(summary, columns) {
  const primary = summary ? summary.plan.primary : null;
  if (primary === 'metric') return columns.find((key) => /accuracy|distance/.test(key));
  return primary === 'val_loss' ? 'validation_loss' : primary;
}

function charts_of_runs(data, shown) {
  const columns = columns_of(shown);
  if (columns.length === 0) return [];
  const first = primary_column(data.summary, columns), rest = columns.filter((key) => key !== first);
  const there = (keys) => keys.filter((key) => columns.includes(key));
  const runs_of = (index) => shown.filter((run) => run.method === index);
  const has_seeds = data.methods.some((_, index) => runs_of(index).length > 1);
  const seeds = has_seeds ?
      'Lines are means over the seeds at equal steps (x too), bands their 95 % intervals (t distribution). ' :
      '';
  const progress = (id, title, keys, axis, caption) =>
      keys.length > 0 && progress_chart({id, title, columns: keys, axis, caption: seeds + caption}, shown);
  const axis = data.methods.length > 1 ? 'bytes' : 'step';
  const memory = there(['memory_norm2', 'total_error', 'server_memory_norm2', 'server_error', 'owed_norm2']);
  const density = there(['density', 'entries_sent', 'entries_total', 'xi', 'gamma']);
  const has_bytes = (run) => last_number(run, 'total_bytes_up') > 0 || last_number(run, 'total_bytes_down') > 0;
  return [
    progress('progress', 'Training, step by step', [...there([first]), ...rest], axis, progress_caption(shown)),
    progress('memory', 'What is owed: error memory and total error', memory, 'step', MEMORY_CAPTION),
    progress('density', 'How much of the model is updated in a step', density, 'step', DENSITY_CAPTION),
    shown.some(has_bytes) && bytes_chart(shown),
    there(STAGES.map((stage) => 'ns_' + stage)).length > 0 && stage_chart(shown),
  ].filter(Boolean);
}
