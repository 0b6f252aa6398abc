//! The declaration of the maps of the file, `keys!`, and of words, `words!`.

/// Declares maps of the file, and each of their keys once. Its documentation is the reference, its
/// type says how it is read and within which bounds, and what follows says what holds where the key
/// is not written: `= 5` is a value as the file would have it, `else "none"` says it in words; a key
/// with neither is required.
///
/// Before a map may stand, in this order: `#[example = "…"]`; `#[instead = …]`, keys of other maps
/// with what to write instead; `#[meant = …]`, words of other gateways with the key that is meant.
/// Before a key may stand: `#[serde(rename = "…")]`, its name if that is no name in Rust; `#[help =
/// …]`, what to write where a value of another kind stands; `#[example = "…"]`.
macro_rules! keys {
    ($(
        $(#[doc = $doc:literal])*
        $(#[example = $example:literal])?
        $(#[instead = $instead:expr])?
        $(#[meant = $meant:expr])?
        struct $name:ident: $title:literal { $(
            $(#[doc = $of_key:literal])*
            $(#[serde(rename = $word:literal)])?
            $(#[help = $help:expr])?
            $(#[example = $looks:literal])?
            $key:ident: $type:ty $(= $default:tt)? $(, else $words:literal)?;
        )* }
    )*) => { $(
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $(#[doc = $doc])*
        pub(in crate::config) struct $name { $(
            $(#[doc = $of_key])*
            $(#[serde(rename = $word)])?
            pub $key: $crate::config::decode::Key<$type>,
        )* }

        impl $crate::config::vocabulary::Described for $name {
            const FORM: &'static $crate::config::vocabulary::Form =
                &$crate::config::vocabulary::Form::Map(
                    <Self as $crate::config::vocabulary::DescribedMap>::SECTION
                );
        }

        impl $crate::config::vocabulary::DescribedMap for $name {
            const SECTION: &'static $crate::config::vocabulary::Section =
                &$crate::config::vocabulary::Section {
                    type_name: stringify!($name),
                    title: $title,
                    doc: $crate::config::vocabulary::Doc(concat!($($doc),*)),
                    keys: &[$($crate::config::vocabulary::Key {
                        name: keys!(@name $key $($word)?),
                        doc: $crate::config::vocabulary::Doc(concat!($($of_key),*)),
                        form: <$type as $crate::config::vocabulary::Described>::FORM,
                        default: keys!(@default $(= $default)? $(else $words)?),
                        help: keys!(@option $($help)?),
                        example: keys!(@option $($looks)?),
                    }),*],
                    instead: keys!(@list $($instead)?),
                    meant: keys!(@list $($meant)?),
                    example: keys!(@option $($example)?),
                };

            fn shown_keys(&self, map: &'static str) -> Vec<$crate::config::vocabulary::ShownKey> {
                use $crate::config::vocabulary::{Default, Described, ShownKey};
                let keys = [$(<$type as Described>::IS_SHOWN.then(|| ShownKey {
                    map,
                    name: keys!(@name $key $($word)?),
                    value: self.$key.value().map(Described::shown),
                    has_default: matches!(
                        keys!(@default $(= $default)? $(else $words)?),
                        Default::Text { .. }
                    ),
                })),*];
                keys.into_iter().flatten().collect()
            }
        }

        impl $crate::config::spec::keys::WrittenKeys for $name {
            fn written(&self) -> Vec<&'static str> {
                let keys = [$((stringify!($key), self.$key.is_written())),*];
                keys.into_iter().filter(|(_, is_written)| *is_written).map(|(key, _)| key).collect()
            }
        }
    )* };

    (@name $key:ident) => { stringify!($key) };
    (@name $key:ident $word:literal) => { $word };

    (@default) => { $crate::config::vocabulary::Default::Required };
    (@default else $words:literal) => { $crate::config::vocabulary::Default::Words($words) };
    (@default = {}) => { $crate::config::vocabulary::Default::Map };
    (@default = $default:literal) => { $crate::config::vocabulary::Default::Text {
        text: concat!($default),
        is_quoted: stringify!($default).as_bytes()[0] == b'"',
    } };

    (@option) => { None };
    (@option $value:expr) => { Some($value) };

    (@list) => { &[] };
    (@list $list:expr) => { $list };
}

/// Declares enums of which a key of the file has one, each with the words of its variants, and with
/// words of other gateways (`#[meant = …]`).
macro_rules! words {
    ($(
        $(#[doc = $doc:literal])*
        $(#[derive($derive:ident)])?
        $(#[meant = $meant:expr])?
        $visibility:vis enum $name:ident { $(
            $(#[$($attribute:tt)*])*
            $variant:ident = $word:literal,
        )* }
    )*) => { $(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        $(#[derive($derive)])?
        $visibility enum $name { $(
            $(#[$($attribute)*])*
            #[serde(rename = $word)]
            $variant,
        )* }

        impl $crate::config::vocabulary::Described for $name {
            const FORM: &'static $crate::config::vocabulary::Form =
                &$crate::config::vocabulary::Form::Words($crate::config::vocabulary::Words {
                    all: &[$($crate::config::vocabulary::Word {
                        word: $word,
                        doc: $crate::config::vocabulary::Doc(words!(@doc $(#[$($attribute)*])*)),
                    }),*],
                    meant: words!(@list $($meant)?),
                });
            const IS_SHOWN: bool = true;

            fn shown(&self) -> String {
                match self { $(Self::$variant => $word),* }.to_owned()
            }
        }
    )* };

    (@doc $(#[doc = $doc:literal])* $(#[default])?) => { concat!($($doc),*) };

    (@list) => { &[] };
    (@list $list:expr) => { $list };
}

/// A map of the file that knows which of its keys are written.
pub(in crate::config) trait WrittenKeys {
    /// Returns the names of the keys that the file has, in the order of their declaration.
    fn written(&self) -> Vec<&'static str>;
}

pub(in crate::config) use keys;
pub(super) use words;
