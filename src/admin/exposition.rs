//! The two text formats of `/metrics`: OpenMetrics 1.0, and the older one of Prometheus.

use http::{HeaderMap, header::ACCEPT};

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

#[cfg(test)]
mod tests {
    use super::*;
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
}
