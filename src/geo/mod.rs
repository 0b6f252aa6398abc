//! Finds the country and the autonomous system of a client's address, in files in the format `.mmdb`.
//!
//! No IO, clock or lock. A [`GeoFile`] is made of the bytes of a file. A look-up reads at most one node of its
//! tree for each bit of the address and the value at one path of the record: it neither allocates nor fails. What
//! a damaged record has counts as unknown.

mod file;
mod lookup;
mod place;

pub use file::{GeoFile, GeoKind, UnusableGeoFile};
pub use lookup::{Geo, Located, Lookup};
pub use place::{Asn, Country, Place, PlaceSet};
