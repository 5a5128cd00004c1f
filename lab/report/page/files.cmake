# The scripts of the page, in the order in which they are joined into one function. They declare; main.js, the last,
# starts.
set(report_scripts
    # what all need
    dom.js format.js statistics.js state.js theme.js data.js means.js
    # parts of charts
    scales.js save.js hover.js figure.js lines.js line_chart.js rows.js
    # the answer
    words.js answer.js answer_text.js answer_section.js plain_answer.js
    # charts
    groups.js tradeoff.js forest.js target.js heatmap.js progress.js bars.js run_charts.js
    reproduction.js measured.js
    # tables
    table.js methods_table.js runs_table.js
    # the page
    live.js main.js)
