//! The files of a configuration, and the place of one client.

use super::{Asn, Country, GeoFile, Place};
use core::{cell::OnceCell, net::IpAddr};
use std::sync::Arc;

/// The files of a configuration. Two are equal if their files have the same contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Geo {
    /// The file of countries.
    pub country: Option<Arc<GeoFile>>,
    /// The file of autonomous systems.
    pub asn: Option<Arc<GeoFile>>,
}

impl Geo {
    /// Returns what the files know of an address, which must be canonical: no IPv4 address mapped into IPv6.
    /// They know nothing of the unspecified address, which stands for none.
    pub fn place(&self, address: IpAddr) -> Place {
        if address.is_unspecified() {
            return Place::default();
        }
        let country = |file: &Arc<GeoFile>| file.country(address);
        let asn = |file: &Arc<GeoFile>| file.asn(address);
        Place {
            country: self.country.as_ref().and_then(country),
            asn: self.asn.as_ref().and_then(asn),
        }
    }

    /// Returns these files, in the memory of those of `old` that have the same contents.
    #[must_use]
    pub fn sharing(self, old: &Self) -> Self {
        let same = |new: Option<Arc<GeoFile>>, old: &Option<Arc<GeoFile>>| match old {
            Some(old) if new.as_ref() == Some(old) => Some(Arc::clone(old)),
            Some(_) | None => new,
        };
        Self { country: same(self.country, &old.country), asn: same(self.asn, &old.asn) }
    }
}

/// The place of a client, which is looked up when something asks for it first.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// The files that say it.
    pub files: &'a Geo,
    /// The client's address, which must be canonical.
    pub address: IpAddr,
    /// The place, once it is known.
    pub found: &'a OnceCell<Place>,
}

/// The place of a request's client, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub enum Located<'a> {
    /// There.
    At(Place),
    /// The place by the files, once something asks.
    Asking(Lookup<'a>),
}

impl Default for Located<'_> {
    fn default() -> Self {
        Self::At(Place::default())
    }
}

impl<'a> Located<'a> {
    /// Returns that of a client with this address, which must be canonical. `found` keeps the place.
    pub fn of(files: Option<&'a Geo>, address: IpAddr, found: &'a OnceCell<Place>) -> Self {
        files.map_or_else(Self::default, |files| Self::Asking(Lookup { files, address, found }))
    }

    /// Returns the place.
    pub fn place(self) -> Place {
        match self {
            Self::At(place) => place,
            Self::Asking(Lookup { files, address, found }) => {
                *found.get_or_init(|| files.place(address))
            }
        }
    }

    /// Returns the country.
    pub fn country(self) -> Option<Country> {
        self.place().country
    }

    /// Returns the autonomous system.
    pub fn asn(self) -> Option<Asn> {
        self.place().asn
    }
}
