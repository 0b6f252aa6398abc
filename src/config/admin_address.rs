//! The admin listener as commands find it in a file that may have errors.

use super::{
    decode::Key,
    diagnostics::{Diagnostics, Problems, Source},
    load,
    plan::AdminAddress,
    read::{
        admin_text::{self, AdminText},
        include, source,
    },
    spec::{FileSpec, leaf::FileName},
};
use std::path::Path;

/// Reads how the admin listener of the file at `path` is reached. No other file is read, and
/// problems elsewhere in the file do not matter: it may be no YAML, or end in the middle.
///
/// # Errors
/// The file cannot be read, what it says of the admin listener cannot, or it has errors and does not
/// name an admin listener as far as it can be read.
pub fn read_admin(path: &Path) -> Result<Option<AdminAddress>, Diagnostics> {
    let read = source::read(path).and_then(|source| of_source(&include::gather(source)));
    read.or_else(|problems| of_broken(path).map(Some).ok_or(problems))
}

fn of_source(source: &Source) -> Result<Option<AdminAddress>, Diagnostics> {
    let (source, spec, problems) = load::spec(source)?;
    match spec.as_ref().filter(|spec| spec.admin.is_written()) {
        // A file that breaks off may lack the key.
        None => load::plan(&source, spec.map(FileSpec::without_files), problems).map(|_| None),
        Some(spec) => match address(spec, &problems) {
            Some(address) => Ok(Some(address)),
            None => Err(Diagnostics::new(&source, problems)),
        },
    }
}

/// Returns the address if the key can be read.
fn address(spec: &FileSpec, problems: &Problems) -> Option<AdminAddress> {
    let admin = spec.admin.value()?;
    let path = |file: &Key<FileName>| file.path().map(|at| at.value);
    // The first problem behind the key is that of its value.
    let unread = admin.token.span.filter(|_| admin.token.at.is_none());
    let token_problem = unread.and_then(|key| problems.first_from(key));
    let token_problem = token_problem.map(|problem| problem.message.clone());
    Some(AdminAddress {
        listen: admin.listen.address()?.value,
        token: admin.token.value().map(|token| token.0.clone()),
        token_problem,
        token_file: path(&admin.token_file),
        certificate: admin.tls.value().and_then(|tls| path(&tls.cert)),
    })
}

/// Reads the key `admin` alone. If the file ends within it, the address must be there.
fn of_broken(path: &Path) -> Option<AdminAddress> {
    let bytes = source::read_bytes(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    admin_text::admin_texts(text).into_iter().find_map(|AdminText { text, is_whole }| {
        let (_, spec, problems) = load::spec(&Source::new(path, &text)).ok()?;
        let spec = spec?;
        let is_known = is_whole || spec.admin.value()?.listen.is_written();
        is_known.then(|| address(&spec, &problems)).flatten()
    })
}
