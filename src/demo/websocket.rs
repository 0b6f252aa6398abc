//! A WebSocket that echoes its messages.

use futures_util::{SinkExt, StreamExt};
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::server::create_response_with_body,
        protocol::{Role, WebSocketConfig},
    },
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The most open connections.
const MAX_CONNECTIONS: usize = 16_384;

/// The idle timeout.
const IDLE: Duration = Duration::from_hours(1);

/// The largest message in bytes, which is held in memory.
const MAX_MESSAGE: usize = 1024 * 1024;

#[derive(Clone, Debug, Default)]
pub(super) struct WebSockets {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl WebSockets {
    /// Answers a handshake, then echoes on the connection.
    pub(super) fn upgrade<B>(&self, mut request: Request<B>) -> Response<()> {
        if self.tasks.len() >= MAX_CONNECTIONS {
            return rejection(StatusCode::SERVICE_UNAVAILABLE);
        }
        let Ok(response) = create_response_with_body(&request, || ()) else {
            return rejection(StatusCode::UPGRADE_REQUIRED);
        };
        let upgraded = hyper::upgrade::on(&mut request);
        let connection = async move {
            if let Ok(upgraded) = upgraded.await {
                echo(upgraded).await;
            }
        };
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(connection));
        response
    }

    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn rejection(status: StatusCode) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    response
}

/// Sends every message back until the client closes, fails or is idle too long. The library handles
/// pings, closes and protocol errors.
async fn echo(upgraded: Upgraded) {
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let io = TokioIo::new(upgraded);
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(limits)).await;
    while let Ok(Some(Ok(message))) = timeout(IDLE, socket.next()).await {
        let is_data = message.is_text() || message.is_binary();
        if is_data && socket.send(message).await.is_err() {
            return;
        }
    }
}
