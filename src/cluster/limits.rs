//! Times that hold for all that asks the store.

use core::time::Duration;

/// The first wait before a new attempt to connect, and the longest: soon enough for a failover, seldom
/// enough for a store that comes up under the load of all gateways. Each is shortened by up to a
/// half, so that gateways do not come at once.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_millis(20);
pub(super) const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

/// The shortest limit of a call that no request waits for.
pub(super) const BACKGROUND_CALL_TIMEOUT: Duration = Duration::from_millis(100);

/// The longest time between two registrations: soon enough to notice a new gateway, seldom enough
/// for a store that hundreds of workers register with.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(4);
