//! The store as written.

use super::file;
use crate::config::{
    decode::{At, Decoder, Fields},
    store::RedisUrl,
    values,
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// The store that gateways share.
#[derive(Debug)]
pub(in crate::config) struct StoreSpec {
    pub redis: Vec<At<RedisUrl>>,
    pub sentinel: Option<At<String>>,
    pub cluster: Option<At<bool>>,
    pub ca: Option<At<PathBuf>>,
    pub prefix: Option<At<String>>,
    pub connect_timeout: Option<At<Duration>>,
    pub timeout: Option<At<Duration>>,
    pub lease: Option<At<Duration>>,
    pub gateways: Option<At<u64>>,
}

impl StoreSpec {
    pub(super) fn read<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>, folder: &Path) -> Self {
        Self {
            redis: f.several(d, "redis", RedisUrl::parse),
            sentinel: f.leaf(d, "sentinel", values::text),
            cluster: f.flag(d, "cluster"),
            ca: f.leaf(d, "ca", |text| file(text, folder)),
            prefix: f.leaf(d, "prefix", values::text),
            connect_timeout: f.duration(d, "connect_timeout"),
            timeout: f.duration(d, "timeout"),
            lease: f.duration(d, "lease"),
            gateways: f.integer(d, "gateways"),
        }
    }
}
