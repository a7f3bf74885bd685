//! A comparison as one page that opens without a network: its skeleton is made from the
//! templates in this folder, charts are inline SVG, and colours follow the reader's
//! light or dark scheme.

mod chart;
mod cpus;
mod curves;
mod memory;
mod study;
mod timeline;

use std::fmt::{self, Write};

use askama::Template;
use askama::filters::{Escaper, Safe};

pub use self::study::render as render_study;
use self::timeline::Timelines;
use super::{no_figure, process_scale, scale_of};
use crate::comparison::{
    CALL_PARTS, Cell, Channels, Comparison, Direction, DirectionTable, FactRow, Metric,
    ProcessFigures, Section, noun,
};
use crate::quantity::{self, Scale, plus_minus_percent, relative_half_width};

const STYLE: &str = include_str!("style.css");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The escaping of templates, named in `askama.toml`: HTML's five special characters.
#[derive(Clone, Copy)]
pub(crate) struct Markup;

impl Escaper for Markup {
    fn write_escaped_str<W: Write>(&self, mut out: W, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                plain => out.write_char(plain)?,
            }
        }
        Ok(())
    }
}

/// Escapes text for markup that is not made by a template.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    Markup
        .write_escaped_str(&mut escaped, text)
        .expect("a string takes all");
    escaped
}

/// Returns the markup that a function draws, for a template.
fn drawn(draw: impl FnOnce(&mut String) -> fmt::Result) -> Safe<String> {
    let mut out = String::new();
    draw(&mut out).expect("a string takes all");
    Safe(out)
}

/// Charts over each scheduler's first run; nothing is shown without charts.
#[derive(Template)]
#[template(path = "over_time.html")]
struct OverTime<'a> {
    title: &'static str,
    about: &'static str,
    /// The charts' colours with their meanings.
    legend: Vec<(String, &'static str)>,
    /// The charts by scheduler.
    charts: Vec<(&'a str, String)>,
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    comparison: &'a Comparison,
    memory: OverTime<'a>,
    timeline: Timelines<'a>,
    cpus: OverTime<'a>,
}

/// Returns the comparison as a page.
pub fn render(comparison: &Comparison) -> String {
    let page = Page {
        comparison,
        memory: memory::over_time(&comparison.memory),
        timeline: Timelines::new(&comparison.timelines),
        cpus: cpus::over_time(&comparison.cpus),
    };
    // A template's file ends with a newline that is not part of it.
    page.render().expect("a string takes all") + "\n"
}

/// Returns the page's subject, for its heading.
fn subject(comparison: &Comparison) -> &'static str {
    match (noun(&comparison.schedulers), comparison.schedulers.len()) {
        ("scheduler", 1) => "One I/O scheduler",
        ("scheduler", _) => "I/O schedulers compared",
        (_, 1) => "One setting",
        _ => "Settings compared",
    }
}

/// Returns a table's heading.
fn heading(table: &DirectionTable) -> String {
    let direction = match table.direction {
        Direction::Read => "Reads",
        Direction::Write => "Writes",
        Direction::Trim => "Trims",
        Direction::Sync => "Syncs",
    };
    match &table.job {
        Some(job) => format!("{direction} of {job}"),
        None if table.several_jobs => format!("{direction} of all jobs"),
        None => direction.to_string(),
    }
}

/// Returns the tables of a section that have this metric.
fn tables_with(section: &Section, metric: Metric) -> impl Iterator<Item = &DirectionTable> {
    let has = move |table: &&DirectionTable| table.metrics().contains(&metric);
    section.directions.iter().filter(has)
}

fn tables_with_bandwidth(section: &Section) -> impl Iterator<Item = &DirectionTable> {
    tables_with(section, Metric::Bandwidth)
}

fn tables_with_latency(section: &Section) -> impl Iterator<Item = &DirectionTable> {
    // The curve of a single I/O would be a point.
    let is_point = |table: &&DirectionTable| table.rows.iter().all(|row| row.curve.len() == 1);
    tables_with(section, Metric::P99).filter(move |table| !is_point(table))
}

/// Returns the columns of a table with their units.
fn columns(table: &DirectionTable) -> Vec<(Metric, Scale)> {
    let metrics = table.metrics().iter();
    metrics
        .map(|metric| (*metric, scale_of(table, *metric)))
        .collect()
}

/// A figure in a table.
#[derive(Template)]
#[template(
    ext = "html",
    source = r#"<td>{{ value }}{% if let Some(note) = note %}<small
        {%- if let Some(class) = note.class %} class="{{ class }}"{% endif %}>{{ note.text }}</small>
        {%- endif %}</td>"#
)]
struct Figure {
    value: String,
    note: Option<Note>,
}

/// A note beside a figure: its change, or its interval.
struct Note {
    /// The CSS class of a change.
    class: Option<&'static str>,
    text: String,
}

impl Figure {
    fn of(cell: &Cell, scale: Scale) -> Figure {
        let note = match &cell.change {
            Some(change) => Note {
                class: Some(mark(change.better, change.worse)),
                text: quantity::change(&change.relative),
            },
            None => Note {
                class: None,
                text: plus_minus_percent(relative_half_width(&cell.value)).unwrap_or_default(),
            },
        };
        Figure {
            value: scale.show(cell.value.mean),
            note: Some(note),
        }
    }

    /// Returns the text that replaces a missing figure.
    fn none(text: impl Into<String>) -> Figure {
        Figure {
            value: text.into(),
            note: None,
        }
    }
}

/// Returns the CSS class of a change that is more than noise.
fn mark(better: bool, worse: bool) -> &'static str {
    match (better, worse) {
        (true, _) => "good",
        (_, true) => "bad",
        _ => "",
    }
}

/// Returns a table's rows: each scheduler with its figures.
fn rows(table: &DirectionTable) -> impl Iterator<Item = (&str, Vec<Figure>)> {
    let columns = columns(table);
    table.rows.iter().map(move |row| {
        let figure = |(metric, scale): &(Metric, Scale)| match row.cells.get(metric) {
            Some(cell) if row.ios > 0 => Figure::of(cell, *scale),
            _ => Figure::none("-"),
        };
        let figures = columns.iter().map(figure).collect();
        (row.scheduler.as_str(), figures)
    })
}

/// Returns each scheduler with the figures of its processes.
fn process_rows<'a>(
    comparison: &'a Comparison,
    section: &Section,
) -> impl Iterator<Item = (&'a str, Vec<Figure>)> {
    let schedulers = comparison.schedulers.iter().enumerate();
    schedulers.map(|(index, name)| {
        let figure = |figures: &ProcessFigures| match figures.cells.get(index) {
            Some(Some(cell)) => Figure::of(cell, process_scale(figures)),
            _ => Figure::none(no_figure(figures, index)),
        };
        (
            name.as_str(),
            section.processes.iter().map(figure).collect(),
        )
    })
}

/// Returns the facts, grouped by the place where they were counted.
fn facts_by_place(comparison: &Comparison) -> impl Iterator<Item = &[FactRow]> {
    comparison.why.chunk_by(|a, b| a.place == b.place)
}

/// Returns whether a fact is subordinate to the one above it, which its indented name
/// says.
fn is_part(fact: &FactRow) -> bool {
    fact.name.starts_with(' ')
}

fn fact_values(fact: &FactRow) -> Vec<String> {
    quantity::facts(fact.unit, &fact.values)
}

/// A kind of the drive's parts.
struct Parts {
    title: &'static str,
    /// The name of one part.
    name: &'static str,
    /// The meaning of the share of time that is shown.
    meaning: &'static str,
    /// The utilization of each part.
    busy: fn(&Channels) -> &[f64],
}

const PARTS: [Parts; 3] = [
    Parts {
        title: "Channels",
        name: "channel",
        meaning: "each channel of the drive had a die at work or carried data",
        busy: |c| &c.busy,
    },
    Parts {
        title: "Dies",
        name: "die",
        meaning: "each die's array was busy",
        busy: |c| &c.dies,
    },
    Parts {
        title: "Planes",
        name: "plane",
        meaning: "each plane was busy",
        busy: |c| &c.planes,
    },
];

impl Parts {
    /// Returns the utilization of the busiest part under any scheduler.
    fn most(&self, comparison: &Comparison) -> f64 {
        let all = comparison.channels.iter().flat_map(self.busy);
        all.copied().fold(0.0, f64::max)
    }

    /// Draws a chart for each scheduler, all on one scale.
    fn charts<'a>(
        &'a self,
        comparison: &'a Comparison,
    ) -> impl Iterator<Item = (&'a str, Safe<String>)> {
        let most = self.most(comparison);
        let channels = comparison.channels.iter().enumerate();
        channels.map(move |(index, channels)| {
            let chart = chart::shares((index, self.name), (self.busy)(channels), most);
            (channels.scheduler.as_str(), chart)
        })
    }
}

/// Returns the kinds of parts that were busy.
fn parts(comparison: &Comparison) -> impl Iterator<Item = &'static Parts> {
    // With one plane in each die, planes repeat the dies.
    let same = comparison.channels.iter().all(|c| c.planes == c.dies);
    PARTS
        .iter()
        .filter(move |parts| parts.most(comparison) > 0.0 && !(parts.title == "Planes" && same))
}

/// Returns the inputs that repeat the comparison, by name.
fn origin(comparison: &Comparison) -> impl Iterator<Item = (String, &str)> {
    let origin = &comparison.origin;
    let parts = [
        ("Command".to_string(), &origin.command),
        (format!("The job, {}", comparison.job), &origin.job_text),
        (
            format!("The drive, {}", comparison.drive),
            &origin.drive_text,
        ),
        (
            format!("The machine, {}", comparison.machine),
            &origin.machine_text,
        ),
    ];
    let known = parts.into_iter().filter(|(_, text)| !text.is_empty());
    known.map(|(name, text)| (name, text.trim_end()))
}

fn seeds(comparison: &Comparison) -> String {
    let seeds: Vec<String> = comparison.seeds.iter().map(u64::to_string).collect();
    seeds.join(", ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::comparison::{Origin, compare};
    use crate::sample_run::three_schedulers;

    fn sample() -> Comparison {
        let mut comparison = compare(&three_schedulers(5));
        comparison.origin = Origin {
            command: "blklab compare mixed.fio --schedulers noop,mq-deadline,ac --repeats 5".into(),
            job_text: "[global]\nioengine=libaio\n; <script>alert('no')</script>\n[mixed]\n".into(),
            drive_text: "name = \"mx100\"\n".into(),
            machine_text: String::new(),
        };
        comparison
    }

    /// Fails at a tag that is open or closed where it should not be.
    pub(super) fn check_tags(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        for tag in page.split('<').skip(1) {
            let tag = &tag[..tag.find('>').expect("a tag ends")];
            let name = tag.split(' ').next().unwrap();
            match name.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if tag.ends_with('/') || ["!DOCTYPE", "meta"].contains(&name) => {}
                None => open.push(name),
            }
        }
        assert_eq!(open, Vec::<&str>::new());
    }

    #[test]
    fn every_tag_is_closed() {
        check_tags(&render(&sample()));
    }

    #[test]
    fn text_from_files_is_no_markup() {
        let mut comparison = sample();
        comparison.job = "<b>&\"job\"'.fio".to_string();
        comparison.schedulers[1] = "a<b".to_string();
        let page = render(&comparison);
        assert!(!page.contains("<script") && !page.contains("<b>"));
        assert!(page.contains("&lt;b&gt;&amp;&quot;job&quot;&#39;.fio"));
        assert!(page.contains("&lt;script&gt;alert(&#39;no&#39;)"));
        assert!(page.contains("<th>a&lt;b</th>"));
    }

    #[test]
    fn needs_no_network() {
        let page = render(&sample());
        for word in ["http:", "https:", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn no_coordinate_is_lost() {
        let mut odd = sample();
        for section in &mut odd.sections {
            for row in section.directions.iter_mut().flat_map(|d| &mut d.rows) {
                row.cells.clear();
                row.curve.clear();
            }
        }
        for page in [
            render(&sample()),
            render(&odd),
            render(&Comparison::default()),
        ] {
            assert!(!page.contains("NaN") && !page.contains("inf\""));
        }
    }

    #[test]
    fn shows_what_the_table_shows() {
        let comparison = sample();
        let page = render(&comparison);
        assert!(page.contains(&escape(&comparison.headline)));
        assert_eq!(page.matches("class=\"curve\"").count(), 2 * 3);
        assert_eq!(page.matches("<h3>ac</h3>").count(), 1);
        assert!(page.contains("Seeds: 1, 2, 3, 4, 5"));
        let fact = "<td class=\"part\" title=\"Page reads that a program or an erase delayed, for \
                    each read of the host.\">for each read of the host</td>";
        assert!(page.contains(fact));
    }

    #[test]
    fn twelve_rows_have_colours_of_their_own() {
        for scheme in STYLE.split("@media").take(2) {
            let colours: Vec<&str> = (0..chart::COLOURS)
                .map(|index| {
                    let name = format!("--s{index}: ");
                    let at = scheme.find(&name).expect("declared") + name.len();
                    &scheme[at..at + 7]
                })
                .collect();
            let unlike: std::collections::BTreeSet<&&str> = colours.iter().collect();
            assert_eq!(unlike.len(), 12, "{colours:?}");
        }
    }

    #[test]
    fn long_labels_are_whole_and_start_within_the_chart() {
        let mut comparison = sample();
        for section in &mut comparison.sections {
            for row in section.directions.iter_mut().flat_map(|d| &mut d.rows) {
                row.scheduler.push_str(" nr_requests=256");
            }
        }
        let page = render(&comparison);
        let label = "x=\"5.0\" y=\"17.0\" text-anchor=\"start\">noop nr_requests=256</text>";
        assert!(page.contains(label), "{page}");
        check_tags(&page);
        let short = "text-anchor=\"end\">mq-deadline</text>";
        assert!(render(&sample()).contains(short));
    }

    #[test]
    fn same_comparison_same_bytes() {
        assert_eq!(render(&sample()), render(&sample()));
    }
}
