//! Times that hold for all that asks the store.

use core::time::Duration;

/// The first pause before a new attempt to connect, and the longest: soon enough for a failover,
/// seldom enough for a store that comes up under the load of all gateways. Each is shortened by up
/// to a half, so that gateways do not come at once.
pub(super) const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// The least that a call may take that no request waits for.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// The most between two greetings: soon enough to notice a new gateway, seldom enough for a store
/// that hundreds of workers greet.
pub(super) const BEAT: Duration = Duration::from_secs(4);
