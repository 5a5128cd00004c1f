// Numbers as text, as the program's own tables have them, and the words for columns.

const SUPERSCRIPTS = '⁰¹²³⁴⁵⁶⁷⁸⁹';

function power_text(exponent) {
  return '10' + (exponent < 0 ? '⁻' : '') +
      Array.from(String(Math.abs(exponent)), (digit) => SUPERSCRIPTS[digit]).join('');
}

function number_text(value, digits = 4) {
  if (value === null || value === undefined) return '–';
  if (typeof value !== 'number') return String(value);
  if (Number.isNaN(value)) return 'not a number';
  if (!Number.isFinite(value)) return value > 0 ? 'infinity' : '−infinity';
  if (value === 0) return '0';
  const exponent = Math.floor(Math.log10(Math.abs(value)));
  if (Number.isInteger(value) && exponent < 7) return minus(value.toLocaleString('en-US'));
  if (exponent >= 6 || exponent < -4) {
    let [mantissa, power] = value.toExponential(digits - 1).split('e');
    if (mantissa.includes('.')) mantissa = mantissa.replace(/\.?0+$/, '');
    const factor = /^-?1$/.test(mantissa) ? mantissa.slice(0, -1) : mantissa + '×';
    return minus(factor) + power_text(Number(power));
  }
  return minus(String(Number(value.toPrecision(digits))));
}

function minus(text) {
  return text.replace(/^-/, '−');
}

function scaled(value, step, units) {
  let unit = 0;
  for (; Math.abs(value) >= 999.5 && unit + 1 < units.length; value /= step) ++unit;
  const decimals = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return (unit === 0 && !Number.isInteger(value) ? number_text(value, 3) : value.toFixed(decimals)) + ' ' + units[unit];
}

function bytes_text(value) {
  return is_number(value) ? scaled(value, 1000, ['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB']) : '–';
}

function bits_text(value) {
  return is_number(value) ? scaled(value, 1000, ['bit', 'kbit', 'Mbit', 'Gbit', 'Tbit', 'Pbit']) : '–';
}

function seconds_text(value) {
  if (!is_number(value)) return '–';
  if (value === 0) return '0 s';
  if (value < 1e-3) return number_text(value * 1e6, 3) + ' µs';
  if (value < 1) return number_text(value * 1e3, 3) + ' ms';
  if (value < 120) return number_text(value, 3) + ' s';
  if (value < 7200) return number_text(value / 60, 3) + ' min';
  if (value < 172800) return number_text(value / 3600, 3) + ' h';
  return number_text(value / 86400, 3) + ' days';
}

function is_number(value) {
  return typeof value === 'number' && Number.isFinite(value);
}

// So many decimals that the half width of an interval has two digits.
function decimals_for(half) {
  if (!(half > 0) || !Number.isFinite(half)) return null;
  const decimals = Math.max(0, 1 - Number(half.toExponential(1).split('e')[1]));
  return decimals <= 6 ? decimals : null;
}

// "0.3251 ±0.0012"
function interval_text(middle, ci95, with_sign = false) {
  if (!is_number(middle)) return '–';
  const half = ci95 ? (ci95[1] - ci95[0]) / 2 : 0;
  const decimals = decimals_for(half);
  const text = decimals === null ? number_text(middle, with_sign ? 2 : 5) : minus(middle.toFixed(decimals));
  const signed = with_sign && middle >= 0 ? '+' + text : text;
  if (!ci95) return signed;
  return signed + ' ±' + (decimals === null ? number_text(half, 1) : half.toFixed(decimals));
}

// "−0.046 to 0.016". An end that is not 0 is not rounded to 0: on which side of it an interval ends is what readers
// look for.
function range_text(ci95) {
  const decimals = decimals_for((ci95[1] - ci95[0]) / 2);
  const is_lost = (end) => end !== 0 && Number(end.toFixed(decimals)) === 0;
  const text = (end) => (decimals === null || is_lost(end) ? number_text(end, 2) : minus(end.toFixed(decimals)));
  return ci95.map(text).join(' to ');
}

function p_text(p) {
  if (!is_number(p)) return '–';
  return p < 0.001 ? '<0.001' : p.toFixed(3);
}

// Always three digits, so that numbers below one another compare: "0.370".
function three_digits(value) {
  const size = Math.abs(value);
  return size >= 0.0009995 && size < 999.5 ? minus(value.toPrecision(3)) : number_text(Number(value.toPrecision(3)), 3);
}

// "1/54.0" for less, "1.25" for more: a part of something, with three digits.
function quotient_text(quotient) {
  if (!is_number(quotient) || quotient <= 0) return '–';
  return quotient < 1 ? '1/' + three_digits(1 / quotient) : three_digits(quotient);
}

const WORDS = {
  step: 'steps',
  loss: 'loss of the batches',
  train_loss: 'training loss',
  validation_loss: 'validation loss',
  val_loss: 'validation loss',
  test_loss: 'test loss',
  train_accuracy: 'training accuracy',
  validation_accuracy: 'validation accuracy',
  test_accuracy: 'test accuracy',
  train_objective: 'training loss with the l2 term',
  distance: 'distance to the optimum',
  lr: 'learning rate',
  density: 'density of the update',
  memory_norm2: 'squared norm of the error memory (rank 0)',
  total_error: 'total error (rank 0)',
  server_error: 'total error of the server (rank 0)',
  server_memory_norm2: 'squared norm of the server\'s memory (rank 0)',
  sent_norm2: 'squared norm of what was sent (rank 0)',
  entries_sent: 'entries sent (rank 0)',
  entries_total: 'entries of the update',
  total_bytes_up: 'bytes up, all workers',
  total_bytes_down: 'bytes down, all workers',
  total_bytes_served: 'bytes served, all workers',
  rank_bytes_up: 'bytes up, one rank',
  rank_bytes_down: 'bytes down, one rank',
  factor_against_dense: 'times fewer bytes than dense',
  paper_bits_up: 'bits up as papers count',
  paper_bits_down: 'bits down as papers count',
  seconds: 'measured time',
  bytes: 'bytes',
  bytes_up: 'bytes up',
  bytes_down: 'bytes down',
  bytes_served: 'bytes served',
  dense_bytes: 'bytes of a dense step',
  metric: 'metric',
  val_metric: 'metric on the validation data',
  peak_memory_norm2: 'largest squared norm of an error memory',
  xi: 'xi',
  gamma: 'gamma',
  owed_norm2: 'squared norm of what is owed',
};

// The program writes what rank 0 measures; of the hook for PyTorch every rank has a file.
function whose_numbers() {
  const is_of_hook = (run) => run.series && Object.hasOwn(run.series, 'rank_bytes_up');
  return report.data && report.data.runs.some(is_of_hook) ? 'of its rank' : 'rank 0';
}

function words_of(column) {
  const words = Object.hasOwn(WORDS, column) ? WORDS[column] :
      /^ns_[a-z]+$/.test(column)             ? 'time to ' + column.slice(3) + ' (rank 0)' :
                                               column.replace(/_/g, ' ');
  return words.replace('(rank 0)', '(' + whose_numbers() + ')');
}

// The same for the result of a run, which is of all workers.
function result_words(key) {
  if (key === 'factor_against_dense') return 'times fewer bytes than dense, last step';
  return words_of(key).replace(' (' + whose_numbers() + ')', '');
}

// How values of a column are written.
function format_of(column) {
  if (/^(total_|rank_)?(dense_)?bytes/.test(column) || column === 'dense_bytes') return bytes_text;
  if (/^paper_bits/.test(column)) return bits_text;
  if (/^ns_/.test(column)) return (value) => seconds_text(value / 1e9);
  if (column === 'seconds' || column === 'link') return seconds_text;
  return number_text;
}
