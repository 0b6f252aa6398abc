//! The files of countries and autonomous systems, and what needs them.

use super::{compiler::Compiler, networks::Networks};
use crate::{
    config::{
        decode::{At, Either, Key, Many, Several},
        diagnostics::{Problem, SourceSpan, quoted},
        plan::ClientList,
        read::source::Files,
        spec::{
            ClientsSpec, FileSpec,
            leaf::{AsNumber, CountryCode, FileName},
        },
    },
    geo::{Asn, Country, Geo, GeoFile, GeoKind, PlaceSet, UnusableGeoFile},
    route::KeyPart,
};
use std::{path::Path, sync::Arc};

/// The files that the configuration names. What one holds is unknown where other files are not read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownPlaces {
    has_country: bool,
    has_asn: bool,
}

impl Compiler {
    /// Reads the files of countries and autonomous systems. They are shown by their names relative to `folder`.
    /// This comes first: all that looks at places is compiled by them.
    pub(super) fn geo(
        &mut self,
        spec: &FileSpec,
        files: &Files,
        folder: &Path,
    ) -> Option<Arc<Geo>> {
        let At { value: spec, span, .. } = spec.geo.as_ref()?;
        if !spec.country.is_written() && !spec.asn.is_written() {
            self.error(
                Problem::error(*span, "`geo` without `country` and `asn`")
                    .help("write `geo: { country: GeoLite2-Country.mmdb }`, or remove it"),
            );
        }
        self.places =
            KnownPlaces { has_country: spec.country.is_written(), has_asn: spec.asn.is_written() };
        let country = self.geo_file(&spec.country, GeoKind::Country, files, folder);
        let asn = self.geo_file(&spec.asn, GeoKind::Asn, files, folder);
        Some(Arc::new(Geo { country, asn }))
    }

    fn geo_file(
        &mut self,
        key: &Key<FileName>,
        kind: GeoKind,
        files: &Files,
        folder: &Path,
    ) -> Option<Arc<GeoFile>> {
        let named = key.path()?;
        let shown = quoted(&named.value.to_string_lossy());
        let what = format!("the file of {} {shown}", kind.word());
        let bytes = match files.get(&named.value)? {
            Ok(bytes) => Arc::from(&**bytes),
            Err(why) => {
                let message = format!("cannot read {what}: {why}");
                self.error(Problem::error(named.span, message).help(
                    "write the name of a `.mmdb` file that the gateway's user may read; relative \
                     names are meant from this file's folder",
                ));
                return None;
            }
        };

        let path = named.value.strip_prefix(folder).unwrap_or(&named.value).to_owned();
        match GeoFile::new(path, bytes, kind) {
            Ok(file) => Some(Arc::new(file)),
            Err(unusable) => {
                let help = help(&unusable);
                self.error(Problem::error(named.span, format!("{what} {unusable}")).help(help));
                None
            }
        }
    }

    /// Reports a part of a key for which the configuration has no file.
    pub(super) fn needs_file_of(&mut self, part: &KeyPart, span: SourceSpan) {
        if *part == KeyPart::Country {
            self.needs_file(GeoKind::Country, "`country`", span);
        }
        if *part == KeyPart::Asn {
            self.needs_file(GeoKind::Asn, "`asn`", span);
        }
    }

    /// Reports that `what` at `span` needs a file that the configuration does not have.
    pub(super) fn needs_file(&mut self, kind: GeoKind, what: &str, span: SourceSpan) {
        let (is_there, key, example) = match kind {
            GeoKind::Country => (self.places.has_country, "country", "GeoLite2-Country.mmdb"),
            GeoKind::Asn => (self.places.has_asn, "asn", "GeoLite2-ASN.mmdb"),
        };
        if !is_there {
            let message = format!("{what} without a file of {}", kind.word());
            let help = format!("write `geo: {{ {key}: {example} }}` at the top of the file");
            self.error(Problem::error(span, message).help(help));
        }
    }

    /// Compiles the conditions `country` and `asn`.
    pub(super) fn places(
        &mut self,
        countries: &Key<Several<CountryCode>>,
        asns: &Key<Several<AsNumber>>,
    ) -> PlaceSet {
        if let Some(span) = countries.span {
            self.needs_file(GeoKind::Country, "`country`", span);
        }
        if let Some(span) = asns.span {
            self.needs_file(GeoKind::Asn, "`asn`", span);
        }
        PlaceSet::new(countries.plain(|country| country.0), asns.plain(|asn| asn.0))
    }

    /// Compiles a list of clients: those that an address, a file, a country or an autonomous system names.
    pub(super) fn clients(&mut self, key: &Key<ClientsSpec>) -> (Networks, PlaceSet) {
        let items = key.at.as_ref().map_or(&[][..], |at| {
            let Many(list) = &at.value;
            &list.0
        });

        let mut own = Vec::new();
        let mut named = Vec::new();
        let mut countries: Vec<Country> = Vec::new();
        let mut asns: Vec<Asn> = Vec::new();
        for At { value, span, .. } in items {
            match value {
                Either::Plain(network) => {
                    own.push(At { value: network.0, span: *span, written: true });
                }
                Either::Map(entry) => {
                    let keys = [entry.file.span, entry.country.span, entry.asn.span];
                    if keys.into_iter().flatten().count() != 1 {
                        self.error(
                            Problem::error(*span, "an entry takes exactly one key")
                                .help("write one of `file`, `country` and `asn`, or two entries"),
                        );
                    }
                    if entry.file.is_written() {
                        named.push(&entry.file);
                    }
                    let places = self.places(&entry.country, &entry.asn);
                    countries.extend(places.countries());
                    asns.extend(places.asns());
                }
            }
        }
        let networks = self.network_list(&own, &named, key.span.unwrap_or_default());
        (networks, PlaceSet::new(countries, asns))
    }
}

impl ClientList {
    /// Returns the list of these networks and places.
    pub(super) fn of(networks: &Networks, places: PlaceSet) -> Self {
        Self::new(networks.list.clone(), places)
    }
}

/// Says what to do about a file that cannot be used.
fn help(unusable: &UnusableGeoFile) -> &'static str {
    match unusable {
        UnusableGeoFile::Empty | UnusableGeoFile::Damaged(_) => {
            "download it again, and move it to its place when it is whole"
        }
        UnusableGeoFile::Compressed => {
            "unpack it by `gunzip`, or by `tar -xzf` if it is an archive"
        }
        UnusableGeoFile::NotMaxMind(_) => {
            "write the name of a `.mmdb` file, such as GeoLite2-Country.mmdb; GeoIP.dat and CSV files \
             are of other formats"
        }
        UnusableGeoFile::WrongKind { wanted: GeoKind::Country, .. } => {
            "write the name of a file of countries or cities, such as GeoLite2-Country.mmdb"
        }
        UnusableGeoFile::WrongKind { wanted: GeoKind::Asn, .. } => {
            "write the name of a file of autonomous systems, such as GeoLite2-ASN.mmdb"
        }
    }
}
