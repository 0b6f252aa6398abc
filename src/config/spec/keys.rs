//! How the maps of the file are written down: `keys!`.

/// Declares maps of the file, and each of their keys once: its documentation is the reference, its
/// type says how it is read and within which bounds, and what follows says what holds where the key
/// is not written. `= 5` is a value as the file would have it, `else "none"` says it in words; a key
/// with neither is required.
macro_rules! keys {
    ($($(#[$of_map:meta])* struct $name:ident: $title:tt {
        $($(#[$of_key:meta])* $key:ident: $type:ty $(= $default:tt)? $(, else $words:tt)?;)*
    })*) => { $(
        #[derive(Debug, serde::Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema), schemars(title = $title))]
        #[serde(deny_unknown_fields)]
        $(#[$of_map])*
        pub(in crate::config) struct $name { $(
            $(#[$of_key])*
            $(#[serde(default)] #[cfg_attr(test, schemars(extend("default" = $default)))])?
            $(#[serde(default)] #[cfg_attr(test, schemars(extend("x-default" = $words)))])?
            pub $key: $crate::config::decode::Key<$type>,
        )* }

        impl $crate::config::spec::keys::WrittenKeys for $name {
            fn written(&self) -> Vec<&'static str> {
                let keys = [$((stringify!($key), self.$key.is_written())),*];
                keys.into_iter().filter(|(_, is_written)| *is_written).map(|(key, _)| key).collect()
            }
        }
    )* };
}

/// A map of the file that knows which of its keys are written.
pub(in crate::config) trait WrittenKeys {
    /// Returns the names of the keys that the file has, in the order of their declaration.
    fn written(&self) -> Vec<&'static str>;
}

pub(in crate::config) use keys;
