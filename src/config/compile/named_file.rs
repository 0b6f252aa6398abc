//! Files that values of the configuration name, as they were read.

use crate::config::{
    decode::At,
    diagnostics::{Problem, quoted},
    read::source::Files,
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
};

/// Returns what `parse` makes of a file, and what its bytes hash to. `parse` says what is wrong and
/// what to do.
pub(super) fn read<T>(
    file: &At<PathBuf>,
    files: &Files,
    what: &str,
    parse: impl FnOnce(&str) -> Result<T, (String, &'static str)>,
) -> Result<(T, u64), Problem> {
    let shown = quoted(&file.value.to_string_lossy());
    let problem = |message: String, help: &str| Problem::error(file.span, message).help(help);
    let bytes = match files.get(&file.value) {
        Some(Ok(bytes)) => bytes,
        Some(Err(why)) => {
            let help = "write the name of a file that the gateway's user may read; relative names \
                        are meant from this file's folder";
            return Err(problem(format!("cannot read the {what} {shown}: {why}"), help));
        }
        None => return Err(problem(format!("the {what} {shown} was not read"), "")),
    };
    let text = str::from_utf8(bytes)
        .map_err(|_| problem(format!("the {what} {shown} is not UTF-8"), "write it as text"))?;
    let parsed = parse(text)
        .map_err(|(wrong, help)| problem(format!("the {what} {shown} {wrong}"), help))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok((parsed, hasher.finish()))
}
