# The scripts of the page, in the order in which they are joined into one function. They declare; main.js, the last, starts.
set(report_scripts
    dom.js format.js statistics.js state.js theme.js data.js scales.js save.js hover.js figure.js lines.js rows.js progress.js
    answer.js answer_text.js study_charts.js heatmap.js bars.js table.js tables.js reproduction.js live.js main.js)
