//! Files to text: the only reads of the configuration, each of bounded size.

use crate::config::{
    diagnostics::{Diagnostics, Problem, Source, SourceSpan},
    watched::Watched,
};
use std::{
    collections::HashMap,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The largest `gateway.yaml` with all that it includes: room for more than 100,000 routes.
pub(super) const MAX_FILE: u64 = 16 * 1024 * 1024;

/// The largest certificate or key.
const MAX_PEM: u64 = 1024 * 1024;

/// The largest file of networks: room for 100,000 with comments.
const MAX_NETWORKS: u64 = 8 * 1024 * 1024;

/// The largest file of countries or autonomous systems: those of cities have some 100 MiB.
const MAX_GEO: u64 = 512 * 1024 * 1024;

/// The largest file of plans: room for half a million.
const MAX_PLANS: u64 = 32 * 1024 * 1024;

/// The hints for a file that cannot be read.
const HELP: &[(io::ErrorKind, &str)] = &[
    (io::ErrorKind::NotFound, "create the file, or write the name of another one"),
    (io::ErrorKind::IsADirectory, "write the name of the file in it, as in `FOLDER/gateway.yaml`"),
    (io::ErrorKind::PermissionDenied, "let the gateway's user read it"),
    (io::ErrorKind::FileTooLarge, "split the routes among several gateways"),
];

/// The file of a command that names none.
pub const DEFAULT_FILE: &str = "gateway.yaml";
/// The hint if the default file does not exist yet.
const FIRST: &str = "name another file, or create it: `flowgate init URL` writes one for the service at URL, \
                     and `flowgate demo` an example";

/// The certificates and keys that a file names, as they were read: bytes, or why not.
pub(in crate::config) type Files = HashMap<PathBuf, io::Result<Vec<u8>>>;

/// The name that stands for the standard input.
pub const STDIN: &str = "-";

/// Reads the text of the file at `path`, or the standard input if that is [`STDIN`].
///
/// # Errors
/// Those of [`read`].
pub(in crate::config) fn read_input(path: &Path) -> Result<Source, Diagnostics> {
    if path.as_os_str() == STDIN {
        return text(Path::new("<stdin>"), bounded(io::stdin().lock(), MAX_FILE));
    }
    read(path)
}

/// Reads the text of the file at `path`.
///
/// # Errors
/// A file that is missing, no file, too large, or not text.
pub(in crate::config) fn read(path: &Path) -> Result<Source, Diagnostics> {
    text(path, read_bounded(path, MAX_FILE))
}

/// Takes `bytes` for the file at `path`.
///
/// # Errors
/// Those of [`read`].
pub(in crate::config) fn given(path: &Path, bytes: &[u8]) -> Result<Source, Diagnostics> {
    text(path, bounded(bytes, MAX_FILE))
}

fn text(path: &Path, bytes: io::Result<Vec<u8>>) -> Result<Source, Diagnostics> {
    let unreadable =
        |message: String, help: &str| Err(Diagnostics::unreadable(path, message, help));
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) => {
            let help = HELP.iter().find(|(kind, _)| *kind == error.kind());
            let help = match help {
                Some((io::ErrorKind::NotFound, _)) if path == Path::new(DEFAULT_FILE) => FIRST,
                Some((_, help)) => help,
                None => "check the path and the disk",
            };
            return unreadable(format!("cannot read the file: {error}"), help);
        }
    };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            // What comes before is text already, so that its spans hold.
            let text = String::from_utf8_lossy(error.as_bytes());
            return Err(Diagnostics::new(&Source::new(path, &text), no_text(at)));
        }
    };
    // A mark that editors on Windows put first; it is no part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(Source::new(path, text))
}

/// Returns that there is no text from the byte `at` on.
pub(super) fn no_text(at: usize) -> Problem {
    Problem::error(SourceSpan::of(at..at + '\u{fffd}'.len_utf8()), "the file is not UTF-8")
        .label("these bytes are not a valid character")
        .help("save the file as UTF-8")
}

/// Reads every file of `paths`.
pub(in crate::config) fn read_all<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> Files {
    read_each(paths, MAX_PEM)
}

/// Reads every file of countries and autonomous systems.
pub(in crate::config) fn read_geo(paths: &[PathBuf]) -> Files {
    read_each(paths.iter(), MAX_GEO)
}

/// Reads every file of plans.
pub(in crate::config) fn read_plans(paths: &[PathBuf]) -> Files {
    read_each(paths.iter(), MAX_PLANS)
}

/// Reads every file of networks.
pub(in crate::config) fn read_networks(paths: &[PathBuf]) -> Files {
    read_each(paths.iter(), MAX_NETWORKS)
}

/// The most certificates in the folder of an authority that are read beside those that the file has.
const MOST_ISSUED: usize = 1_000;

/// Reads the certificates that an authority has issued. If one of them is not there, it also reads the
/// others in its folder, which may have some of its names.
pub(in crate::config) fn read_issued(paths: &[PathBuf]) -> Files {
    let mut files = read_each(paths.iter(), MAX_PEM);
    let mut missing = paths.iter().filter(|path| !matches!(files.get(*path), Some(Ok(_))));
    let Some(folder) = missing.find_map(|path| path.parent()) else { return files };
    let Ok(entries) = fs::read_dir(folder) else { return files };
    let others = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_certificate = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "pem");
    let mut others: Vec<_> = others.filter(is_certificate).take(MOST_ISSUED).collect();
    others.retain(|path| !files.contains_key(path));
    files.extend(read_each(others.iter(), MAX_PEM));
    files
}

/// Reads each file once, although thousands of routes may name it.
fn read_each<'p>(paths: impl Iterator<Item = &'p PathBuf>, limit: u64) -> Files {
    let mut files = Files::new();
    for path in paths {
        if !files.contains_key(path) {
            files.insert(path.clone(), read_bounded(path, limit));
        }
    }
    files
}

/// Returns a hash of what a file holds at the moment, or of the names that there are, to see that
/// something changed where the system sends no events. What cannot be read counts as empty.
pub fn fingerprint(watched: &Watched) -> u64 {
    let mut hasher = DefaultHasher::new();
    match watched {
        Watched::File(path) => return content_hash(&read_bytes(path).unwrap_or_default()),
        Watched::LargeFile(path) => {
            if let Ok(found) = fs::metadata(path) {
                let time = (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec());
                (found.dev(), found.ino(), found.len(), time).hash(&mut hasher);
            }
        }
        Watched::Names(folder, pattern) => {
            pattern.files(folder).unwrap_or_default().hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Returns what [`fingerprint`] does for a file with these bytes.
pub fn content_hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Returns what the file at `path` holds.
///
/// # Errors
/// It is missing, no file, too large, or cannot be read.
pub fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    read_bounded(path, MAX_FILE)
}

/// Returns 16 hexadecimal digits that stand for `text` in logs and metrics: FNV-1a, the same on
/// every machine and in every version.
pub(in crate::config) fn hash(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

pub(super) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let is_what = fs::metadata(path)?;
    if is_what.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    // Opening a pipe would wait for its writer.
    if !is_what.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    bounded(File::open(path)?, most)
}

fn bounded(input: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let message = format!("it is larger than {} MiB", most / (1024 * 1024));
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_file_is_rejected_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let file = |bytes: &[u8]| {
            let path = folder.path().join("gateway.yaml");
            fs::write(&path, bytes).unwrap();
            path
        };
        check(&folder.path().join("none.yaml"), "No such file");
        check(folder.path(), "it is a folder");
        check(&file(b"a: 1\nb: \xff\xfe\n"), "gateway.yaml:2:4: the file is not UTF-8");
        check(&file(&vec![b'#'; 16 * 1024 * 1024 + 1]), "it is larger than 16 MiB");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        fs::write(&path, "\u{feff}a: 1\n").unwrap();
        assert_eq!(&*read(&path).unwrap().text, "a: 1\n");
    }

    #[test]
    fn the_hash_is_that_of_the_published_function() {
        assert_eq!(hash(""), "cbf29ce484222325");
        assert_eq!(hash("foobar"), "85944171f73967e8");
    }

    #[track_caller]
    fn check(path: &Path, words: &str) {
        let summary = read(path).unwrap_err().summary();
        assert!(summary.contains(words), "{summary}");
    }
}
