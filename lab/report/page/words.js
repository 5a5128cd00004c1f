// What methods do and what terms mean, for readers who have not met them before.

const SPARSIFIERS = {
  dense: 'all entries: the baseline that others are compared with',
  topk: 'those with the largest magnitudes',
  randomk: 'drawn at random',
  rtopk: 'drawn at random from r times as many of the largest',
  threshold: 'all whose magnitude is above a constant, which was measured first',
  regtopk: 'those with the largest magnitudes, but not where other workers are expected to cancel them',
};

// "topk:ratio=0.01" -> {name: 'topk', share: '1 %'}
function parsed_spec(spec) {
  const [name, keys = ''] = String(spec || '').split(':'), ratio = Number((/(?:^|,)ratio=([^,]+)/.exec(keys) || [])[1]);
  return {name, share: ratio > 0 && ratio <= 1 ? number_text(Number((100 * ratio).toPrecision(6))) + ' %' : ''};
}

// What a method does in a step, in a sentence; '' for one that this page does not know.
function method_sentence(config) {
  const up = parsed_spec(config.sparsifier), down = parsed_spec(config.downlink);
  if (up.name === 'dense') return 'In each step every worker sends its whole gradient.';
  if (!Object.hasOwn(SPARSIFIERS, up.name)) return '';
  const about = up.name === 'threshold' ? 'about ' : '', share = up.share ? about + up.share : 'some';
  const rest = /^none/.test(config.feedback || '') ? '. The rest is dropped' : '. The rest is kept for later steps';
  const is_kept = !/^none/.test(config.downlink_feedback || '');
  const back = !config.downlink ? '. All that the workers sent comes back, summed up' :
                                  '. Of the sum of all workers, too, only ' + (down.share || 'a part') +
          ' is sent back' + (is_kept ? ', and the rest kept for later' : '');
  return 'In each step every worker sends ' + share + ' of its gradient’s entries: ' + SPARSIFIERS[up.name] + rest +
      back + '.';
}

const TERMS = [
  ['dense', 'Every worker sends its whole gradient in every step, as training without sparsewire does.'],
  ['ratio', 'The share of the gradient’s entries that a worker sends in a step: 0.01 is 1 %.'],
  [
    'error memory',
    'What a worker has not sent yet, one number for each weight. Each step adds the gradient, and takes out what is sent.'
  ],
  [
    'up, down',
    'From the workers to whoever sums up, and the way back. A downlink is a sparsifier for the way back; both_ways means ' +
        'topk in both directions.'
  ],
  ['bytes', 'Sent and received, with headers: those of all workers, unless it says “one rank”.'],
  ['papers’ bits', '64 bits for each entry that is sent: how many publications count, without an encoding.'],
];
const STUDY_TERMS = [
  ['seed', 'Decides everything that is random in a run. Settings are chosen on tuning seeds, and judged on others.'],
  ['baseline', 'The method that all others are compared with, on equal seeds.'],
  ['target', 'A validation loss; bytes until a run reaches it can be compared even if runs end at different losses.'],
  [
    '95 % interval',
    'Where the mean over all possible seeds probably lies. If that of a difference contains 0, the study does not show ' +
        'which of the two is better.'
  ],
  ['p (Holm)', 'How surprising the difference would be if there was none, adjusted for the number of methods.'],
];

function words_section(data) {
  const specs = data.runs.map((run) => parsed_spec((run.config || {}).sparsifier).name);
  const methods = Object.keys(SPARSIFIERS).filter((name) => name !== 'dense' && specs.includes(name));
  const pairs = [
    ...TERMS, ...(data.summary ? STUDY_TERMS : []),
    ...methods.map((name) => [name, 'Sends entries of the gradient: ' + SPARSIFIERS[name] + '.'])
  ];
  return section(
      'words', 'Words',
      html(
          'div', {class: 'table'},
          html('dl', {class: 'terms'}, pairs.map(([term, text]) => [html('dt', {}, term), html('dd', {}, text)]))));
}
