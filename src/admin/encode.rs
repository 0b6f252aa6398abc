//! Writes metric families for a [`Collector`](prometheus_client::collector::Collector).

use prometheus_client::{
    encoding::{
        DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, NoLabelSet,
    },
    metrics::MetricType,
    registry::Unit,
};
use std::{fmt, time::Duration};

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
