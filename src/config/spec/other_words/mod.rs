//! Words of nginx, HAProxy, Envoy, Traefik, Caddy and Kong, by the map of the file in which users write
//! them: `…_MEANT` has the key that is meant, `…_INSTEAD` what to write where no key of the map is.
//!
//! They go into the schema, which is made in a test.

pub(super) mod file;
pub(super) mod route;
pub(super) mod rule;
pub(super) mod upstream;
