//! Where requests go for which nginx finds no file. flowgate serves none, so all go there.

use super::tree::Directive;

/// What asks for the response to a location's requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fallback<'a> {
    /// The location itself passes them on.
    Own(&'a Directive),
    /// `if (!-f $request_filename)` passes them on.
    Missing { test: &'a Directive, pass: &'a Directive },
    /// A named location does, by a `try_files` or an `error_page`.
    Named { by: &'a Directive, named: &'a Directive },
}

/// Returns where the requests of a location go, or `None` if it passes nothing on.
pub(super) fn fallback<'a>(block: &'a Directive, server: &'a Directive) -> Option<Fallback<'a>> {
    let own = block.inner().iter().rfind(|directive| is_pass(directive));
    if let Some(pass) = own {
        return Some(Fallback::Own(pass));
    }
    let missing = block.all("if").filter(|test| is_missing_file(test)).find_map(|test| {
        let pass = test.inner().iter().find(|directive| is_pass(directive))?;
        Some(Fallback::Missing { test, pass })
    });
    missing.or_else(|| {
        // A server's own `try_files` is for paths without a location.
        let by = block.all("try_files").last();
        let errors = [block, server].into_iter().flat_map(|block| block.all("error_page"));
        let errors = errors.filter(|page| page.args.iter().any(|arg| arg == "404"));
        by.into_iter().chain(errors).find_map(|by| {
            let name = by.args.last().filter(|name| name.starts_with('@'))?;
            let named = server.all("location").find(|location| location.args == [name.as_str()])?;
            Some(Fallback::Named { by, named })
        })
    })
}

/// Reports whether an `if` asks whether there is no file.
fn is_missing_file(test: &Directive) -> bool {
    let first = test.arg(0);
    let second = test.arg(1);
    let (sign, file) =
        if first == "(" { (second, test.arg(2)) } else { (&first[1.min(first.len())..], second) };
    matches!(sign, "!-f" | "!-e" | "!-d") && file.contains("request_filename")
}

/// Reports whether a directive passes requests to servers that speak HTTP.
pub(super) fn is_pass(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "proxy_pass" | "grpc_pass")
}
