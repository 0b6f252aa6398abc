//! Flow control without IO: values in, values out.
pub mod rate;
pub mod time;
pub use rate::Rate;
pub use time::Instant;
