//! The text of `/metrics`: its two formats, OpenMetrics 1.0 and the older one of Prometheus; its
//! families; exemplars, which `prometheus-client` makes only of its own histograms; and the operating
//! system's data about this process.

use crate::meter::{Exemplar, ExemplarId};
use core::fmt::Write;
use http::{HeaderMap, header::ACCEPT};
use prometheus_client::{
    encoding::{
        DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, NoLabelSet,
    },
    metrics::MetricType,
    registry::Unit,
};
use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};
use std::{fmt, fs, time::Duration};

/// A format of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's text format 0.0.4.
    Text,
}

impl Format {
    /// Returns OpenMetrics if the client accepts it and does not prefer plain text.
    pub(super) fn negotiate(fields: &HeaderMap) -> Self {
        let weight = |range| accepted(fields, range).unwrap_or(0.0);
        let open = weight("application/openmetrics-text");
        if open > 0.0 && open >= weight("text/plain") { Self::OpenMetrics } else { Self::Text }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts an OpenMetrics `page` to this format.
    pub(super) fn of(self, page: String) -> String {
        match self {
            Self::OpenMetrics => page,
            Self::Text => text(&page),
        }
    }
}

/// Returns the greatest weight of a media range in `Accept`, whatever its parameters (RFC 9110,
/// 12.5.1).
fn accepted(fields: &HeaderMap, name: &str) -> Option<f32> {
    let values = fields.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges = values.flat_map(|value| value.split(','));
    let weights = ranges.filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_named = parts.next()?.eq_ignore_ascii_case(name);
        let weight =
            parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        is_named.then(|| weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
    });
    weights.reduce(f32::max)
}

/// Converts to the older format, which names a family like its samples and has no units, infos or
/// end.
fn text(page: &str) -> String {
    let mut text = String::with_capacity(page.len() + page.len() / 64);
    let mut help = None;

    for line in page.lines() {
        let Some(meta) = line.strip_prefix("# ") else {
            text.extend([line, "\n"]);
            continue;
        };
        if let Some(said) = meta.strip_prefix("HELP ") {
            help = said.split_once(' ');
        } else if let Some((name, kind)) =
            meta.strip_prefix("TYPE ").and_then(|family| family.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                other => ("", other),
            };
            if let Some((_, help)) = help.take() {
                text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
            }
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        }
    }
    text
}

/// A family's name and help text.
pub(super) type Head = (&'static str, &'static str);

/// Writes a counter, whose name gets `_total` appended, for each set of labels.
pub(super) fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Head,
    samples: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in samples {
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

/// Writes a counter without labels, whose name gets `_total` appended.
pub(super) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Head,
    value: &impl EncodeCounterValue,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    family.encode_counter::<NoLabelSet, _, u64>(value, None)
}

/// Writes a gauge for each set of labels.
pub(super) fn gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Head,
    samples: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Writes gauges whose values are fractions.
pub(super) fn fractions<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (L, f64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Writes a gauge without labels.
pub(super) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Head,
    value: &impl EncodeGaugeValue,
) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(value)
}

/// Writes labels as an info metric, whose name gets `_info` appended.
pub(super) fn info(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Head,
    labels: &impl EncodeLabelSet,
) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(labels)
}

pub(super) struct Histogram<'a> {
    /// Inclusive upper bounds.
    pub bounds: &'a [Duration],
    /// Counts, not cumulative; one more than bounds.
    pub buckets: &'a [u64],
    pub sum: Duration,
}

/// Writes a histogram, whose name gets `_seconds` appended, for each set of labels.
pub(super) fn histograms<'a, L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Head,
    samples: impl IntoIterator<Item = (L, Histogram<'a>)>,
) -> fmt::Result {
    let unit = Some(&Unit::Seconds);
    let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
    for (labels, Histogram { bounds, buckets, sum }) in samples {
        let bounds = bounds.iter().map(Duration::as_secs_f64).chain([f64::INFINITY]);
        let pairs: Vec<(f64, u64)> = bounds.zip(buckets.iter().copied()).collect();
        family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
            sum.as_secs_f64(),
            buckets.iter().sum(),
            &pairs,
            None,
        )?;
    }
    Ok(())
}

/// Appends to each bucket of `family` in `page` what `exemplars` has for it, in the same order.
pub(super) fn add_exemplars(
    page: &str,
    family: &str,
    exemplars: impl IntoIterator<Item = Option<Exemplar>>,
) -> String {
    let bucket = format!("{family}_bucket{{");
    let mut exemplars = exemplars.into_iter();
    let mut with = String::with_capacity(page.len() + page.len() / 4);
    for line in page.lines() {
        with.push_str(line);
        if line.starts_with(&bucket)
            && let Some(exemplar) = exemplars.next().flatten()
        {
            write(&mut with, &exemplar);
        }
        with.push('\n');
    }
    with
}

/// Writes ` # {trace_id="…"} 0.067 1520879607.789`.
fn write(line: &mut String, exemplar: &Exemplar) {
    let (label, id) = match exemplar.id {
        ExemplarId::Trace(id) => ("trace_id", id),
        ExemplarId::Request(id) => ("request_id", id),
    };
    let value = Duration::from_nanos(exemplar.nanos).as_secs_f64();
    let seconds = exemplar.at.as_secs();
    let millis = exemplar.at.subsec_millis();
    // Writing to a String cannot fail.
    _ = write!(line, " # {{{label}=\"{id:032x}\"}} {value} {seconds}.{millis:03}");
}

/// Data of the process; `None` if it cannot be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident: Option<u64>,
    /// Open file descriptors.
    pub fds: Option<u64>,
    /// The limit of open file descriptors.
    pub fds_max: Option<u64>,
}

impl Process {
    pub(super) fn read() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            cpu: Duration::try_from(cpu).unwrap_or_default(),
            resident: fs::read_to_string("/proc/self/status").ok().as_deref().and_then(resident),
            fds: open_fds(),
            fds_max: getrlimit(Resource::Nofile).current,
        }
    }
}

/// Reads `VmRSS:     5120 kB`.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kibibytes * 1024)
}

fn open_fds() -> Option<u64> {
    // Since Linux 6.2 the directory's size is the number of descriptors; before, it is zero.
    match fs::metadata("/proc/self/fd").ok()?.len() {
        0 => Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64),
        count => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use http::HeaderValue;

    #[test]
    fn openmetrics_is_sent_on_request() {
        use Format::{OpenMetrics, Text};
        for (accept, format) in [
            (&[][..], Text),
            (&["*/*"], Text),
            (&["text/plain"], Text),
            (&["text/html,application/xhtml+xml,*/*;q=0.8"], Text),
            (&["application/openmetrics-text"], OpenMetrics),
            (&["APPLICATION/OpenMetrics-Text; version=1.0.0"], OpenMetrics),
            (&["application/openmetrics-text;version=1.0.0;q=0"], Text),
            (&["application/openmetrics-text;q=none"], Text),
            (&["application/openmetrics-text;q=0.3,text/plain;q=0.5"], Text),
            (
                &["text/plain;version=0.0.4;q=0.5", "application/openmetrics-text; q=0.6"],
                OpenMetrics,
            ),
            // Prometheus 2.49 and 2.5.
            (
                &[
                    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                ],
                OpenMetrics,
            ),
            (
                &[
                    "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ],
                OpenMetrics,
            ),
        ] {
            let fields = accept.iter().map(|value| (ACCEPT, HeaderValue::from_static(value)));
            assert_eq!(Format::negotiate(&fields.collect()), format, "{accept:?}");
        }
    }

    #[test]
    fn the_older_format_names_families_as_their_samples() {
        let page = "# HELP a What a does.\n# TYPE a counter\na_total{b=\"# HELP\"} 1\n\
        # HELP b_seconds B.\n# TYPE b_seconds histogram\n# UNIT b_seconds seconds\nb_seconds_sum 0.5\n\
        # HELP c C.\n# TYPE c info\nc_info{d=\"e\"} 1\n# HELP f F.\n# TYPE f gauge\nf 2\n# EOF\n";
        let expected = "# HELP a_total What a does.\n# TYPE a_total counter\na_total{b=\"# HELP\"} 1\n\
        # HELP b_seconds B.\n# TYPE b_seconds histogram\nb_seconds_sum 0.5\n\
        # HELP c_info C.\n# TYPE c_info gauge\nc_info{d=\"e\"} 1\n# HELP f F.\n# TYPE f gauge\nf 2\n";
        assert_eq!(Format::Text.of(page.to_owned()), expected);
        assert_eq!(Format::OpenMetrics.of(page.to_owned()), page);
    }

    #[test]
    fn exemplars_follow_their_buckets() {
        let page = "# TYPE a_seconds histogram\na_seconds_sum 1\na_seconds_bucket{le=\"1\"} 1\n\
        a_seconds_bucket{le=\"+Inf\"} 1\nb_seconds_bucket{le=\"1\"} 1\n# EOF\n";
        let exemplar = |id| Exemplar { id, nanos: 1_500_000, at: Duration::from_millis(20_005) };
        let exemplars = [None, Some(exemplar(ExemplarId::Trace(10)))];
        assert_eq!(
            add_exemplars(page, "a_seconds", exemplars),
            "# TYPE a_seconds histogram\na_seconds_sum 1\na_seconds_bucket{le=\"1\"} 1\n\
        a_seconds_bucket{le=\"+Inf\"} 1 # {trace_id=\"0000000000000000000000000000000a\"} 0.0015 20.005\n\
        b_seconds_bucket{le=\"1\"} 1\n# EOF\n"
        );
        let exemplars = [Some(exemplar(ExemplarId::Request(u128::MAX)))];
        let with = add_exemplars(page, "b_seconds", exemplars);
        assert!(with.contains(
            " 1 # {request_id=\"ffffffffffffffffffffffffffffffff\"} 0.0015 20.005\n# EOF"
        ));
    }

    #[test]
    fn this_process_has_memory_and_files() {
        let process = Process::read();
        assert!(process.resident.unwrap() > 100_000);
        assert!((1..1_000_000).contains(&process.fds.unwrap()));
    }

    #[test]
    fn a_status_without_the_line_has_no_number() {
        let status = "Name:\tflowgate\nVmRSS:\t    5120 kB\nThreads:\t3\n";
        assert_eq!(resident(status), Some(5_242_880));
        assert_eq!(resident("Name:\tflowgate\n"), None);
        assert_eq!(resident("VmRSS:\t5120 MB\n"), None);
    }
}
