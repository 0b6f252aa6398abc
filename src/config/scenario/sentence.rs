//! The sentences of a step.
//!
//! ```text
//! when   at TIME [over TIME] | after TIME [over TIME] | [at TIME] every TIME for TIME
//! what   [COUNT x] METHOD PATH clause… -> expectation, …  |  reload FILE
//! clause      from ADDRESS | country CODE | asn NUMBER | host HOST | listener NAME | header NAME=VALUE | json NAME=VALUE | key TEXT
//!             | cost N | priority
//!             | taking TIME | status CODE
//! expectation COUNT WORD [by RULE] [for REASON] | wait <= TIME | retry after <= TIME
//! ```
//!
//! In a path, an address, a host, the value of a header or a member, and a key, `{n}` is the number of the arrival
//! within its step, from 1.
//! `→` and `≤` are the same as `->` and `<=`.

use super::words::{Found, Words, Wrong};
use crate::{
    config::{diagnostics::quoted, spec::values, vocabulary::nearest},
    flow::ReasonKind,
    geo::Place,
    route::MemberPath,
};
use http::{HeaderName, HeaderValue, Method};
use std::{
    borrow::Cow,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The most arrivals of a step.
const MOST: u64 = 10_000_000;

/// The time of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// Since the test's beginning; `None`: when the step before ends.
    pub at: Option<Duration>,
    /// Since the end of the step before, or since `at`.
    pub after: Duration,
    /// The spread of the arrivals.
    pub spread: Spread,
}

/// The spread of a step's arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// All at once.
    Once,
    /// Evenly over this time.
    Over(Duration),
    /// So many at once, again and again, for a time.
    Every(Duration, Duration),
}

/// The requests or the edit of a step.
#[derive(Clone, Debug)]
pub enum What {
    /// Requests come.
    Arrivals(Box<Arrivals>),
    /// Another configuration is put in force.
    Reload(PathBuf),
}

/// Requests that come, and what is expected of them.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// The number at a time.
    pub count: u64,
    /// The method.
    pub method: Method,
    /// With the query.
    pub path: Numbered,
    /// The host.
    pub host: Option<Numbered>,
    /// The name of the listener.
    pub listener: Option<Arc<str>>,
    /// The addresses that they come from.
    pub client: Option<Numbered>,
    /// Its place, if the files are not to say it.
    pub place: Option<Place>,
    /// The header lines.
    pub headers: Vec<(HeaderName, Numbered)>,
    /// The members of the JSON body.
    pub json: Vec<(Box<str>, Numbered)>,
    /// The user that the client has authenticated as.
    pub user: Option<Numbered>,
    /// The claims of its token. One that is here several times is a list.
    pub claims: Vec<(Box<str>, Numbered)>,
    /// The key for every keyed rule.
    pub key: Option<Numbered>,
    /// The cost, in place of what the rules say.
    pub cost: Option<u64>,
    /// True if they go before others.
    pub priority: bool,
    /// The time that each takes from its start.
    pub takes: Duration,
    /// The response.
    pub status: Option<u16>,
    /// The expected outcomes.
    pub expect: Vec<Expect>,
}

/// A text that may differ from arrival to arrival.
#[derive(Clone, Debug)]
pub struct Numbered(String);

/// The placeholder of an arrival's number.
const NUMBER: &str = "{n}";

impl Numbered {
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the text of the arrival `number` of its step, from 1.
    pub fn of(&self, number: u64) -> Cow<'_, str> {
        if self.0.contains(NUMBER) {
            self.0.replace(NUMBER, &number.to_string()).into()
        } else {
            self.0.as_str().into()
        }
    }
}

/// One thing that is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// So many arrivals fare like this.
    Count(Count),
    /// A time is within a bound, for each that has one.
    Time(Measure, Bound, Duration),
}

/// The number of arrivals with an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The number of arrivals.
    pub count: u64,
    /// Their outcome.
    pub word: Word,
    /// The rule that decided.
    pub rule: Option<String>,
    /// Why, of rejected ones.
    pub reason: Option<ReasonKind>,
}

/// The outcome of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// It started at once.
    Passed,
    /// It started after a wait.
    Delayed,
    /// It started, at once or after a wait.
    Admitted,
    /// It did not start.
    Rejected,
    /// No route was found.
    Unrouted,
    /// The route does not allow its address.
    Denied,
    /// A rule in a dry run would have rejected it.
    DryRun,
}

/// The measured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The wait of those that started.
    Wait,
    /// The time at which rejected arrivals may come back.
    RetryAfter,
}

/// The comparison of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// No longer.
    AtMost,
    /// No shorter.
    AtLeast,
    /// Just as long.
    Exactly,
}

/// Reads when a step happens.
pub(super) fn when(text: &str) -> Found<When> {
    const HELP: &str = "write `at 10s`, `after 1s`, `at 0s over 1s` or `every 10ms for 5s`";
    let mut words = Words::of(text);
    let mut when = When { at: None, after: Duration::ZERO, spread: Spread::Once };
    if words.is("at") {
        when.at = Some(words.duration("`at 10s`")?);
    } else if words.is("after") {
        when.after = words.duration("`after 1s`")?;
    } else if words.peek() != Some("every") {
        let word = words.take().unwrap_or_default();
        return Err(words.wrong(format!("{} is not a time of a step", quoted(word)), HELP));
    }
    if words.is("over") {
        when.spread = Spread::Over(words.duration("`over 1s`")?);
    } else if words.is("every") {
        let every = words.duration("`every 10ms for 5s`")?;
        if every.is_zero() || !words.is("for") {
            return Err(words.wrong("`every` needs a time and how long it goes on", HELP));
        }
        when.spread = Spread::Every(every, words.duration("`every 10ms for 5s`")?);
    }
    words.end(HELP)?;
    Ok(when)
}

/// Reads what happens; a file is meant from `folder`.
pub(super) fn what(text: &str, folder: &Path) -> Found<What> {
    let mut words = Words::of(text);
    if words.is("reload") {
        let file = words.wanted("the file", "`reload other.yaml`")?;
        words.end("write `reload other.yaml`")?;
        return Ok(What::Reload(folder.join(file)));
    }
    let mut arrivals = request(&mut words)?;
    loop {
        match words.take() {
            None => break,
            Some("->" | "→") => {
                arrivals.expect = expectations(&mut words)?;
                break;
            }
            Some(clause) => self::clause(clause, &mut words, &mut arrivals)?,
        }
    }
    Ok(What::Arrivals(Box::new(arrivals)))
}

/// Reads `120 x GET /a`.
fn request(words: &mut Words<'_>) -> Found<Arrivals> {
    const EXAMPLE: &str = "`120 x GET /a`";
    let first = words.wanted("the request", EXAMPLE)?;
    let (count, method) = if first.starts_with(|c: char| c.is_ascii_digit()) {
        let help = || format!("write {EXAMPLE}");
        let count =
            values::integer(first).map_err(|invalid| words.wrong(invalid.message, help()))?;
        if count > MOST {
            return Err(words.wrong("too many for one step", format!("write at most {MOST}")));
        }
        if !(words.is("x") || words.is("×")) {
            words.take();
            return Err(words.wrong("`x` is missing behind the number", format!("write {EXAMPLE}")));
        }
        (count, words.wanted("the method", EXAMPLE)?)
    } else {
        (1, first)
    };
    let is_method = method.bytes().all(|byte| byte.is_ascii_uppercase());
    let method = Method::from_bytes(method.as_bytes()).ok().filter(|_| is_method);
    let method =
        method.ok_or_else(|| words.wrong("this is not a method", format!("write {EXAMPLE}")))?;
    let path = words.wanted("the path", EXAMPLE)?;
    if !path.starts_with('/') {
        return Err(words.wrong("a path begins with `/`", format!("write {EXAMPLE}")));
    }
    Ok(Arrivals {
        count,
        method,
        path: Numbered::new(path),
        host: None,
        listener: None,
        client: None,
        place: None,
        headers: Vec::new(),
        json: Vec::new(),
        user: None,
        claims: Vec::new(),
        key: None,
        cost: None,
        priority: false,
        takes: Duration::ZERO,
        status: None,
        expect: Vec::new(),
    })
}

const CLAUSES: [&str; 14] = [
    "from", "country", "asn", "host", "listener", "header", "json", "user", "claim", "key", "cost",
    "priority", "taking", "status",
];

fn clause(word: &str, words: &mut Words<'_>, to: &mut Arrivals) -> Found<()> {
    match word {
        // As in `with status 503`.
        "with" | "and" => {}
        "from" => {
            let address = words.wanted("the address", "`from 192.0.2.4`")?;
            let client = Numbered::new(address);
            if client.of(1).parse::<IpAddr>().is_err() {
                let help = "write `from 192.0.2.4`, without a port";
                return Err(words.wrong("this is not an address", help));
            }
            to.client = Some(client);
        }
        "country" | "asn" => place(word, words, to.place.get_or_insert_default())?,
        "host" => {
            let host = words.wanted("the host", "`host shop.example.com`")?;
            to.host = Some(Numbered::new(host));
        }
        "listener" => to.listener = Some(words.wanted("the listener", "`listener web`")?.into()),
        "header" => {
            let pair = words.wanted("the header", "`header x-tenant=gold`")?;
            let field = pair.split_once('=').and_then(|(name, value)| {
                HeaderValue::from_str(value).ok()?;
                let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
                Some((name, Numbered::new(value)))
            });
            let field = field.ok_or_else(|| {
                words.wrong("this is not a header", "write `header x-tenant=gold`")
            })?;
            to.headers.push(field);
        }
        "json" => {
            let is_name = |name: &str| MemberPath::parse(name).is_ok();
            to.json.push(pair(words, "member", "json model=large", is_name)?);
        }
        "user" => to.user = Some(Numbered::new(words.wanted("the user", "`user ann`")?)),
        "claim" => {
            let is_name = |name: &str| !name.is_empty();
            to.claims.push(pair(words, "claim", "claim plan=gold", is_name)?);
        }
        "key" => to.key = Some(Numbered::new(words.wanted("the key", "`key tenant-4`")?)),
        "cost" => to.cost = Some(words.number("the cost", "`cost 5`")?),
        "priority" => to.priority = true,
        "taking" => to.takes = words.duration("`taking 30ms`")?,
        "status" => {
            let status = words.number("the status", "`status 503`")?;
            let status = u16::try_from(status).ok().filter(|status| (100..600).contains(status));
            to.status = Some(
                status.ok_or_else(|| words.wrong("this is not a status", "write `status 503`"))?,
            );
        }
        other => {
            let message = format!("{} says nothing about a request", quoted(other));
            let help = nearest(other, CLAUSES.into_iter()).map_or_else(
                || format!("write one of {}, or `->` and what is expected", CLAUSES.join(", ")),
                |meant| format!("did you mean `{meant}`?"),
            );
            return Err(words.wrong(message, help));
        }
    }
    Ok(())
}

/// Reads the country or the AS number of clients.
fn place(word: &str, words: &mut Words<'_>, to: &mut Place) -> Found<()> {
    if word == "country" {
        let code = words.wanted("the country", "`country DE`")?;
        let country = values::country(code);
        to.country = Some(country.map_err(|wrong| words.wrong(wrong.message, wrong.help))?);
    } else {
        let number = words.wanted("the AS number", "`asn 64500`")?;
        let asn = values::asn(number);
        to.asn = Some(asn.map_err(|wrong| words.wrong(wrong.message, wrong.help))?);
    }
    Ok(())
}

/// Reads `NAME=VALUE` of what is called so, as in this example.
fn pair(
    words: &mut Words<'_>,
    what: &str,
    example: &str,
    is_name: impl Fn(&str) -> bool,
) -> Found<(Box<str>, Numbered)> {
    let pair = words.wanted(&format!("the {what}"), &format!("`{example}`"))?;
    let parts = pair.split_once('=').filter(|(name, _)| is_name(name));
    let (name, value) = parts.ok_or_else(|| {
        words.wrong(format!("this is not a {what}"), format!("write `{example}`"))
    })?;
    Ok((name.into(), Numbered::new(value)))
}

/// Reads what is expected, parted by commas.
fn expectations(words: &mut Words<'_>) -> Found<Vec<Expect>> {
    const HELP: &str = "write `100 passed, 20 rejected by per-client for rate`, `wait <= 100ms` or `retry after <= 1s`";
    let mut all = Vec::new();
    let from = words.all.get(words.next).map_or(words.text.len(), |range| range.start);
    let mut start = from;
    for part in words.text[from..].split(',') {
        let mut inner = Words::of(part);
        let found = expectation(&mut inner).and_then(|found| inner.end(HELP).map(|()| found));
        all.push(found.map_err(|wrong| Wrong {
            at: start + wrong.at.start..start + wrong.at.end,
            ..wrong
        })?);
        start += part.len() + 1;
    }
    Ok(all)
}

impl Word {
    const ALL: [Self; 7] = [
        Self::Passed,
        Self::Delayed,
        Self::Admitted,
        Self::Rejected,
        Self::Unrouted,
        Self::Denied,
        Self::DryRun,
    ];

    /// Returns it as it is written.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Delayed => "delayed",
            Self::Admitted => "admitted",
            Self::Rejected => "rejected",
            Self::Unrouted => "unrouted",
            Self::Denied => "denied",
            Self::DryRun => "dry-run",
        }
    }
}

fn expectation(words: &mut Words<'_>) -> Found<Expect> {
    if words.is("wait") {
        return time(words, Measure::Wait);
    }
    if words.is("retry") {
        if !words.is("after") {
            return Err(words.wrong("`after` is missing", "write `retry after <= 1s`"));
        }
        return time(words, Measure::RetryAfter);
    }
    let count = words.number("what is expected", "`100 passed`")?;
    let word = words.wanted("the decision", "`100 passed`")?;
    let known = Word::ALL.into_iter().find(|known| known.text() == word);
    let known =
        known.ok_or_else(|| unknown(words, word, "decision", &Word::ALL.map(Word::text)))?;
    let rule = if words.is("by") {
        Some(words.wanted("the rule", "`20 rejected by per-client`")?.to_owned())
    } else {
        None
    };
    let reason = if words.is("for") { Some(reason(words, known)?) } else { None };
    Ok(Expect::Count(Count { count, word: known, rule, reason }))
}

/// Reads why requests are rejected, as in `20 rejected for rate`.
fn reason(words: &mut Words<'_>, of: Word) -> Found<ReasonKind> {
    if of != Word::Rejected {
        return Err(
            words.wrong("only rejected requests have a reason", "write `20 rejected for rate`")
        );
    }
    let word = words.wanted("the reason", "`20 rejected for rate`")?;
    let known = ReasonKind::ALL.into_iter().find(|known| known.word() == word);
    known.ok_or_else(|| unknown(words, word, "reason", &ReasonKind::ALL.map(ReasonKind::word)))
}

/// Returns what is wrong with the word just taken, which is none of `known`.
fn unknown(words: &Words<'_>, word: &str, what: &str, known: &[&str]) -> Wrong {
    let help = nearest(word, known.iter().copied()).map_or_else(
        || format!("write one of {}", known.join(", ")),
        |meant| format!("did you mean `{meant}`?"),
    );
    words.wrong(format!("{} is not a {what}", quoted(word)), help)
}

fn time(words: &mut Words<'_>, measure: Measure) -> Found<Expect> {
    let bound = match words.peek() {
        Some("<=" | "≤") => Some(Bound::AtMost),
        Some(">=" | "≥") => Some(Bound::AtLeast),
        Some("=") => Some(Bound::Exactly),
        Some("<" | ">" | "==" | "<>" | "!=") => {
            words.take();
            return Err(words.wrong("no time is compared like this", "write `<=`, `>=` or `=`"));
        }
        Some(_) | None => None,
    };
    words.next += usize::from(bound.is_some());
    let time = words.duration("`wait <= 100ms`")?;
    Ok(Expect::Time(measure, bound.unwrap_or(Bound::Exactly), time))
}
