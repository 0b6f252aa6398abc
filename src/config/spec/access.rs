//! Who may use a route.

use super::{keys::keys, leaf::Network};
use crate::config::decode::Several;

keys! {
    /// Which clients may use the route, by their address: those in `allow`, or all if it is not
    /// written, except those in `deny`. `deny` wins, whatever the order. All others get 403, and no
    /// rule counts them.
    struct AccessSpec: "access" {
        /// Addresses and networks that may use the route.
        allow: Several<Network>, else "all";
        /// Addresses and networks that may not.
        deny: Several<Network>, else "none";
    }
}
