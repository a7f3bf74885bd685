//! Results as tables, fio's JSON and HTML
