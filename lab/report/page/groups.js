// Methods of a study's summary, as rows of charts and tables.

// The index of a group of the summary among the methods of the page, which have its colours.
function method_index(group) {
  const same_ratio = (method) => (method.ratio ?? null) === (group.ratio ?? null);
  const same_name = (method) => method.name === group.name || method.spec === group.spec;
  const at = report.data.methods.findIndex((method) => same_name(method) && same_ratio(method));
  return at >= 0 ? at : report.data.summary.methods.indexOf(group);
}

function group_row(group) {
  const index = method_index(group), method = report.data.methods[index];
  return {index, label: method ? method.label : label_in(group), style: style_of(index)};
}

// Mean, low and high of a measure of a group; undefined where there is none.
function measured(group, key) {
  const numbers = group.measures && group.measures[key];
  const [low, high] = (numbers && numbers.ci95) || [];
  return {y: numbers ? numbers.mean : undefined, low, high};
}
