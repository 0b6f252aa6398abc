//! What the types of `spec` are made of: keys with their spans, lists, maps, and either of two
//! forms.

use super::error::{REPORTED, Wrong};
use crate::config::{
    diagnostics::SourceSpan,
    vocabulary::{Described, Form},
};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Unexpected, Visitor},
};
use std::{fmt, marker::PhantomData, ops::Deref};

/// The names by which the types of `keys` ask for more than a value.
pub(super) const KEY: &str = "$key";
pub(super) const SEVERAL: &str = "$several";
pub(super) const MANY: &str = "$many";
pub(super) const EITHER: &str = "$either";

/// Returns the keys of which a map has one that is read as the [`MarkedMap`] of this name.
pub(super) fn marks(name: &str) -> &'static [&'static str] {
    match name {
        "$settled" => &["reserve", "settle", "settle_while_streaming"],
        "$computed" => &["request_bytes", "json", "otherwise", "plus"],
        _ => &[],
    }
}

/// The span of a key that is not written.
pub(super) const NOWHERE: u128 = u128::MAX;

/// A value and where it stands.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct At<T> {
    pub value: T,
    pub span: SourceSpan,
    /// `false` if the value is the key's default.
    pub written: bool,
}

impl<T> At<T> {
    /// Returns the value changed, at the same span.
    pub(in crate::config) fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At { value: change(self.value), span: self.span, written: self.written }
    }

    /// Returns the value by reference, at the same span.
    pub(in crate::config) const fn as_ref(&self) -> At<&T> {
        At { value: &self.value, span: self.span, written: self.written }
    }
}

/// A key of a map: where it stands, and its value or default. The value is `None` where there is
/// neither, or where it could not be read, which has been reported.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Parts<T>", bound = "T: Deserialize<'de>")]
pub(in crate::config) struct Key<T> {
    /// Where the key itself stands, if it is written.
    pub span: Option<SourceSpan>,
    pub at: Option<At<T>>,
}

impl<T> Key<T> {
    /// Reports whether it is written, be it right or wrong.
    pub(in crate::config) const fn is_written(&self) -> bool {
        self.span.is_some()
    }

    /// Returns what `read` takes of the value, with its span.
    pub(in crate::config) fn read<U>(&self, read: impl FnOnce(&T) -> U) -> Option<At<U>> {
        self.at.as_ref().map(|at| at.as_ref().map(read))
    }

    pub(in crate::config) fn value(&self) -> Option<&T> {
        self.at.as_ref().map(|at| &at.value)
    }
}

impl<T> Default for Key<T> {
    fn default() -> Self {
        Self { span: None, at: None }
    }
}

impl<T> Deref for Key<T> {
    type Target = Option<At<T>>;

    fn deref(&self) -> &Option<At<T>> {
        &self.at
    }
}

/// The parts of a [`Key`]: its span, that of its value, and the value if it can be read.
#[derive(Deserialize)]
#[serde(rename = "$key", bound = "T: Deserialize<'de>")]
struct Parts<T>(u128, u128, #[serde(default)] Option<T>);

impl<T> From<Parts<T>> for Key<T> {
    fn from(Parts(key, span, value): Parts<T>) -> Self {
        let written = key != NOWHERE;
        let span = SourceSpan::of_bits(span);
        Self {
            span: written.then(|| SourceSpan::of_bits(key)),
            at: value.map(|value| At { value, span, written }),
        }
    }
}

/// A list of maps.
#[derive(Clone, Debug)]
pub(in crate::config) struct List<T>(pub Vec<At<T>>);

/// A plain value, or a list of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename = "$several", bound = "T: Deserialize<'de>")]
pub(in crate::config) struct Several<T>(pub List<T>);

/// A plain value, or a list of them that is searched, not looked through, and so may be long.
#[derive(Debug, Deserialize)]
#[serde(rename = "$many", bound = "T: Deserialize<'de>")]
pub(in crate::config) struct Many<T>(pub List<T>);

impl<T> Key<Many<T>> {
    /// Returns the values that could be read.
    pub(in crate::config) fn items(&self) -> &[At<T>] {
        self.value().map_or(&[], |list| &list.0.0)
    }
}

impl<T> Key<List<T>> {
    pub(in crate::config) fn items(&self) -> &[At<T>] {
        self.value().map_or(&[], |list| &list.0)
    }

    pub(in crate::config) fn into_items(self) -> Vec<At<T>> {
        self.at.map(|at| at.value.0).unwrap_or_default()
    }
}

impl<T> Key<Several<T>> {
    /// Returns the values that could be read.
    pub(in crate::config) fn items(&self) -> &[At<T>] {
        self.value().map_or(&[], |list| &list.0.0)
    }

    /// Returns the values that could be read, without their spans.
    pub(in crate::config) fn plain<U>(&self, plain: impl Fn(&T) -> U) -> Vec<U> {
        self.items().iter().map(|at| plain(&at.value)).collect()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List<T>, A::Error> {
                // Of ten thousand routes none is moved as the list grows.
                let mut list = Vec::with_capacity(items.size_hint().unwrap_or_default());
                let mut is_lost = false;
                while let Some(item) = items.next_element::<Key<T>>()? {
                    is_lost |= item.at.is_none();
                    list.extend(item.at);
                }
                // It is not empty: none of its items can be read, which has been reported.
                if list.is_empty() && is_lost {
                    return Err(de::Error::custom(REPORTED));
                }
                Ok(List(list))
            }
        }

        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// A map of the user's own names.
#[derive(Debug)]
pub(in crate::config) struct Entries<K, V>(pub Vec<(At<K>, Key<V>)>);

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Entries<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OwnEntries<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for OwnEntries<K, V> {
            type Value = Entries<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<K, V>, A::Error> {
                let mut entries = Vec::new();
                let mut is_lost = false;
                while let Some(name) = map.next_key::<Key<K>>()? {
                    // The value of a wrong name would be a second mistake.
                    match name.at {
                        Some(name) => entries.push((name, map.next_value()?)),
                        None => is_lost = true,
                    }
                }
                if entries.is_empty() && is_lost {
                    return Err(de::Error::custom(REPORTED));
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(OwnEntries(PhantomData))
    }
}

/// A plain value, or a map that says more.
#[derive(Debug)]
pub(in crate::config) enum Either<P, M> {
    Plain(P),
    Map(M),
}

impl<'de, P: Deserialize<'de>, M: Deserialize<'de>> Deserialize<'de> for Either<P, M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PlainOrMap<P, M>(PhantomData<(P, M)>);

        impl<'de, P: Deserialize<'de>, M: Deserialize<'de>> Visitor<'de> for PlainOrMap<P, M> {
            type Value = Either<P, M>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a map")
            }

            fn visit_some<D: Deserializer<'de>>(self, plain: D) -> Result<Either<P, M>, D::Error> {
                P::deserialize(plain).map(Either::Plain)
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                map: D,
            ) -> Result<Either<P, M>, D::Error> {
                M::deserialize(map).map(Either::Map)
            }
        }

        deserializer.deserialize_newtype_struct(EITHER, PlainOrMap(PhantomData))
    }
}

/// A map that is known by one of its keys.
pub(in crate::config) trait MarkedMap {
    /// The name by which it is asked for: see `marks`.
    const NAME: &'static str;
}

/// A map that is known by one of its keys, or another map.
#[derive(Debug)]
pub(in crate::config) enum MarkedOr<S, M> {
    Marked(S),
    Map(M),
}

impl<'de, S: MarkedMap + Deserialize<'de>, M: Deserialize<'de>> Deserialize<'de>
    for MarkedOr<S, M>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MarkedOrOther<S, M>(PhantomData<(S, M)>);

        impl<'de, S: MarkedMap + Deserialize<'de>, M: Deserialize<'de>> Visitor<'de>
            for MarkedOrOther<S, M>
        {
            type Value = MarkedOr<S, M>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_some<D: Deserializer<'de>>(self, map: D) -> Result<Self::Value, D::Error> {
                M::deserialize(map).map(MarkedOr::Map)
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                map: D,
            ) -> Result<Self::Value, D::Error> {
                S::deserialize(map).map(MarkedOr::Marked)
            }
        }

        deserializer.deserialize_newtype_struct(S::NAME, MarkedOrOther(PhantomData))
    }
}

/// A hash of what is written for a value, whatever the layout and the comments, and the value.
#[derive(Debug, Deserialize)]
#[serde(rename = "$printed")]
pub(in crate::config) struct Printed<T>(pub u128, pub T);

/// Reads a plain value with `read`; `expected` says in two lines what it is and how one looks.
/// A number may not stand in quotes.
pub(in crate::config) fn read_text<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    is_number: bool,
    expected: &str,
    read: impl FnOnce(&str) -> Result<T, Wrong>,
) -> Result<T, D::Error> {
    struct Text<'e, R>(&'e str, R);

    impl<T, R: FnOnce(&str) -> Result<T, Wrong>> Visitor<'_> for Text<'_, R> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            (self.1)(text).map_err(|wrong| match wrong {
                Wrong::Text(invalid) => E::custom(invalid),
                Wrong::Bound { found, wanted } => {
                    E::invalid_value(Unexpected::Other(&found), &wanted.as_str())
                }
            })
        }
    }

    let visitor = Text(expected, read);
    if is_number {
        deserializer.deserialize_u64(visitor)
    } else {
        deserializer.deserialize_str(visitor)
    }
}

impl<T: Described> Described for Key<T> {
    const FORM: &'static Form = T::FORM;
}

impl<T: Described> Described for Printed<T> {
    const FORM: &'static Form = T::FORM;
}

impl<T: Described> Described for Box<T> {
    const FORM: &'static Form = T::FORM;
}

impl Described for bool {
    const FORM: &'static Form = &Form::Switch;
    const IS_SHOWN: Self = true;

    fn shown(&self) -> String {
        self.to_string()
    }
}

impl<T: Described> Described for List<T> {
    const FORM: &'static Form = &Form::List(T::FORM);
}

impl<T: Described> Described for Several<T> {
    const FORM: &'static Form = &Form::OneOrMore(T::FORM);
}

impl<T: Described> Described for Many<T> {
    const FORM: &'static Form = &Form::OneOrMore(T::FORM);
}

impl<K: Described, V: Described> Described for Entries<K, V> {
    const FORM: &'static Form = &Form::Entries { names: K::FORM, values: V::FORM };
}

impl<S: Described, M: Described> Described for MarkedOr<S, M> {
    const FORM: &'static Form = &Form::Either { plain: S::FORM, map: M::FORM };
}

impl<P: Described, M: Described> Described for Either<P, M> {
    const FORM: &'static Form = &Form::Either { plain: P::FORM, map: M::FORM };
}
