//! `POST /reload`.

use crate::admin::{
    context::Admin,
    endpoint::{Ask, Endpoint},
    reply::{Reply, plain},
};
use http::StatusCode;
use tokio::sync::mpsc;

pub(super) const ENDPOINTS: [Endpoint; 1] =
    [Endpoint::post("/reload", "reads the configuration again, as SIGHUP does", reload)];

fn reload(admin: &Admin, _: &Ask) -> Reply {
    match admin.state.reload.try_send(()) {
        // Full: a reload is requested already and has yet to read the file.
        Ok(()) | Err(mpsc::error::TrySendError::Full(())) => {
            plain(StatusCode::ACCEPTED, "reload requested; /readyz?verbose shows its result\n")
        }
        Err(mpsc::error::TrySendError::Closed(())) => {
            plain(StatusCode::SERVICE_UNAVAILABLE, "the gateway ends\n")
        }
    }
}
