// The answer of a study at the top of the page, and how it was decided.

// What the recommended method is, in the words of the command line, and how to run it again.
function settings_of(use) {
  const own = own_text(use.chosen.own), runs = report.data.runs || [], index = method_index(use);
  const ratio = is_number(use.ratio) ? ', ratio ' + use.ratio : '', tried = use.cells_tried;
  const run = runs.find((one) => one.method === index && one.phase === 'judge');
  // A run that two methods share has the name of its folder and a number.
  const file = run ? 'DIR/runs/' + run.id.replace(/-\d+$/, '') + '/config.json' : null;
  const command = () => html('code', {}, 'sparsewire train --config ', named(file));
  const sentence = run ? method_sentence(run.config || {}) : '';
  return [
    sentence && [sentence, ' '], 'That is ', html('code', {}, named(use.spec)), ratio, ', learning rate ',
    number_text(use.chosen.lr), own ? [', ', named(own)] : '',
    tried > 1 ? ', the best of ' + tried + ' settings on the tuning seeds' : '', '.',
    file ? [' To train with it: ', command(), ', DIR being the folder of the study.'] : ''
  ];
}

function answer_part(answer, summary, is_one_of_several) {
  const {outcome, why, use, measure, baseline} = answer, cautions = cautions_of(answer, summary);
  const list = (items, name) => html('ul', {class: name}, items.map((item) => html('li', {}, item)));
  const data = {'data-outcome': outcome, 'data-why': why, 'data-use': use && label_in(use), 'data-measure': measure};
  return html(
      'div', data,
      is_one_of_several && baseline && html('p', {class: 'question'}, 'Compared with ', named(label_in(baseline)), ':'),
      html('p', {class: 'headline'}, headline_of(answer)), use && html('p', {class: 'settings'}, settings_of(use)),
      list(reasons_of(answer, summary), 'reasons'),
      cautions.length > 0 &&
          html('div', {class: 'cautions'}, html('h3', {}, 'What limits this answer'), list(cautions)));
}

function answer_section(summary) {
  const {plan} = summary, answers = answers_of(summary), count = String((plan.tune_seeds || []).length);
  const tried = summary.methods.map((group) => group.cells_tried), most = Math.max(...tried);
  const with_most = summary.methods.filter((group) => group.cells_tried === most);
  const choices = Math.min(...tried) === most ? ['equally many'] :
                                                [Math.min(...tried), ' to ', most, ' (most: ', listed(with_most), ')'];
  const tuned = [
    'The settings of a method were chosen from ', choices, ' by the mean ', tuning_words(plan), ' on ', count,
    count === '1' ? ' other seed' : ' other seeds', '. Not adjusted for: choosing the ',
    'cheapest of several methods on the same seeds that judge them.'
  ];
  const question = ['Which method should be used here instead of ', named(plan.baseline), ', and what does it save?'];
  return html(
      'section', {id: 'answer', class: 'answer'}, html('p', {class: 'question'}, question),
      answers.map((answer) => answer_part(answer, summary, answers.length > 1)),
      html(
          'details', {id: 'rule', open: true}, html('summary', {}, 'How this was decided'),
          html('p', {}, rule_text(summary)), html('p', {}, summary.intervals || ''), html('p', {}, tuned)));
}
