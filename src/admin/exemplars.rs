//! Exemplars in an OpenMetrics page. `prometheus-client` makes them only of histograms of its own.

use crate::meter::{Exemplar, ExemplarId};
use core::fmt::Write;

/// Appends to each bucket of `family` in `page` what `exemplars` has for it, in the same order.
pub(super) fn add(
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
    let value = core::time::Duration::from_nanos(exemplar.nanos).as_secs_f64();
    let seconds = exemplar.at.as_secs();
    let millis = exemplar.at.subsec_millis();
    // Writing to a String cannot fail.
    _ = write!(line, " # {{{label}=\"{id:032x}\"}} {value} {seconds}.{millis:03}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn exemplars_follow_their_buckets() {
        let page = "# TYPE a_seconds histogram\na_seconds_sum 1\na_seconds_bucket{le=\"1\"} 1\n\
            a_seconds_bucket{le=\"+Inf\"} 1\nb_seconds_bucket{le=\"1\"} 1\n# EOF\n";
        let exemplar = |id| Exemplar { id, nanos: 1_500_000, at: Duration::from_millis(20_005) };
        let exemplars = [None, Some(exemplar(ExemplarId::Trace(10)))];
        assert_eq!(
            add(page, "a_seconds", exemplars),
            "# TYPE a_seconds histogram\na_seconds_sum 1\na_seconds_bucket{le=\"1\"} 1\n\
            a_seconds_bucket{le=\"+Inf\"} 1 # {trace_id=\"0000000000000000000000000000000a\"} 0.0015 20.005\n\
            b_seconds_bucket{le=\"1\"} 1\n# EOF\n"
        );
        let exemplars = [Some(exemplar(ExemplarId::Request(u128::MAX)))];
        let with = add(page, "b_seconds", exemplars);
        assert!(with.contains(
            " 1 # {request_id=\"ffffffffffffffffffffffffffffffff\"} 0.0015 20.005\n# EOF"
        ));
    }
}
