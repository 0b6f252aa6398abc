//! The upstream that gets copies of a route's requests.

use super::{compiler::Compiler, upstreams::Compiled};
use crate::config::{decode::Key, plan::Mirror, spec::MirrorSpec};
use std::{collections::HashMap, sync::Arc};

impl Compiler {
    /// Compiles the `mirror` of a route. Returns it with the index of its upstream in the plan; `upstreams`
    /// are those of the file.
    pub(super) fn mirror(
        &mut self,
        key: &Key<Box<MirrorSpec>>,
        upstreams: &[Compiled],
    ) -> Option<(Box<Mirror>, usize)> {
        let spec = key.value()?;
        let by_name: HashMap<&str, usize> = upstreams
            .iter()
            .enumerate()
            .map(|(index, upstream)| (&*upstream.name, index))
            .collect();
        let upstream = self.upstream_of(spec.upstream.as_ref()?, &by_name)?;
        let mirror = Mirror {
            upstream: Arc::clone(&upstreams.get(upstream)?.name),
            share: spec.share.value()?.0,
            body_limit: spec.body_limit.bytes()?,
            timeout: spec.timeout.duration()?.value,
        };
        Some((Box::new(mirror), upstream))
    }
}
