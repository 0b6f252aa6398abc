//! The responses of a route that are compressed.

use super::compiler::Compiler;
use crate::config::{
    decode::{Either, Key, Several},
    diagnostics::Problem,
    plan::Compress,
    spec::{Coding, CompressSpec},
};

/// The encodings without `encodings`: the first takes the least CPU.
const USUAL: [Coding; 3] = [Coding::Zstd, Coding::Br, Coding::Gzip];

/// The default of `min_size`.
const USUAL_SIZE: u64 = 1024;

impl Compiler {
    /// Compiles the `compress` of a route.
    pub(super) fn compress(
        &mut self,
        key: &Key<Box<Either<bool, CompressSpec>>>,
    ) -> Option<Compress> {
        let spec = match &**key.value()? {
            Either::Plain(false) => return None,
            Either::Plain(true) => {
                let codings = USUAL.to_vec();
                return Some(Compress { codings, types: None, min_size: USUAL_SIZE });
            }
            Either::Map(spec) => spec,
        };

        // What could not be read is reported already.
        let is_empty_list = [
            ("encodings", spec.encodings.span, is_empty(&spec.encodings)),
            ("types", spec.types.span, is_empty(&spec.types)),
        ];
        for (key, span, is_empty) in is_empty_list {
            if let Some(span) = span.filter(|_| is_empty) {
                let help = format!("write one, or remove `{key}`");
                self.error(Problem::error(span, format!("`{key}` is empty")).help(help));
            }
        }

        let mut codings: Vec<Coding> = spec.encodings.plain(|coding| *coding);
        let mut seen: Vec<Coding> = Vec::new();
        codings.retain(|coding| {
            let is_new = !seen.contains(coding);
            seen.push(*coding);
            is_new
        });
        if codings.is_empty() {
            codings = USUAL.to_vec();
        }

        let types = spec.types.at.as_ref().map(|_| spec.types.plain(|media| media.0.clone()));
        let min_size = spec.min_size.bytes().unwrap_or(USUAL_SIZE);
        Some(Compress { codings, types, min_size })
    }
}

/// Returns whether a list could be read, and has no entry.
fn is_empty<T>(key: &Key<Several<T>>) -> bool {
    key.at.is_some() && key.items().is_empty()
}
