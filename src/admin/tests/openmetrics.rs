//! A reader of the OpenMetrics text format that takes nothing it should not.
//!
//! After the specification at `prometheus/OpenMetrics`, version 1.0, as far as the
//! gateway uses it: no timestamps, no native histograms, exemplars of buckets only.

use std::collections::{BTreeMap, BTreeSet};

/// Values by name and labels, as in `requests_total{code="200",route="a"}`, with the
/// labels sorted.
pub(super) type Samples = BTreeMap<String, f64>;

type Labels = BTreeMap<String, String>;

/// A family whose samples are being read.
#[derive(Default)]
struct Family {
    name: String,
    kind: String,
    unit: Option<String>,
    samples: Vec<(String, Labels, f64)>,
}

/// Reads a page, or panics at the first line that breaks a rule.
pub(super) fn read(page: &str) -> Samples {
    let body = page.strip_suffix("# EOF\n").expect("the page ends with # EOF");
    let mut families = BTreeSet::new();
    let mut all = Samples::new();
    let mut current: Option<Family> = None;
    for line in body.lines() {
        if let Some(meta) = line.strip_prefix("# ") {
            let [word, name, rest] = meta.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("incomplete: {line}");
            };
            if word == "HELP" {
                finish(current.take(), &mut all);
                assert!(families.insert(name.to_owned()), "twice: {line}");
                assert!(is_name(name), "no name: {line}");
                current = Some(Family { name: name.to_owned(), ..Family::default() });
                continue;
            }
            let family = current.as_mut().expect("HELP comes first");
            assert_eq!(family.name, name, "{line}");
            assert!(family.samples.is_empty(), "after a sample: {line}");
            match word {
                "TYPE" => rest.clone_into(&mut family.kind),
                "UNIT" => family.unit = Some(rest.to_owned()),
                _ => panic!("unknown: {line}"),
            }
        } else {
            let family = current.as_mut().expect("no sample without a family");
            let line = match line.split_once(" # ") {
                Some((bucket, exemplar)) => {
                    check_exemplar(bucket, exemplar);
                    bucket
                }
                None => line,
            };
            family.samples.push(sample(line));
        }
    }
    finish(current, &mut all);
    all
}

/// Checks that an exemplar, `{label="value"} 1.5 1000.000`, is of its bucket.
fn check_exemplar(bucket: &str, exemplar: &str) {
    let (name, labels, _) = sample(bucket);
    assert!(name.ends_with("_bucket"), "{bucket}");
    let (exemplar, at) = exemplar.rsplit_once(' ').expect("it has a time");
    assert!(at.parse::<f64>().is_ok_and(|at| at > 0.0), "{at}");
    let (_, ids, value) = sample(&format!("exemplar{exemplar}"));
    let letters: usize = ids.iter().map(|(name, id)| name.len() + id.len()).sum();
    assert!(ids.len() == 1 && letters <= 128, "{exemplar}");
    let bound: f64 = labels["le"].replace("+Inf", "inf").parse().expect("a bound");
    assert!(value <= bound, "{bucket} {exemplar}");
}

/// Checks a whole family, and adds its samples to `all`.
fn finish(family: Option<Family>, all: &mut Samples) {
    let Some(Family { name, kind, unit, samples }) = family else { return };
    if let Some(unit) = unit {
        assert!(name.ends_with(&format!("_{unit}")), "{name} is not in {unit}");
    }
    let suffixes: &[&str] = match kind.as_str() {
        "counter" => &["_total"],
        "gauge" => &[""],
        "info" => &["_info"],
        "histogram" => &["_bucket", "_count", "_sum"],
        other => panic!("{name} is of type {other}"),
    };
    for (sample, labels, value) in &samples {
        let suffix = sample.strip_prefix(&name).expect("samples bear their family's name");
        assert!(suffixes.contains(&suffix), "{sample} in the {kind} {name}");
        assert!(kind == "gauge" || *value >= 0.0, "{sample} is {value}");
        assert!(kind != "info" || value.to_bits() == 1_f64.to_bits(), "{sample} is {value}");
        assert_eq!(labels.contains_key("le"), suffix == "_bucket", "{sample}");
        let key = format!("{sample}{{{}}}", joined(labels));
        assert!(all.insert(key.clone(), *value).is_none(), "twice: {key}");
    }
    if kind == "histogram" {
        histogram(&name, &samples, all);
    }
}

/// Checks that buckets grow, and that the last of them holds all.
fn histogram(name: &str, samples: &[(String, Labels, f64)], all: &Samples) {
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (_, labels, value) in samples {
        let mut labels = labels.clone();
        let Some(bound) = labels.remove("le") else { continue };
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
        buckets.entry(joined(&labels)).or_default().push((bound, *value));
    }
    for (labels, buckets) in buckets {
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}{{{labels}}}");
        let (bound, count) = buckets[buckets.len() - 1];
        assert!(bound.is_infinite(), "{name}{{{labels}}} ends at {bound}");
        assert_eq!(all[&format!("{name}_count{{{labels}}}")].to_bits(), count.to_bits());
        assert!(all.contains_key(&format!("{name}_sum{{{labels}}}")));
    }
}

/// Reads `name{label="value"} 1.5`.
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).expect("a name ends");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "no name: {line}");
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, quoted) = rest.split_once("=\"").expect("a label has a value");
            assert!(is_name(label) && !label.contains(':'), "no label: {line}");
            let (value, after) = quoted_value(quoted);
            assert!(labels.insert(label.to_owned(), value).is_none(), "twice: {line}");
            rest = after.strip_prefix(',').unwrap_or(after);
            assert!(after.starts_with([',', '}']) && !after.starts_with(",}"), "{line}");
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("one space stands before the value");
    assert!(!value.contains(' '), "too much: {line}");
    (name.to_owned(), labels, value.parse().expect("a number"))
}

/// Reads up to the closing quote, and returns what follows it too.
fn quoted_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => match letters.next().expect("an escape goes on").1 {
                'n' => value.push('\n'),
                plain @ ('\\' | '"') => value.push(plain),
                other => panic!("\\{other} is not an escape"),
            },
            letter => value.push(letter),
        }
    }
    panic!("the quote is not closed: {text}");
}

fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

fn joined(labels: &Labels) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect::<Vec<_>>().join(",")
}
