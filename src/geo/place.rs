//! Countries, autonomous systems, and lists of both.

use core::fmt;
use std::str::FromStr;

/// A country by its two letters of ISO 3166, in upper case, as in `DE`. Files also have a few codes that the
/// standard leaves free, as `XK` for Kosovo.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Country([u8; 2]);

impl Country {
    /// Reads two letters in either case. `None` if the text is anything else.
    pub fn read(text: &str) -> Option<Self> {
        let letters = <[u8; 2]>::try_from(text.as_bytes()).ok()?;
        let is_code = letters.iter().all(u8::is_ascii_alphabetic);
        is_code.then(|| Self(letters.map(|letter| letter.to_ascii_uppercase())))
    }

    /// Returns the two letters.
    pub fn as_str(&self) -> &str {
        // They are ASCII.
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The number of an autonomous system: the network of a provider, as the internet's routing knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asn(pub u32);

/// Reads `64500` and `AS64500`, in either case.
impl FromStr for Asn {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let has_letters = text.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("as"));
        let digits = if has_letters { &text[2..] } else { text };
        // A sign is no part of a number here.
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(());
        }
        digits.parse().map(Self).map_err(|_| ())
    }
}

impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The country and the system of an address. The default is an address that they do not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The country in which it is.
    pub country: Option<Country>,
    /// The autonomous system that it belongs to.
    pub asn: Option<Asn>,
}

/// Writes `country DE, asn unknown`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.country {
            Some(country) => write!(f, "country {country}")?,
            None => f.write_str("country unknown")?,
        }
        match self.asn {
            Some(asn) => write!(f, ", asn {asn}"),
            None => f.write_str(", asn unknown"),
        }
    }
}

/// Some countries and autonomous systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlaceSet {
    countries: Box<[Country]>,
    asns: Box<[Asn]>,
}

impl PlaceSet {
    /// Returns a set of these, of which some may be given twice.
    pub fn new(countries: Vec<Country>, asns: Vec<Asn>) -> Self {
        Self { countries: sorted(countries), asns: sorted(asns) }
    }

    /// Reports whether it names nothing.
    pub fn is_empty(&self) -> bool {
        self.countries.is_empty() && self.asns.is_empty()
    }

    /// Returns the countries, in order.
    pub const fn countries(&self) -> &[Country] {
        &self.countries
    }

    /// Returns the autonomous systems, in order.
    pub const fn asns(&self) -> &[Asn] {
        &self.asns
    }

    /// Reports whether `place` has one of the countries or one of the autonomous systems.
    pub fn has_either(&self, place: Place) -> bool {
        self.has_country(place) || self.has_asn(place)
    }

    /// Reports whether `place` has one of the countries, if there are any, and one of the autonomous systems,
    /// if there are any.
    pub fn has_both(&self, place: Place) -> bool {
        (self.countries.is_empty() || self.has_country(place))
            && (self.asns.is_empty() || self.has_asn(place))
    }

    /// Returns that of `place` which it names, in words, as `country DE`.
    pub fn found(&self, place: Place) -> Option<String> {
        let country = place.country.filter(|_| self.has_country(place));
        let country = country.map(|country| format!("country {country}"));
        let asn = place.asn.filter(|_| self.has_asn(place));
        country.or_else(|| asn.map(|asn| format!("asn {asn}")))
    }

    fn has_country(&self, place: Place) -> bool {
        place.country.is_some_and(|country| self.countries.binary_search(&country).is_ok())
    }

    fn has_asn(&self, place: Place) -> bool {
        place.asn.is_some_and(|asn| self.asns.binary_search(&asn).is_ok())
    }
}

/// Writes `country AT|DE asn 64500`.
impl fmt::Display for PlaceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, "country", &self.countries)?;
        let is_both = !self.countries.is_empty() && !self.asns.is_empty();
        f.write_str(if is_both { " " } else { "" })?;
        list(f, "asn", &self.asns)
    }
}

fn list(f: &mut fmt::Formatter<'_>, name: &str, items: &[impl fmt::Display]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index == 0 {
            write!(f, "{name} {item}")?;
        } else {
            write!(f, "|{item}")?;
        }
    }
    Ok(())
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Box<[T]> {
    items.sort_unstable();
    items.dedup();
    items.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_country_is_two_letters_in_either_case() {
        for text in ["DE", "de", "dE"] {
            assert_eq!(Country::read(text).unwrap().as_str(), "DE");
        }
        for text in ["", "D", "DEU", "D1", "Ä", "D ", "--"] {
            assert_eq!(Country::read(text), None, "{text}");
        }
    }

    #[test]
    fn an_autonomous_system_is_a_number_of_32_bits() {
        for (text, expected) in [
            ("64500", Some(64500)),
            ("AS64500", Some(64500)),
            ("as1", Some(1)),
            ("0", Some(0)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("", None),
            ("AS", None),
            ("+1", None),
            ("-1", None),
            ("64500 Example", None),
            ("ÄS1", None),
        ] {
            assert_eq!(text.parse::<Asn>().ok().map(|asn| asn.0), expected, "{text}");
        }
    }

    #[test]
    fn a_set_is_shown_in_order() {
        let set = PlaceSet::new(countries("DE AT DE"), vec![Asn(2), Asn(1)]);
        assert_eq!(set.to_string(), "country AT|DE asn 1|2");
        assert_eq!(PlaceSet::new(Vec::new(), vec![Asn(7)]).to_string(), "asn 7");
        assert_eq!(PlaceSet::default().to_string(), "");
        assert!(PlaceSet::default().is_empty());
    }

    #[test]
    fn an_unknown_place_is_in_no_set() {
        let set = PlaceSet::new(countries("DE"), vec![Asn(1)]);
        assert!(!set.has_either(Place::default()));
        assert!(!set.has_both(Place::default()));
        assert_eq!(set.found(Place::default()), None);
        assert!(PlaceSet::default().has_both(Place::default()), "it asks for nothing");
        assert!(!PlaceSet::default().has_either(Place::default()), "it names nothing");
    }

    fn countries(text: &str) -> Vec<Country> {
        text.split(' ').map(|word| Country::read(word).unwrap()).collect()
    }

    fn country() -> impl Strategy<Value = Country> {
        "[A-C][A-C]".prop_map(|text| Country::read(&text).unwrap())
    }

    proptest! {
        #[test]
        fn a_set_has_what_it_was_made_of(
            countries in prop::collection::vec(country(), 0..6),
            asns in prop::collection::vec((0_u32..6).prop_map(Asn), 0..6),
            country in prop::option::of(country()),
            asn in prop::option::of((0_u32..6).prop_map(Asn)),
        ) {
            let named: HashSet<_> = countries.iter().copied().collect();
            let numbers: HashSet<_> = asns.iter().copied().collect();
            let set = PlaceSet::new(countries, asns);
            let place = Place { country, asn };
            let by_country = country.is_some_and(|country| named.contains(&country));
            let by_asn = asn.is_some_and(|asn| numbers.contains(&asn));
            prop_assert_eq!(set.has_either(place), by_country || by_asn);
            let both = (named.is_empty() || by_country) && (numbers.is_empty() || by_asn);
            prop_assert_eq!(set.has_both(place), both);
            prop_assert_eq!(set.found(place).is_some(), by_country || by_asn);
        }
    }
}
