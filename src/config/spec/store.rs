//! The store as written.

use super::file;
use crate::config::{
    decode::{At, Decoder, Fields},
    problem::quoted,
    store::{RedisUrl, Secret},
    values::{Invalid, invalid},
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
    pub sentinel_user: Option<At<String>>,
    pub sentinel_password: Option<At<Secret>>,
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
            sentinel: f.leaf(d, "sentinel", |text| word("the name of the primary", text)),
            sentinel_user: f.leaf(d, "sentinel_user", |text| word("the user", text)),
            sentinel_password: f
                .leaf(d, "sentinel_password", |text| word("the password", text).map(Secret::new)),
            cluster: f.flag(d, "cluster"),
            ca: f.leaf(d, "ca", |text| file(text, folder)),
            prefix: f.leaf(d, "prefix", prefix),
            connect_timeout: f.duration(d, "connect_timeout"),
            timeout: f.duration(d, "timeout"),
            lease: f.duration(d, "lease"),
            gateways: f.integer(d, "gateways"),
        }
    }
}

/// Reads a text that is not empty.
fn word(what: &str, text: &str) -> Result<String, Invalid> {
    if text.is_empty() {
        return invalid(format!("{what} is empty"), "write it, or remove the key");
    }
    Ok(text.to_owned())
}

/// Reads what every key begins with.
fn prefix(text: &str) -> Result<String, Invalid> {
    if text.contains(['{', '}']) {
        // What stands in the first braces of a key is its hash tag: by it, all of a route's keys
        // lie on one node.
        let message = format!("{} has a brace, which tells nodes of a cluster apart", quoted(text));
        return invalid(message, "write it without braces, as in `flowgate:`");
    }
    Ok(text.to_owned())
}
