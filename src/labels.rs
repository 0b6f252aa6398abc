//! The words of enums in metrics, logs and reports.

/// Gives an enum its list of variants, `ALL`, and a function that returns the word of each.
macro_rules! labels {
    (
        $(#[$doc:meta])*
        $visibility:vis fn $function:ident($enum:ident) {
            $($variant:ident => $word:literal),+ $(,)?
        }
    ) => {
        impl $enum {
            /// All variants, in the order of their numbers.
            $visibility const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            $(#[$doc])*
            $visibility const fn $function(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }
    };
}
