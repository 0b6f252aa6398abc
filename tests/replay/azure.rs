//! A recorded day of chats with a language model, whose costs are known after their responses.
//!
//! `azure-llm-2023-conv.csv.gz` has the 19,366 chats of the Azure LLM inference trace 2023: the time in
//! ms, and the tokens of the context and of the answer. Source: Microsoft,
//! <https://github.com/Azure/AzurePublicDataset> (`AzureLLMInferenceTrace_conv.csv`, times since the
//! first chat), licensed under CC BY 4.0.

use crate::{one_route, replayed};
use flate2::read::GzDecoder;
use std::{collections::VecDeque, fmt::Write as _, fs::File, io::Read};

/// Tokens that may pass in a minute, and at once.
const PER_MINUTE: f64 = 300_000.0;
const BURST: f64 = 50_000.0;

struct Chat {
    ms: f64,
    context: u64,
    generated: u64,
}

impl Chat {
    const fn tokens(&self) -> u64 {
        self.context + self.generated
    }

    const fn duration(&self) -> u64 {
        300 + 30 * self.generated
    }
}

fn chats() -> Vec<Chat> {
    let file = "tests/replay/azure-llm-2023-conv.csv.gz";
    let mut text = String::new();
    let mut file = GzDecoder::new(File::open(file).expect("it is there"));
    file.read_to_string(&mut text).expect("it is whole");
    let chat = |line: &str| {
        let mut fields = line.split(',');
        let mut field = || fields.next().expect("three fields");
        let ms = field().parse().expect("a time");
        let context = field().parse().expect("tokens");
        let generated = field().parse().expect("tokens");
        Chat { ms, context, generated }
    };
    text.lines().skip(1).map(chat).collect()
}

/// The results of a reserve on the trace.
#[derive(Debug)]
struct Outcome {
    /// Of all chats.
    admitted: f64,
    /// Tokens of admitted chats, of those that the limit allows.
    used: f64,
    /// The most tokens of responses that end in any minute, of those that it allows.
    worst_minute: f64,
}

fn outcome(reserve: &str) -> Outcome {
    let chats = chats();
    assert_eq!(chats.len(), 19_366);
    let mut events = String::new();
    for chat in &chats {
        let bytes = 4 * chat.context;
        let duration = chat.duration();
        let settled = chat.tokens();
        let ms = chat.ms;
        let event = format_args!(
            "{{\"t\":{ms},\"request_bytes\":{bytes},\"duration\":{duration},\"settled\":{settled}}}\n"
        );
        events.write_fmt(event).expect("a text");
    }

    let rules = format!(
        "    flow: [{{ name: tokens, limit: 300000/1m, burst: 50000, cost: {{ reserve: {reserve}, \
         settle: {{ header: x-tokens }} }} }}]"
    );
    let (out, complaints) = replayed(&one_route(&rules), events, |_| {}).expect("it is replayed");
    assert_eq!(complaints, "");
    let passed = out.lines().map(|line| line.contains("\"decision\":\"passed\""));
    let admitted: Vec<&Chat> =
        chats.iter().zip(passed).filter(|(_, passed)| *passed).map(|(chat, _)| chat).collect();

    let last = chats.last().expect("some").ms;
    #[expect(clippy::cast_precision_loss, reason = "a few millions")]
    let share = |tokens: u64, allowed: f64| tokens as f64 / allowed;
    let tokens = admitted.iter().map(|chat| chat.tokens()).sum();
    Outcome {
        admitted: share(admitted.len() as u64, 19_366.0),
        used: share(tokens, last / 60_000.0 * PER_MINUTE + BURST),
        worst_minute: share(worst_minute(&admitted), PER_MINUTE + BURST),
    }
}

/// Returns the most tokens of responses that end in any 60 s.
fn worst_minute(chats: &[&Chat]) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "less than an hour")]
    let end = |chat: &&Chat| (chat.ms + chat.duration() as f64, chat.tokens());
    let mut ends: Vec<(f64, u64)> = chats.iter().map(end).collect();
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));

    let mut minute = VecDeque::new();
    let mut sum = 0;
    let mut worst = 0;
    for (at, tokens) in ends {
        while let Some((_, old)) = minute.pop_front_if(|(before, _)| *before <= at - 60_000.0) {
            sum -= old;
        }
        minute.push_back((at, tokens));
        sum += tokens;
        worst = worst.max(sum);
    }
    worst
}

#[track_caller]
fn assert_near(outcome: &Outcome, admitted: f64, used: f64, worst_minute: f64) {
    for (found, expected) in
        [(outcome.admitted, admitted), (outcome.used, used), (outcome.worst_minute, worst_minute)]
    {
        assert!((found - expected).abs() <= 0.02, "{outcome:?}");
    }
}

#[test]
fn a_charge_after_the_response_overshoots_by_what_is_in_flight_and_keeps_the_debt() {
    assert_near(&outcome("1"), 0.67, 0.99, 1.01);
}

#[test]
fn a_large_reserve_admits_less() {
    assert_near(&outcome("5000"), 0.65, 0.96, 1.05);
}

#[test]
fn a_reserve_by_the_request_and_by_what_was_learned_admits_most() {
    assert_near(&outcome("{ request_bytes: 0.25, plus: auto }"), 0.81, 0.99, 0.95);
}
