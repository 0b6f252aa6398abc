//! The files that say where clients are.

use super::{
    keys::keys,
    leaf::FileName,
    values::{InvalidValue, invalid},
};
use crate::{
    config::{
        decode::{At, Key},
        diagnostics::{Source, quoted},
    },
    geo::{Asn, Country},
};
use std::path::PathBuf;

keys! {
    /// Files in the format `.mmdb` by which flowgate knows the country and the autonomous system of a
    /// client's address, for `key: country` and `key: asn`, for conditions and for `access`. flowgate watches
    /// the files and reloads them like this file. `docs/countries.md` says where to get them.
    #[example = "{ country: GeoLite2-Country.mmdb, asn: GeoLite2-ASN.mmdb }"]
    #[meant = &[["city", "country"], ["countries", "country"], ["database", "country"], ["db", "country"], ["file", "country"], ["as", "asn"]]]
    struct GeoSpec: "the files of countries" {
        /// A file of countries or cities, such as `GeoLite2-Country.mmdb`.
        country: FileName, else "–";
        /// A file of autonomous systems, such as `GeoLite2-ASN.mmdb`. Both may be one file.
        asn: FileName, else "–";
    }
}

impl GeoSpec {
    /// Returns the files.
    pub(in crate::config) fn files(&self) -> impl Iterator<Item = At<PathBuf>> {
        [&self.country, &self.asn].into_iter().filter_map(Key::path)
    }

    /// Resolves the relative names of the files from the folder of the file that they stand in.
    pub(super) fn resolve(&mut self, source: &Source) {
        self.country.resolve(source);
        self.asn.resolve(source);
    }

    /// Forgets files that are not there. That the file names them stays known.
    pub(super) fn forget_missing(&mut self) {
        for file in [&mut self.country, &mut self.asn] {
            if file.path().is_some_and(|at| !at.value.exists()) {
                file.at = None;
            }
        }
    }
}

/// Reads the two letters of a country.
pub(in crate::config) fn country(text: &str) -> Result<Country, InvalidValue> {
    const HELP: &str = "write the two letters of ISO 3166, as in `DE`";
    let meant = match text.to_ascii_uppercase().as_str() {
        "UK" => Some("GB"),
        "EL" => Some("GR"),
        "USA" => Some("US"),
        _ => None,
    };
    match (Country::read(text), meant) {
        (_, Some(meant)) => {
            let message = format!("{} is not the code of a country", quoted(text));
            Err(InvalidValue { message, help: format!("did you mean `{meant}`?") })
        }
        (Some(country), None) => Ok(country),
        (None, None) => invalid(format!("{} is not the code of a country", quoted(text)), HELP),
    }
}

/// Reads the number of an autonomous system.
pub(in crate::config) fn asn(text: &str) -> Result<Asn, InvalidValue> {
    text.parse().or_else(|()| {
        invalid(
            format!("{} is not the number of an autonomous system", quoted(text)),
            "write a number up to 4294967295, as in `64500` or `AS64500`",
        )
    })
}
