// The page from top to bottom: what it is about, the answer, the charts, the tables.

function section(id, title, ...children) {
  return html('section', {id}, html('h2', {}, title), children);
}

// The address keeps the settings, so a link only scrolls.
function contents(sections) {
  const link = (one) => {
    const click = (event) => {
      event.preventDefault();
      one.scrollIntoView();
    };
    return html('a', {href: '#' + one.id, click}, one.querySelector('h2').textContent);
  };
  const titled = sections.filter((one) => one.querySelector('h2'));
  return html('nav', {class: 'controls', 'aria-label': 'contents'}, titled.map(link));
}

function study_sections(summary) {
  const has_differences = summary.methods.some((group) => group.vs_baseline);
  const has_target = summary.target && summary.methods.some((group) => group.to_target && group.n > 0);
  const chart = (build) => attempted('This chart', () => build(summary));
  return [
    section(
        'study', 'What the study found', chart(tradeoff_chart), has_differences && chart(forest_chart),
        has_target && chart(target_chart)),
    section('all-methods', 'All methods', attempted('The table', () => methods_table(summary))),
  ];
}

function evidence_section(reproduction) {
  const printed = () => html(
      'details', {}, html('summary', {}, 'The table as the program prints it'),
      html('pre', {tabindex: 0}, reproduction.table));
  const has_numbers = (reproduction.measured || []).length > 0;
  return section(
      'evidence', 'The evidence', has_numbers && measured_chart(reproduction),
      has_numbers && measured_table(reproduction), reproduction.table && printed());
}

function sections_of(data, shown) {
  const {summary, reproduction} = data, charts = [attempted('The runs', () => charts_of_runs(data, shown))].flat();
  const has_results = data.kind !== 'study' && shown.some((run) => run.result && Object.keys(run.result).length > 0);
  return [
    summary ? attempted('The study', () => study_sections(summary)) : [],
    reproduction ? attempted('The evidence', () => evidence_section(reproduction)) : [],
    has_results ? section('all-results', 'Results', attempted('The table', () => results_table(shown))) : [],
    charts.length ? section('training', 'The runs', charts) : [],
    summary && (summary.grid || []).length ?
        section('tuning', 'Settings', attempted('The grid', () => grid_chart(summary))) :
        [],
    data.runs.length ? section('all-runs', 'Every run', attempted('The table', () => runs_table(data.runs))) : [],
  ].flat();
}

function text_list(texts) {
  return html('ul', {}, texts.map((one) => html('li', {}, named(one))));
}

function build(data) {
  const ratio = shorten_labels(data), shown = data.runs.filter(is_shown), {summary, reproduction} = data;
  const words = data.runs.length > 0 && !reproduction ? [words_section(data)] : [];
  const sections = [...sections_of(data, shown), ...words], notes = summary ? summary.notes || [] : [];
  const answer = () => {
    if (reproduction) return verdict_section(reproduction);
    return summary ? answer_section(summary) : plain_answer(data, shown);
  };
  const notices = () => html(
      'section', {id: 'notices', class: 'notices'}, html('h2', {}, 'What to know about these data'),
      text_list(data.notices));
  return [
    html(
        'header', {}, html('div', {class: 'masthead'}, html('h1', {}, named(data.title || 'report')), theme_switch()),
        data.problem && html('p', {class: 'problem'}, named(data.problem), ratio), follow(data.live)),
    data.notices.length > 0 && notices(),
    attempted('The answer', answer),
    sections.length > 1 && contents(sections),
    ...sections,
    notes.length > 0 && section('notes', 'Notes', text_list(notes)),
    html(
        'footer', {}, 'Made by ', named(data.made_by || 'sparsewire'),
        '. This file is complete: it needs no network and asks for nothing.'),
  ].filter(Boolean);
}

function main() {
  const page = document.getElementById('page');
  try {
    apply_theme();
    follow_address();
    page.replaceChildren(...build(read_data()));
    draw_figures();
  } catch (error) {
    page.append(html('p', {role: 'alert'}, 'This report cannot be shown: ' + error.message));
    throw error;
  }
}

main();
