//! Counts over time in a bounded number of columns, and their picture as SVG.
//!
//! Columns start with a width of a millisecond. When there are too many, pairs are merged, so that
//! a minute and a month take the same memory.
//!
//! The upper panel shows requests per second, or per minute, hour or day if there are few: received
//! (line), started (area) and rejected (dashed line). The lower panel is there if requests waited,
//! and shows the mean number waiting.

use crate::{
    flow::{Instant, time::nanos},
    replay::times::{Times, three_digits},
};
use core::{fmt::Write, time::Duration};

/// The most columns; a page shows about as many.
const MOST_COLUMNS: usize = 512;

/// Columns of equal width from the first arrival on.
#[derive(Clone, Debug)]
pub struct Timeline {
    from: Instant,
    /// In nanoseconds.
    width: u64,
    columns: Vec<Column>,
}

/// The counts of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Arrivals.
    pub offered: u64,
    /// Requests that started.
    pub admitted: u64,
    /// Requests that were rejected.
    pub rejected: u64,
    /// The waiting time in it in nanoseconds; divided by its width, the mean number waiting.
    pub waited: u64,
}

impl Timeline {
    pub(super) fn new(from: Instant) -> Self {
        Self { from, width: 1_000_000, columns: Vec::new() }
    }

    /// Counts an arrival at `now` that starts at `start` or is rejected.
    pub(super) fn note(&mut self, now: Instant, start: Option<Instant>) {
        self.at(now).offered += 1;
        match start {
            None => self.at(now).rejected += 1,
            Some(start) => {
                self.at(start).admitted += 1;
                self.wait(now, start);
            }
        }
    }

    /// Returns when the first column begins.
    pub(super) const fn from(&self) -> Instant {
        self.from
    }

    /// Returns the width of a column.
    pub fn width(&self) -> Duration {
        Duration::from_nanos(self.width)
    }

    /// Returns the columns from the first arrival on.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn wait(&mut self, mut now: Instant, start: Instant) {
        while now < start {
            let since = nanos(now.since(self.from));
            let ends = (since / self.width + 1).saturating_mul(self.width);
            let end = self.from + Duration::from_nanos(ends);
            let until = end.min(start);
            self.at(now).waited += nanos(until.since(now));
            now = until;
        }
    }

    fn at(&mut self, now: Instant) -> &mut Column {
        let since = nanos(now.since(self.from));
        while since / self.width >= MOST_COLUMNS as u64 {
            self.halve();
        }
        let index = usize::try_from(since / self.width).unwrap_or(MOST_COLUMNS);
        if index >= self.columns.len() {
            self.columns.resize(index + 1, Column::default());
        }
        &mut self.columns[index]
    }

    fn halve(&mut self) {
        self.width = self.width.saturating_mul(2);
        let pairs = self.columns.chunks(2);
        self.columns =
            pairs.map(|pair| pair.iter().fold(Column::default(), Column::plus)).collect();
    }
}

impl Column {
    fn plus(self, other: &Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            admitted: self.admitted + other.admitted,
            rejected: self.rejected + other.rejected,
            waited: self.waited.saturating_add(other.waited),
        }
    }
}

/// Styles for a page and a single picture: colours differ in grey and for colour-blind readers. No
/// variables, which only browsers know.
pub(super) const STYLE: &str = "\
.chart text{font:11px system-ui,sans-serif}\
.chart text,.chart .legend-ink{fill:#222}\
.chart .paper{fill:#fff}\
.chart .axis{stroke:#222;stroke-opacity:.35;fill:none}\
.chart .offered{stroke:#222;stroke-opacity:.75;fill:none}\
.chart .started{stroke:#0072b2;fill:#0072b2;fill-opacity:.45}\
.chart .rejected{stroke:#d55e00;stroke-dasharray:3 2;fill:none}\
.chart .legend-rejected{fill:#d55e00}\
.chart .queue{stroke:#8a6d00;fill:#8a6d00;fill-opacity:.4}\
@media screen and (prefers-color-scheme:dark){\
.chart text,.chart .legend-ink{fill:#ddd}\
.chart .paper{fill:#161616}\
.chart .axis,.chart .offered{stroke:#ddd}\
.chart .started{stroke:#56b4e9;fill:#56b4e9}\
.chart .rejected{stroke:#ff8c42}\
.chart .legend-rejected{fill:#ff8c42}\
.chart .queue{stroke:#e0c341;fill:#e0c341}}";

const WIDTH: f64 = 720.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 24.0;
const RATES: f64 = 150.0;
const GAP: f64 = 18.0;
const QUEUE: f64 = 46.0;
const BOTTOM: f64 = 22.0;

/// Draws a timeline with `title`; `alone` includes the styles.
pub(in crate::replay) fn draw(
    timeline: &Timeline,
    title: &str,
    times: &Times,
    alone: bool,
) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    _ = svg(&mut out, timeline, title, times, alone);
    out
}

/// A part of the picture: its position, and the value of its top.
struct Panel {
    top: f64,
    height: f64,
    most: f64,
}

fn svg(
    out: &mut String,
    timeline: &Timeline,
    title: &str,
    times: &Times,
    alone: bool,
) -> std::fmt::Result {
    // The scales of both panels.
    let columns = timeline.columns();
    let second = timeline.width().as_secs_f64();
    let waits = |column: &Column| number(column.waited) / 1e9 / second;
    let has_queue = columns.iter().any(|column| column.waited > 0);
    let busiest =
        columns.iter().map(|column| column.offered.max(column.admitted)).max().unwrap_or(0);
    let (unit, seconds) = unit(number(busiest) / second);
    let rate = |count: u64| number(count) / second * seconds;
    let rates = Panel { top: TOP, height: RATES, most: top_of(rate(busiest)) };
    let longest = columns.iter().map(waits).fold(0.0, f64::max);
    let queue = Panel { top: TOP + RATES + GAP, height: QUEUE, most: top_of(longest) };
    let bottom = if has_queue { queue.top + QUEUE } else { TOP + RATES };
    let height = bottom + BOTTOM;

    write!(
        out,
        "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"{}\">",
        escaped(title)
    )?;
    if alone {
        write!(out, "<style>{STYLE}</style>")?;
        write!(out, "<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>")?;
    }

    write!(out, "<text x=\"{LEFT}\" y=\"14\" font-weight=\"bold\">{}</text>", escaped(title))?;
    legend(out, has_queue)?;

    rates.axis(out, unit)?;
    rates.area(out, "started", columns.iter().map(|column| rate(column.admitted)))?;
    rates.line(out, "offered", columns.iter().map(|column| rate(column.offered)))?;
    rates.line(out, "rejected", columns.iter().map(|column| rate(column.rejected)))?;

    if has_queue {
        queue.axis(out, "")?;
        queue.area(out, "queue", columns.iter().map(waits))?;
    }

    time_axis(out, timeline, times, bottom)?;
    out.write_str("</svg>\n")
}

/// Returns the unit of an axis up to `most` per second, and its seconds: the shortest with at least
/// one request.
fn unit(most: f64) -> (&'static str, f64) {
    const UNITS: [(&str, f64); 4] = [("/s", 1.0), ("/min", 60.0), ("/h", 3600.0), ("/d", 86_400.0)];
    let fits = |(_, seconds): &(&str, f64)| most == 0.0 || most * seconds >= 1.0;
    UNITS.into_iter().find(fits).unwrap_or(UNITS[3])
}

/// Returns the value at the top of a panel whose highest one is `highest`.
fn top_of(highest: f64) -> f64 {
    if highest > 0.0 { highest } else { 1.0 }
}

impl Panel {
    fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - value / self.most)
    }

    fn axis(&self, out: &mut String, unit: &str) -> std::fmt::Result {
        let bottom = self.top + self.height;
        let right = WIDTH - RIGHT;
        write!(out, "<path class=\"axis\" d=\"M{LEFT} {}V{bottom}H{right}\"/>", self.top)?;
        let x = LEFT - 4.0;
        let most = match self.most {
            ..0.1 => format!("{:.3}", self.most),
            0.1..1.0 => format!("{:.2}", self.most),
            1.0..10.0 => format!("{:.1}", self.most),
            _ => format!("{:.0}", self.most),
        };
        write!(out, "<text x=\"{x}\" y=\"{}\" text-anchor=\"end\">{most}</text>", self.top + 9.0)?;
        write!(out, "<text x=\"{x}\" y=\"{bottom}\" text-anchor=\"end\">0{unit}</text>")
    }

    /// Draws a line with a step per column.
    fn line(
        &self,
        out: &mut String,
        class: &str,
        values: impl Iterator<Item = f64>,
    ) -> std::fmt::Result {
        write!(out, "<path class=\"{class}\" d=\"{}\"/>", self.steps(values))
    }

    /// Draws the same as an area.
    fn area(
        &self,
        out: &mut String,
        class: &str,
        values: impl Iterator<Item = f64>,
    ) -> std::fmt::Result {
        let bottom = self.top + self.height;
        write!(out, "<path class=\"{class}\" d=\"{}V{bottom}H{LEFT}Z\"/>", self.steps(values))
    }

    /// Returns a path with a step per column.
    fn steps(&self, values: impl Iterator<Item = f64>) -> String {
        let values: Vec<f64> = values.collect();
        let step = (WIDTH - LEFT - RIGHT) / number(values.len().max(1) as u64);
        let mut path = format!("M{LEFT} {}", self.top + self.height);
        let mut last = String::new();
        for (at, value) in (0..).zip(&values) {
            let y = format!("{:.1}", self.y(*value));
            // Equal columns form one step.
            if y != last {
                if at > 0 {
                    _ = write!(path, "H{:.1}", LEFT + step * number(at));
                }
                _ = write!(path, "V{y}");
                last = y;
            }
        }
        _ = write!(path, "H{:.1}", WIDTH - RIGHT);
        path
    }
}

fn legend(out: &mut String, has_queue: bool) -> std::fmt::Result {
    let words =
        [("legend-ink", "received"), ("started", "started"), ("legend-rejected", "rejected")];
    let queue = has_queue.then_some(("queue", "waiting"));
    let mut x = WIDTH - RIGHT - 78.0 * number(3 + u64::from(has_queue));
    for (class, word) in words.into_iter().chain(queue) {
        write!(out, "<rect x=\"{x}\" y=\"6\" width=\"10\" height=\"8\" class=\"{class}\"/>")?;
        write!(out, "<text x=\"{}\" y=\"14\">{word}</text>", x + 14.0)?;
        x += 78.0;
    }
    Ok(())
}

fn time_axis(
    out: &mut String,
    timeline: &Timeline,
    times: &Times,
    bottom: f64,
) -> std::fmt::Result {
    const TICKS: u32 = 4;
    let columns = u32::try_from(timeline.columns().len()).unwrap_or(u32::MAX);
    let whole = timeline.width().saturating_mul(columns);
    for tick in 0..=TICKS {
        let x = LEFT + (WIDTH - LEFT - RIGHT) * f64::from(tick) / f64::from(TICKS);
        let anchor = match tick {
            0 => "start",
            TICKS => "end",
            _ => "middle",
        };
        let since = whole * tick / TICKS;
        let label = times.tick(timeline.from() + since, whole, tick == 0);
        let label = label.unwrap_or_else(|| three_digits(since));
        let y = bottom + 14.0;
        write!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{label}</text>")?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "it becomes a place on a page")]
fn number(count: u64) -> f64 {
    count as f64
}

/// Escapes a text for HTML and SVG.
pub(crate) fn escaped(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => clean.push_str("&amp;"),
            '<' => clean.push_str("&lt;"),
            '>' => clean.push_str("&gt;"),
            '"' => clean.push_str("&quot;"),
            '\'' => clean.push_str("&#39;"),
            // XML does not allow these.
            c if c.is_control() || matches!(c, '\u{FFFE}' | '\u{FFFF}') => {
                clean.extend(c.escape_default());
            }
            c => clean.push(c),
        }
    }
    clean
}

pub(crate) fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_wait_to_the_end_of_time_ends() {
        let mut timeline = Timeline::new(Instant::EPOCH);
        let late = Instant::FAR_FUTURE - Duration::from_millis(1);
        timeline.note(late, Some(Instant::FAR_FUTURE));
        let all = timeline.columns().iter().fold(Column::default(), Column::plus);
        assert_eq!((all.offered, all.admitted, all.waited), (1, 1, 1_000_000));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_long_it_takes(
            arrivals in proptest::collection::vec((0..5_000_000_000_000_u64, proptest::option::of(0..2_000_000_000_u64)), 1..50),
        ) {
            let mut timeline = Timeline::new(Instant::EPOCH);
            for (at, wait) in &arrivals {
                let now = Instant::from_nanos(*at);
                timeline.note(now, wait.map(|wait| now + Duration::from_nanos(wait)));
            }
            let all = timeline.columns().iter().fold(Column::default(), Column::plus);
            let started = arrivals.iter().filter(|(_, wait)| wait.is_some()).count() as u64;
            prop_assert!(timeline.columns().len() <= MOST_COLUMNS);
            prop_assert_eq!(all.offered, arrivals.len() as u64);
            prop_assert_eq!((all.admitted, all.rejected), (started, all.offered - started));
            prop_assert_eq!(all.waited, arrivals.iter().filter_map(|(_, wait)| *wait).sum::<u64>());
        }
    }

    #[test]
    fn a_picture_shows_each_column_once() {
        let mut timeline = Timeline::new(Instant::EPOCH);
        for at in 0..100_u64 {
            let now = Instant::EPOCH + Duration::from_millis(at * 10);
            timeline.note(now, (at % 2 == 0).then_some(now));
        }
        let times = Times::relative(Instant::EPOCH);
        let picture = draw(&timeline, "a <b>", &times, true);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("a &lt;b&gt;") && !picture.contains("<b>"));
        assert!(picture.contains("prefers-color-scheme:dark"));
        assert!(!picture.contains("var("), "printers' tools know no variables: {picture}");
        assert!(
            !picture.contains("waiting") && !picture.contains("NaN") && !picture.contains("inf")
        );
        let now = Instant::EPOCH + Duration::from_millis(5);
        timeline.note(now, Some(now + Duration::from_millis(300)));
        assert!(draw(&timeline, "", &times, false).contains("waiting"));
    }

    #[test]
    fn the_axis_has_a_unit_in_which_few_requests_are_seen() {
        for (apart, unit, most) in [
            (Duration::from_millis(10), "/s", "100"),
            (Duration::from_secs(2), "/min", "30"),
            (Duration::from_mins(20), "/h", "3.0"),
            (Duration::from_hours(8), "/d", "3.0"),
        ] {
            let mut timeline = Timeline::new(Instant::EPOCH);
            for at in 0..2000 {
                let now = Instant::EPOCH + apart * at;
                timeline.note(now, Some(now));
            }
            let picture = draw(&timeline, "few", &Times::relative(Instant::EPOCH), true);
            assert!(picture.contains(&format!(">0{unit}</text>")), "{unit}: {picture}");
            let label = picture.split("text-anchor=\"end\">").nth(1).unwrap_or_default();
            let label = label.split('<').next().unwrap_or_default();
            let [shown, expected] = [label, most].map(|text| text.parse::<f64>().unwrap());
            assert!((expected..expected * 1.6).contains(&shown), "{unit}: {label}");
        }
    }

    #[test]
    fn nothing_can_be_drawn() {
        let picture =
            draw(&Timeline::new(Instant::EPOCH), "empty", &Times::relative(Instant::EPOCH), true);
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }

    #[test]
    fn what_clients_send_is_text() {
        assert_eq!(escaped("<script>'\"&\u{1b}"), "&lt;script&gt;&#39;&quot;&amp;\\u{1b}");
        assert_eq!(
            escaped("\u{fffd}\u{fffe}\u{ffff}\u{10000}"),
            "\u{fffd}\\u{fffe}\\u{ffff}\u{10000}"
        );
    }
}
