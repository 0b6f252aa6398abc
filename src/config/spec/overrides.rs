//! Overrides as written: other numbers for some requests.

use super::{
    FieldSpec,
    rule::{Manner, RuleKind},
};
use crate::config::{
    decode::{At, Decoder, Fields},
    node::{Content, Place},
    problem::{Problem, quoted},
    values::{self, Limit},
    vocabulary::tables,
};
use http::{HeaderName, Method};
use ipnet::IpNet;

/// Other numbers of a rule, for the requests that `when` describes.
#[derive(Debug)]
pub(in crate::config) struct OverrideSpec {
    pub when: WhenSpec,
    /// The rule's, with the numbers of the override.
    pub kind: RuleKind,
}

/// What a request must look like. Each condition that is written must hold.
#[derive(Debug, Default)]
pub(in crate::config) struct WhenSpec {
    pub place: Option<Place>,
    pub client_ip: Vec<IpNet>,
    pub methods: Vec<Method>,
    pub path_prefix: Vec<At<String>>,
    pub headers: Vec<(HeaderName, At<FieldSpec>)>,
    pub query: Vec<(String, At<FieldSpec>)>,
}

/// The numbers of the rule itself.
pub(super) enum Base {
    Rate(Box<Manner>, At<Limit>),
    Concurrency,
}

/// Reads the overrides of a rule.
pub(super) fn read<'s>(
    d: &mut Decoder<'s>,
    f: &Fields<'_, 's>,
    base: Option<&Base>,
) -> Vec<OverrideSpec> {
    f.list(d, "overrides", |d, node| {
        let f = d.fields(node, &tables::OVERRIDE)?;
        let when = WhenSpec::read(d, &f);
        let kind = kind(d, &f, base?);
        Some(OverrideSpec { when: when?, kind: kind? })
    })
}

/// Returns what the rule counts with the numbers of the override in place of its own.
fn kind<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>, base: &Base) -> Option<RuleKind> {
    let limit = f.limit(d, "limit");
    let in_flight = f.integer(d, "concurrency");
    let burst = f.integer(d, "burst");
    let [has_limit, has_burst, has_concurrency] =
        ["limit", "burst", "concurrency"].map(|name| f.key_place(name));
    let mut foreign = |place: Option<Place>, why: &str| {
        if let Some(place) = place {
            let problem =
                Problem::error(place, "an override changes the numbers that its rule has");
            d.problems.add(problem.help(format!("remove it: {why}")));
        }
        place.is_some()
    };
    match base {
        Base::Concurrency => {
            let limit = foreign(has_limit, "the rule has `concurrency`");
            if foreign(has_burst, "the rule has `concurrency`") || limit {
                return None;
            }
            if has_concurrency.is_none() {
                return nothing(d, f, "concurrency: 64");
            }
            Some(RuleKind::Concurrency { limit: in_flight? })
        }
        Base::Rate(manner, base) => {
            let in_flight = foreign(has_concurrency, "the rule has `limit`");
            let no_burst = !manner.takes_burst();
            if (no_burst && foreign(has_burst, "its algorithm has no `burst`")) || in_flight {
                return None;
            }
            if has_limit.is_none() && has_burst.is_none() {
                return nothing(d, f, "limit: 100/1s");
            }
            let limit = if has_limit.is_some() { limit? } else { *base };
            let burst = if has_burst.is_some() { Some(burst?) } else { manner.burst };
            manner.with_burst(burst).count(d, limit)
        }
    }
}

fn nothing(d: &mut Decoder<'_>, f: &Fields<'_, '_>, example: &str) -> Option<RuleKind> {
    let problem = Problem::error(f.place, "an override that changes nothing")
        .help(format!("write a number beside `when`, as in `{example}`"));
    d.problems.add(problem);
    None
}

impl WhenSpec {
    fn read<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Option<Self> {
        let (key, node) = f.node("when")?;
        let mut when = Self { place: Some(node.place), ..Self::default() };
        let entries = d.entries(node, key);
        if entries.is_empty() {
            if matches!(&node.content, Content::Map(entries) if entries.is_empty()) {
                let problem =
                    Problem::error(node.place, "an override needs at least one condition");
                d.problems.add(problem.help("write `when: { header:x-tenant: gold }`"));
            }
            return None;
        }
        for (name, node) in entries {
            let field = |d: &mut Decoder<'s>| super::route::field_of(d, key, node);
            match name.value.split_once(':').unwrap_or((&name.value, "")) {
                ("client_ip", "") => {
                    when.client_ip = super::plain(d.each(key, node, values::network));
                }
                ("method", "") => when.methods = super::plain(d.each(key, node, values::method)),
                ("path_prefix", "") => when.path_prefix = d.each(key, node, values::text),
                ("header", header) if !header.is_empty() => {
                    let header = d.keep(values::header_name(header), name.place);
                    when.headers.extend(header.map(|at| at.value).zip(field(d)));
                }
                ("query", query) if !query.is_empty() => {
                    when.query.extend(field(d).map(|field| (query.to_owned(), field)));
                }
                _ => {
                    let message = format!("{} is not a condition", quoted(&name.value));
                    d.problems.add(Problem::error(name.place, message).help(CONDITIONS));
                }
            }
        }
        Some(when)
    }
}

const CONDITIONS: &str =
    "write one of `client_ip`, `method`, `path_prefix`, `header:NAME` and `query:NAME`";
