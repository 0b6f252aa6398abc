//! The screen, drawn from samples that a gateway has sent.

use super::{
    feed,
    input::{self, Key},
    model::{ConnectionState, Message, Model, Panel, Query, Request},
    screen,
};
use crate::{
    admin::{RouteSort, sample::Point},
    admin_client::ServerSentEvent,
};
use ratatui_core::{backend::TestBackend, style::Color, terminal::Terminal};

/// The events of a gateway while one route rejected, one had an open breaker, one a rule in dry run,
/// and an edit had a mistake.
const RECORDED: &str = include_str!("tests/live.txt");

fn recorded() -> Vec<Message> {
    let events = RECORDED.split("\n\n").filter_map(|event| {
        let (name, data) = event.strip_prefix("event: ")?.split_once("\ndata: ")?;
        feed::read(&ServerSentEvent { name: name.to_owned(), data: data.to_owned() })
    });
    events.collect()
}

fn model() -> Model {
    let mut model = Model::default();
    let messages = recorded();
    assert_eq!(messages.len(), 5, "every event is read");
    for one in messages {
        model.take(one);
    }
    model
}

fn terminal(model: &Model, width: u16, height: u16, has_colours: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |frame: &mut ratatui_core::terminal::Frame<'_>| {
        let area = frame.area();
        screen::draw(model, has_colours, area, frame.buffer_mut());
    };
    terminal.draw(draw).unwrap();
    terminal
}

/// Returns the lines of a screen.
fn drawn(model: &Model, width: u16, height: u16) -> Vec<String> {
    let terminal = terminal(model, width, height, false);
    let cells = terminal.backend().buffer().content();
    let lines = cells.chunks(width.into());
    lines
        .map(|line| {
            let line: String = line.iter().map(ratatui_core::buffer::Cell::symbol).collect();
            line.trim_end().to_owned()
        })
        .collect()
}

fn press(model: &mut Model, keys: &str) -> Request {
    let keys = input::read(keys.as_bytes());
    keys.into_iter().map(|key| model.press(key, 10)).last().unwrap()
}

#[track_caller]
fn has(lines: &[String], words: &[&str]) {
    let found = lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(found, "no line has {words:?}:\n{}", lines.join("\n"));
}

#[test]
fn the_screen_shows_routes_rules_and_the_rejected_edit() {
    let lines = drawn(&model(), 120, 30);
    has(&lines, &["flowgate 0.1.0", "● live", "ready", "configuration 2"]);
    has(&lines, &["passed 12/s", "✕ rejected 12/s", "p50 ", "p99 ", "in flight 0"]);
    has(&lines, &["✕ the last edit is not in force: gateway.yaml:11:54: a rule has no key `limt`"]);
    has(&lines, &["route", "passed/s", "rejected/s", "p99", "in flight", "waiting", "requests"]);
    has(&lines, &["✕ login", "✕ 8"]);
    has(&lines, &["! shop", "✕ 4"]);
    has(&lines, &["~ search"]);
    has(&lines, &["rules of login", "most rejected"]);
    has(
        &lines,
        &[
            "✕ per-address",
            "limit 7 each, 1 of 100k keys",
            "rejected ",
            "(rate)",
            "sliding_log 7/1h",
        ],
    );
    has(&lines, &["all ", "of 100", "fixed_window 100/1h"]);
    has(&lines, &["q quit", "? help"]);
    let chart = lines.iter().find(|line| line.starts_with("requests ")).unwrap();
    assert!(chart.contains('█'), "{chart}");
}

#[test]
fn a_route_that_answers_with_5xx_is_marked() {
    let mut model = model();
    let mut sample = model.sample.clone().unwrap();
    sample.routes.rows[1].now = Point { passed: 40, failed: 13, ..Point::default() };
    let name = sample.routes.rows[1].name.clone();
    model.take(Message::Sample(Box::new(sample)));
    let lines = drawn(&model, 120, 30);
    has(&lines, &["rejected/s", "failed/s", "p50"]);
    has(&lines, &[&format!("✕ {name}"), "40 ", " 0 ", "✕ 13"]);
}

#[test]
fn keys_choose_routes_and_panels() {
    let mut model = model();
    assert_eq!(press(&mut model, "\x1b[B"), Request::None);
    let names = |model: &Model| {
        let rows = &model.sample.as_ref().unwrap().routes.rows;
        rows[model.chosen()].name.clone()
    };
    let second = names(&model);
    assert_eq!(model.chosen(), 1);
    // It stays chosen when the order changes.
    let mut sample = model.sample.clone().unwrap();
    sample.routes.rows.reverse();
    model.take(Message::Sample(Box::new(sample)));
    assert_eq!((names(&model), model.chosen()), (second, 2));
    press(&mut model, "\x1b[F");
    assert_eq!(model.chosen(), 3);
    press(&mut model, "jjj\x1b[6~");
    assert_eq!(model.chosen(), 3);
    press(&mut model, "\x1b[5~");
    assert_eq!(model.chosen(), 0);

    press(&mut model, "\t");
    assert_eq!(model.panel, Panel::Budgets);
    has(&drawn(&model, 120, 30), &["routes share no limit"]);
    press(&mut model, "\t");
    assert_eq!(model.panel, Panel::Upstreams);
    has(&drawn(&model, 120, 30), &["shop", "127.0.0.1:18081", "healthy", "requests 0/s"]);
    press(&mut model, "c");
    let lines = drawn(&model, 120, 30);
    has(&lines, &["version 2, hash ", "in force for"]);
    has(&lines, &["last change: reloaded v2", "6/1h → 7/1h"]);
    has(&lines, &["✕ not fixed yet", "1 problem:"]);
    has(&lines, &["help: write `limit`"]);
    press(&mut model, "?");
    has(&drawn(&model, 120, 30), &["Ctrl-Z"]);
    press(&mut model, "x");
    assert!(!model.has_help);
    assert_eq!(press(&mut model, "q"), Request::Quit);
    assert_eq!(press(&mut model, "\x03"), Request::Quit);
    assert_eq!(press(&mut model, "\x1a"), Request::Suspend);
}

#[test]
fn a_search_and_another_order_are_asked_of_the_gateway() {
    let mut model = model();
    assert_eq!(press(&mut model, "s"), Request::Ask);
    assert_eq!(feed::path(&model.query), "/live?size=100&sort=requests&q=");
    assert_eq!(press(&mut model, "/a&q"), Request::None);
    has(&drawn(&model, 80, 24), &["search routes: a&q"]);
    assert_eq!(press(&mut model, "\x7f\x7fb ü\r"), Request::Ask);
    let query = Query { sort: RouteSort::Requests, filter: "ab ü".to_owned() };
    assert_eq!(model.query, query);
    assert_eq!(feed::path(&query), "/live?size=100&sort=requests&q=%61%62%20%c3%bc");
    // A search that is given up changes nothing.
    assert_eq!(press(&mut model, "/x\x1b"), Request::None);
    assert_eq!(model.query, query);
    assert_eq!(press(&mut model, "\x1b"), Request::Ask);
    assert_eq!(model.query.filter, "");
    let all = (0..RouteSort::ALL.len()).map(|_| {
        press(&mut model, "s");
        model.query.sort
    });
    assert_eq!(all.last(), Some(RouteSort::Requests), "the orders come around");
}

#[test]
fn while_it_is_paused_nothing_moves_but_the_connection() {
    let mut model = model();
    press(&mut model, "p");
    let before = drawn(&model, 100, 30);
    has(&before, &["‖ paused"]);
    let mut sample = model.sample.clone().unwrap();
    sample.all.passed = 77_000;
    model.take(Message::Sample(Box::new(sample.clone())));
    assert_eq!(drawn(&model, 100, 30), before);
    model.take(Message::Lost("the gateway is silent".to_owned()));
    has(&drawn(&model, 100, 30), &["✕ no connection, trying again: the gateway is silent"]);
    press(&mut model, "p");
    model.take(Message::Sample(Box::new(sample)));
    assert_eq!(model.connection, ConnectionState::Live);
    has(&drawn(&model, 100, 30), &["passed 77k/s"]);
}

#[test]
fn every_size_can_be_drawn_and_narrow_ones_keep_what_matters() {
    let mut model = model();
    let panels =
        [Panel::Rules, Panel::Budgets, Panel::Upstreams, Panel::Configuration, Panel::Paths];
    for panel in panels {
        model.panel = panel;
        for width in [0, 1, 5, 20, 30, 60, 80, 300] {
            for height in [0, 1, 2, 5, 9, 10, 24, 80] {
                drawn(&model, width.max(1), height.max(1));
                let area = ratatui_core::layout::Rect::new(0, 0, width, height);
                screen::draw(&model, true, area, &mut ratatui_core::buffer::Buffer::empty(area));
            }
        }
    }
    let narrow = drawn(&model, 32, 12);
    has(&narrow, &["✕ login", "✕ 8"]);
    // With few rows the chosen route is among them.
    press(&mut model, "\x1b[F");
    let name = model.sample.as_ref().unwrap().routes.rows[3].name.clone();
    has(&drawn(&model, 80, 4), &[&name]);
    has(&drawn(&Model::default(), 80, 24), &["no sample yet"]);
}

#[test]
fn without_colours_none_is_used() {
    let model = model();
    let colours = |has_colours: bool| {
        let terminal = terminal(&model, 120, 30, has_colours);
        let cells = terminal.backend().buffer().content();
        cells.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert_eq!(colours(false), 0);
    assert!(colours(true) > 20);
}

#[test]
fn what_a_gateway_sends_cannot_write_to_the_terminal() {
    let mut model = model();
    let mut sample = model.sample.clone().unwrap();
    let evil = "a\x1b[2J\u{9b}31m\nb".to_owned();
    for route in &mut sample.routes.rows {
        route.name.clone_from(&evil);
        route.matches.clone_from(&evil);
        for rule in &mut route.rules {
            rule.name.clone_from(&evil);
            rule.quota = Some(evil.clone());
        }
    }
    let listed = crate::worst_paths::ListedPath {
        route: evil.clone(),
        path: evil.clone(),
        count: 1,
        overcount: 0,
        status: 500,
        longest_ms: 0,
    };
    sample.failing.paths.failed.push(listed);
    model.take(Message::Sample(Box::new(sample)));
    model.take(Message::Lost(evil));
    let text = screen::page(&model) + &drawn(&model, 80, 24).concat();
    let controls = text.chars().filter(|sign| sign.is_control() && *sign != '\n').count();
    assert_eq!(controls, 0);
    assert!(!input::read(b"x").contains(&Key::Escape));
}

#[test]
fn the_plain_text_has_all_sections() {
    let text = screen::page(&model());
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    has(&lines, &["flowgate 0.1.0"]);
    has(&lines, &["✕ login"]);
    has(&lines, &["rules of search"]);
    has(&lines, &["~ trial", "would reject", "dry run"]);
    has(&lines, &["breaker", "open: 3 failed"]);
    has(&lines, &["upstreams"]);
    has(&lines, &["configuration"]);
    assert!(!text.contains('\x1b'));
    assert!(lines.iter().all(|line| !line.ends_with(' ')));
}

#[test]
fn fields_and_events_of_other_versions_are_left_out() {
    let read = |name: &str, data: &str| {
        feed::read(&ServerSentEvent { name: name.to_owned(), data: data.to_owned() })
    };
    assert!(read("later", "{}").is_none());
    assert!(read("sample", "no JSON").is_none());
    let sample = read("sample", r#"{"at":1,"later":{"a":[1]},"routes":{"rows":[{"name":"x"}]}}"#);
    let mut model = Model::default();
    model.take(sample.unwrap());
    has(&drawn(&model, 80, 24), &["  x"]);
}
