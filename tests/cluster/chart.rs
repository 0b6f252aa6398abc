//! Draws what gateways let pass beyond a limit.

use crate::simulation::{INTERVALS, LIMIT, SimulationResult, Traffic};
use std::fmt::Write as _;

/// Of a panel, in pixels.
const WIDTH: usize = 330;
const HEIGHT: usize = 220;

/// The most that is drawn, in percent of the limit.
const TOP: u64 = 120;

const COLOURS: [&str; 3] = ["#9ecae1", "#4292c6", "#084594"];

/// Draws a panel for each kind of traffic: a column for each number of gateways and interval, and
/// a line at its bound.
pub(crate) fn chart(runs: &[(Traffic, usize, SimulationResult)], gateways: &[usize]) -> String {
    let mut out = String::new();
    let width = 2 * WIDTH + 70;
    let height = HEIGHT + 100;
    let mut draw = |text: String| writeln!(out, "{text}").expect("a string takes it");
    draw(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">"
    ));
    draw(format!("<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>"));
    for (panel, (traffic, title)) in
        [(Traffic::Even, "as many requests to each"), (Traffic::Skewed, "half of all to one")]
            .into_iter()
            .enumerate()
    {
        let left = 40 + panel * (WIDTH + 20);
        draw(format!("<text x=\"{left}\" y=\"18\" font-weight=\"bold\">{title}</text>"));
        for percent in (0..=TOP).step_by(20) {
            let y = y_of(percent * LIMIT / 100);
            let right = left + WIDTH - 10;
            draw(format!(
                "<path d=\"M{left} {y}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#666\">{percent} %</text>",
                left - 4,
                y + 4
            ));
        }
        let mine: Vec<_> = runs.iter().filter(|run| run.0 == traffic).collect();
        for (group, count) in gateways.iter().enumerate() {
            let x = left + 8 + group * (WIDTH - 20) / gateways.len();
            draw(format!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{count}</text>",
                x + 24,
                HEIGHT + 46
            ));
            let of = mine.iter().filter(|run| run.1 == *count).zip(COLOURS);
            for (at, ((_, _, result), colour)) in of.enumerate() {
                draw(column(x + 16 * at, result, colour));
            }
        }
    }
    for (at, (interval, colour)) in INTERVALS.iter().zip(COLOURS).enumerate() {
        let x = 40 + at * 140;
        let y = HEIGHT + 62;
        draw(format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{}\">sync_interval {interval}ms</text>",
            x + 15,
            y + 9
        ));
    }
    draw(format!(
        "<text x=\"40\" y=\"{}\">below the columns: gateways; lines: the bound, {TOP} % or more at the top</text>\n</svg>",
        HEIGHT + 90
    ));
    out
}

fn column(x: usize, result: &SimulationResult, colour: &str) -> String {
    let top = y_of(result.excess);
    let bottom = y_of(0);
    let bound = y_of(result.bound);
    format!(
        "<rect x=\"{x}\" y=\"{top}\" width=\"14\" height=\"{}\" fill=\"{colour}\"/>\
         <path d=\"M{x} {bound}h14\" stroke=\"#d62728\" stroke-width=\"2\"/>",
        bottom - top
    )
}

/// Returns where so much over the limit is drawn.
fn y_of(excess: u64) -> u64 {
    let height = HEIGHT as u64;
    let top = TOP * LIMIT / 100;
    30 + height - excess.min(top) * height / top
}
