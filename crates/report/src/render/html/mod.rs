//! A comparison as one page that opens without a network: charts are inline
//! SVG, colours follow the reader's light or dark scheme.

mod chart;
mod cpus;
mod curves;
mod timeline;

use std::fmt::{self, Write};

use super::{
    goal_values, legend, no_figure, process_head, process_scale, scale_of, slowest_title,
    slowest_values, subtitle,
};
use crate::comparison::{
    Advice, Cell, Channels, Comparison, Direction, DirectionTable, FactRow, Judgement, Metric,
    Section, axis, noun,
};
use crate::quantity::{self, Scale, plus_minus_percent, relative_half_width};

/// Text with nothing in it that HTML would take for markup.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            plain => escaped.push(plain),
        }
    }
    escaped
}

/// The class of a change that is more than noise.
fn mark(better: bool, worse: bool) -> &'static str {
    match (better, worse) {
        (true, _) => "good",
        (_, true) => "bad",
        _ => "",
    }
}

/// The comparison as a page.
pub fn render(comparison: &Comparison) -> String {
    let mut out = String::new();
    write_page(&mut out, comparison).expect("a string takes all");
    out
}

fn write_page(out: &mut String, comparison: &Comparison) -> fmt::Result {
    let title = format!("{} on {}", comparison.job, comparison.drive);
    let title = escape(&title);
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title} - blklab</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>",
        include_str!("style.css")
    )?;
    let what = match (noun(&comparison.schedulers), comparison.schedulers.len()) {
        ("scheduler", 1) => "One I/O scheduler",
        ("scheduler", _) => "I/O schedulers compared",
        (_, 1) => "One setting",
        _ => "Settings compared",
    };
    writeln!(out, "<h1>{what}: {title}</h1>")?;
    writeln!(
        out,
        "<p class=\"soft\">{}</p>",
        escape(&subtitle(comparison))
    )?;
    writeln!(
        out,
        "<p class=\"verdict\">{}</p>",
        escape(&comparison.headline)
    )?;
    if let Some(judgement) = &comparison.judgement {
        write_goals(out, &comparison.schedulers, judgement)?;
    }
    if let Some(advice) = &comparison.advice {
        write_advice(out, advice)?;
    }
    write_notes(out, comparison)?;
    let several = comparison.sections.len() > 1;
    for section in &comparison.sections {
        write_section(out, comparison, section, several)?;
    }
    for mark in legend(comparison) {
        writeln!(out, "<p class=\"soft\">{mark}</p>")?;
    }
    write_why(out, comparison)?;
    write_slowest(out, comparison)?;
    write_parts(out, comparison)?;
    timeline::write(out, &comparison.timelines)?;
    cpus::write(out, &comparison.cpus)?;
    write_origin(out, comparison)?;
    writeln!(
        out,
        "<footer>Made by blklab {}. Percentiles are of the whole latency, from submission to \
         completion.</footer>\n</main>\n</body>\n</html>",
        env!("CARGO_PKG_VERSION")
    )
}

fn write_goals(out: &mut String, schedulers: &[String], judgement: &Judgement) -> fmt::Result {
    let sentence = escape(&judgement.sentence);
    writeln!(out, "<h2>Goals</h2>\n<p class=\"verdict\">{sentence}</p>")?;
    write!(
        out,
        "<div class=\"card\"><table>\n<thead><tr><th>Goals</th>"
    )?;
    for scheduler in schedulers {
        write!(out, "<th>{}</th>", escape(scheduler))?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for row in &judgement.rows {
        write!(out, "<tr><td>{}</td>", escape(&row.name))?;
        for value in goal_values(row) {
            write!(out, "<td>{value}</td>")?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")
}

fn write_advice(out: &mut String, advice: &Advice) -> fmt::Result {
    let sentence = escape(&advice.sentence);
    writeln!(
        out,
        "<h2>What to do</h2>\n<p class=\"verdict\">{sentence}</p>"
    )?;
    for sentence in [&advice.price, &advice.assumed] {
        if !sentence.is_empty() {
            writeln!(out, "<p>{}</p>", escape(sentence))?;
        }
    }
    for command in &advice.commands {
        let file = command.file.as_ref();
        let into = file.map_or(String::new(), |file| format!(", in {file}"));
        let when = escape(&format!("{}{into}:", command.when));
        let lines = escape(&command.lines.join("\n"));
        writeln!(out, "<p class=\"soft\">{when}</p>\n<pre>{lines}</pre>")?;
    }
    Ok(())
}

fn write_notes(out: &mut String, comparison: &Comparison) -> fmt::Result {
    for note in &comparison.notes {
        writeln!(out, "<p class=\"soft\">Note: {}</p>", escape(note))?;
    }
    Ok(())
}

fn write_section(
    out: &mut String,
    comparison: &Comparison,
    section: &Section,
    titled: bool,
) -> fmt::Result {
    if titled {
        let title = escape(&section.title);
        writeln!(
            out,
            "<h2 class=\"group\">Group {}: {title}</h2>",
            section.group_id
        )?;
        writeln!(out, "<p>{}</p>", escape(&section.verdict.sentence))?;
    }
    if let Some(axis) = axis(&comparison.schedulers) {
        writeln!(out, "<h2>Over {}</h2>", escape(axis.key))?;
        curves::legend(out, &axis)?;
        writeln!(out, "<div class=\"pair\">")?;
        for table in &section.directions {
            curves::write(out, &axis, table)?;
        }
        writeln!(out, "</div>")?;
    }
    writeln!(out, "<h2>Bandwidth</h2>\n<div class=\"pair\">")?;
    let has = |metric| move |table: &&DirectionTable| table.metrics().contains(&metric);
    for table in section.directions.iter().filter(has(Metric::Bandwidth)) {
        writeln!(out, "<div class=\"card\"><h3>{}</h3>", heading(table))?;
        chart::bandwidth(out, table)?;
        writeln!(out, "</div>")?;
    }
    writeln!(out, "</div>\n<h2>Latency</h2>")?;
    write_legend(out, section)?;
    writeln!(out, "<div class=\"pair\">")?;
    for table in section.directions.iter().filter(has(Metric::P99)) {
        let name = heading(table);
        let what = "latency over percentiles, all repeats together";
        writeln!(
            out,
            "<div class=\"card\"><h3>{name} <small>{what}</small></h3>"
        )?;
        chart::latency(out, table)?;
        writeln!(out, "</div>")?;
    }
    writeln!(out, "</div>\n<h2>Figures</h2>")?;
    for table in &section.directions {
        write_table(out, table)?;
    }
    match section.processes.is_empty() {
        true => Ok(()),
        false => write_processes(out, &comparison.schedulers, section),
    }
}

fn write_processes(out: &mut String, schedulers: &[String], section: &Section) -> fmt::Result {
    writeln!(
        out,
        "<div class=\"card\"><table>\n<thead><tr><th>Processes</th>"
    )?;
    for figures in &section.processes {
        writeln!(out, "<th>{}</th>", escape(&process_head(figures)))?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for (index, scheduler) in schedulers.iter().enumerate() {
        write!(out, "<tr><td>{}</td>", escape(scheduler))?;
        for figures in &section.processes {
            match figures.cells.get(index) {
                Some(Some(cell)) => write_figure(out, cell, process_scale(figures))?,
                _ => write!(out, "<td>{}</td>", no_figure(figures, index))?,
            }
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")
}

/// What a table is of, as a heading.
fn heading(table: &DirectionTable) -> String {
    let direction = match table.direction {
        Direction::Read => "Reads",
        Direction::Write => "Writes",
        Direction::Trim => "Trims",
        Direction::Sync => "Syncs",
    };
    match &table.job {
        Some(job) => format!("{direction} of {}", escape(job)),
        None if table.several_jobs => format!("{direction} of all jobs"),
        None => direction.to_string(),
    }
}

fn write_legend(out: &mut String, section: &Section) -> fmt::Result {
    let Some(table) = section.directions.first() else {
        return Ok(());
    };
    writeln!(out, "<ul class=\"legend\">")?;
    for (index, row) in table.rows.iter().enumerate() {
        let line = chart::legend_line(index);
        writeln!(out, "<li>{line}{}</li>", escape(&row.scheduler))?;
    }
    writeln!(out, "</ul>")
}

fn write_table(out: &mut String, table: &DirectionTable) -> fmt::Result {
    let metrics = table.metrics().iter();
    let scales: Vec<(Metric, Scale)> = metrics
        .map(|metric| (*metric, scale_of(table, *metric)))
        .collect();
    let name = heading(table);
    writeln!(
        out,
        "<div class=\"card\"><table>\n<thead><tr><th>{name}</th>"
    )?;
    for (metric, scale) in &scales {
        let unit = scale.unit;
        writeln!(out, "<th>{} <small>{unit}</small></th>", metric.name())?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for row in &table.rows {
        write!(out, "<tr><td>{}</td>", escape(&row.scheduler))?;
        for (metric, scale) in &scales {
            match row.cells.get(metric) {
                Some(cell) if row.ios > 0 => write_figure(out, cell, *scale)?,
                _ => write!(out, "<td>-</td>")?,
            }
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")
}

fn write_figure(out: &mut String, cell: &Cell, scale: Scale) -> fmt::Result {
    write!(out, "<td>{}", scale.show(cell.value.mean))?;
    match &cell.change {
        Some(change) => {
            let class = mark(change.better, change.worse);
            let text = quantity::change(&change.relative);
            write!(out, "<small class=\"{class}\">{text}</small></td>")
        }
        None => {
            let interval = plus_minus_percent(relative_half_width(&cell.value));
            write!(out, "<small>{}</small></td>", interval.unwrap_or_default())
        }
    }
}

fn write_why(out: &mut String, comparison: &Comparison) -> fmt::Result {
    if comparison.why.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<h2>Why</h2>\n<div class=\"card\"><table class=\"facts\">"
    )?;
    write!(out, "<thead><tr><th>mean of a run</th>")?;
    for scheduler in &comparison.schedulers {
        write!(out, "<th>{}</th>", escape(scheduler))?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    let columns = comparison.schedulers.len() + 1;
    for facts in comparison.why.chunk_by(|a, b| a.place == b.place) {
        let place = facts[0].place.name();
        writeln!(out, "<tr><th colspan=\"{columns}\">{place}</th></tr>")?;
        for fact in facts {
            write_fact(out, fact)?;
        }
    }
    writeln!(out, "</tbody></table></div>")
}

fn write_fact(out: &mut String, fact: &FactRow) -> fmt::Result {
    // An indented name belongs to the fact above it.
    let class = match fact.name.starts_with(' ') {
        true => " class=\"part\"",
        false => "",
    };
    let title = match fact.meaning.as_str() {
        "" => String::new(),
        meaning => format!(" title=\"{}\"", escape(meaning)),
    };
    let name = escape(fact.name.trim());
    write!(out, "<tr><td{class}{title}>{name}</td>")?;
    for value in quantity::facts(fact.unit, &fact.values) {
        write!(out, "<td>{value}</td>")?;
    }
    writeln!(out, "</tr>")
}

fn write_slowest(out: &mut String, comparison: &Comparison) -> fmt::Result {
    if comparison.slowest.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Why the tail is long</h2>")?;
    for table in &comparison.slowest {
        let title = escape(&slowest_title(table));
        write!(
            out,
            "<div class=\"card\"><table>\n<thead><tr><th>{title} <small>(median)</small></th>"
        )?;
        for scheduler in &comparison.schedulers {
            write!(out, "<th>{}</th>", escape(scheduler))?;
        }
        writeln!(out, "</tr></thead>\n<tbody>")?;
        for row in &table.rows {
            let (name, meaning) = (escape(&row.name), escape(&row.meaning));
            write!(out, "<tr><td title=\"{meaning}\">{name}</td>")?;
            for value in slowest_values(table, row) {
                write!(out, "<td>{value}</td>")?;
            }
            writeln!(out, "</tr>")?;
        }
        writeln!(out, "</tbody></table></div>")?;
    }
    Ok(())
}

/// A kind of the drive's parts, and how busy each of them was.
type Parts = (&'static str, &'static str, fn(&Channels) -> &[f64]);

const PARTS: [Parts; 3] = [
    (
        "Channels",
        "each channel of the drive had a die at work or carried data",
        |c| &c.busy,
    ),
    ("Dies", "each die's array was busy", |c| &c.dies),
    ("Planes", "each plane was busy", |c| &c.planes),
];

fn write_parts(out: &mut String, comparison: &Comparison) -> fmt::Result {
    for (title, what, of) in PARTS {
        let all = comparison.channels.iter().flat_map(of);
        let most = all.copied().fold(0.0, f64::max);
        // One plane a die says nothing new.
        let same = title == "Planes" && comparison.channels.iter().all(|c| c.planes == c.dies);
        if most == 0.0 || same {
            continue;
        }
        writeln!(
            out,
            "<h2>{title}</h2>\n<p class=\"soft\">Share of the run in which {what}; the dashed \
             line is the mean.</p>\n<div class=\"few\">"
        )?;
        for (index, channels) in comparison.channels.iter().enumerate() {
            let name = escape(&channels.scheduler);
            writeln!(out, "<div class=\"card\"><h3>{name}</h3>")?;
            chart::shares(out, (index, part_name(title)), of(channels), most)?;
            writeln!(out, "</div>")?;
        }
        writeln!(out, "</div>")?;
    }
    Ok(())
}

/// One of them.
fn part_name(title: &str) -> &'static str {
    match title {
        "Channels" => "channel",
        "Dies" => "die",
        _ => "plane",
    }
}

fn write_origin(out: &mut String, comparison: &Comparison) -> fmt::Result {
    let origin = &comparison.origin;
    let job = format!("The job, {}", comparison.job);
    let drive = format!("The drive, {}", comparison.drive);
    let machine = format!("The machine, {}", comparison.machine);
    let parts = [
        ("Command", &origin.command),
        (&job, &origin.job_text),
        (&drive, &origin.drive_text),
        (&machine, &origin.machine_text),
    ];
    writeln!(out, "<h2>To repeat it</h2>\n<div class=\"card\">")?;
    for (name, text) in parts {
        if !text.is_empty() {
            let (name, text) = (escape(name), escape(text.trim_end()));
            writeln!(out, "<h3>{name}</h3>\n<pre>{text}</pre>")?;
        }
    }
    let seeds: Vec<String> = comparison.seeds.iter().map(u64::to_string).collect();
    writeln!(out, "<p>Seeds: {}</p>\n</div>", seeds.join(", "))
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn every_tag_is_closed() {
        let page = render(&sample());
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
        let fact = "<td class=\"part\" title=\"Pages whose read by the host a program or an erase \
                    held up: their die was at it between their coming and their start.\">for each \
                    read of the host</td>";
        assert!(page.contains(fact));
    }

    #[test]
    fn same_comparison_same_bytes() {
        assert_eq!(render(&sample()), render(&sample()));
    }
}
