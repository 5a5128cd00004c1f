# The scripts of the page, in the order in which they are joined into one function.
set(report_scripts page.js)
