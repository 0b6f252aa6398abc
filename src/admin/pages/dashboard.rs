//! `/dashboard`: a page of the gateway's own files, which loads nothing from elsewhere.

use crate::admin::{
    context::Admin,
    endpoint::{Ask, Endpoint},
    reply::{Reply, page},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};

/// Only these files: no script in the page, none made of text, and no other site.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// A file of the page.
struct File {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

/// Returns the text of a file, with its licence at its start if there is one. The binary is a copy of
/// the software of others, so it must have their licence.
macro_rules! text {
    ($file:literal) => {
        include_str!(concat!("../dashboard/", $file))
    };
    ($file:literal, $licence:literal) => {
        concat!("/*!\n", include_str!(concat!("../dashboard/", $licence)), "*/\n", text!($file))
    };
}

/// Writes the files and their endpoints.
macro_rules! files {
    ($($path:literal, $about:literal, $content_type:ident, $($file:literal),+;)*) => {
        const FILES: &[File] = &[$(File {
            path: $path,
            content_type: $content_type,
            text: text!($($file),+),
        }),*];

        pub(super) const ENDPOINTS: &[Endpoint] = &[$(Endpoint::get($path, $about, file)),*];
    };
}

files! {
    "/dashboard", "what happens now and what happened in the last 5 minutes, for browsers", HTML, "index.html";
    "/dashboard/style.css", "", CSS, "style.css";
    "/dashboard/app.js", "", JS, "app.js";
    "/dashboard/complete.js", "", JS, "complete.js";
    "/dashboard/edit.js", "", JS, "edit.js";
    "/dashboard/charts.js", "", JS, "charts.js";
    "/dashboard/uplot.js", "", JS, "uplot/uPlot.iife.min.js", "uplot/LICENSE";
    "/dashboard/uplot.css", "", CSS, "uplot/uPlot.min.css";
}

fn file(_: &Admin, ask: &Ask) -> Reply {
    let Some(file) = FILES.iter().find(|file| file.path == ask.head.uri.path()) else {
        return page(StatusCode::NOT_FOUND, HTML, Bytes::new());
    };
    let mut reply =
        page(StatusCode::OK, file.content_type, Bytes::from_static(file.text.as_bytes()));
    let policy = HeaderValue::from_static(POLICY);
    reply.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::edit::completion;

    #[test]
    fn the_page_is_small_and_loads_nothing_from_elsewhere() {
        let files: usize = FILES.iter().map(|file| file.text.len()).sum();
        let size = files + completion().len();
        // Most of it is what the editor completes: each list of rules has all keys of a rule.
        assert!(size <= 192 * 1024, "the dashboard takes {size} bytes");
        for file in FILES {
            // uPlot names its home in a comment.
            let text = file.text.replace("https://github.com/leeoniya/uPlot", "");
            for outside in [
                "http://",
                "https://",
                "url(",
                "@import",
                "eval(",
                "new Function",
                "style=\"",
                " onclick=",
            ] {
                assert!(!text.contains(outside), "{} has {outside}", file.path);
            }
        }
    }

    #[test]
    fn every_file_that_the_page_names_is_served() {
        let page = FILES[0].text;
        let named = page.split(['"']).filter(|word| word.starts_with("dashboard/"));
        let named: Vec<String> = named.map(|path| format!("/{path}")).collect();
        assert_eq!(named.len(), FILES.len() - 1);
        assert!(named.iter().all(|path| FILES.iter().any(|file| file.path == path)), "{named:?}");
    }

    #[test]
    fn the_licence_of_the_charts_is_served_with_them() {
        let charts = FILES.iter().find(|file| file.path == "/dashboard/uplot.js").unwrap();
        let (licence, code) = charts.text.split_once("*/").unwrap();
        assert!(licence.starts_with("/*!\nThe MIT License (MIT)\n"), "{licence}");
        for part in [
            "Copyright (c) 2022 Leon Sorokin",
            "The above copyright notice and this permission notice shall be included",
            "THE SOFTWARE IS PROVIDED \"AS IS\"",
        ] {
            assert!(licence.contains(part), "no {part}");
        }
        assert!(code.contains("uPlot"));
    }
}
