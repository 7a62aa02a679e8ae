//! The pages: `/healthz`, `/readyz` and `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lockwheel::Client;
use tokio::sync::Mutex;

use super::{metrics, within};
use crate::limits;

/// The client within the process, which runs the commands of all pages.
type Commands = Arc<Mutex<Client>>;

/// The pages. Each request runs its commands with this client.
pub(super) fn router(client: Client) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn(guard))
        .with_state(Arc::new(Mutex::new(client)))
}

/// Refuses requests for another host: a page of another site whose name leads to this machine
/// could read the replies. Adds headers that forbid browsers to use a reply otherwise.
async fn guard(request: Request, next: Next) -> Response {
    if !names_this_machine(request.headers()) {
        let text = "the header Host must be a loopback address or localhost\n";
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    let mut response = next.run(request).await;
    let headers: [(HeaderName, &str); 3] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    response
}

/// Whether the request is for `localhost` or a loopback address, at any port.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next())
    else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// `/healthz`: the process can reply, and the server has not failed. Does not wait for a command
/// that runs.
async fn healthz() -> &'static str {
    // A server that fails ends the process.
    "ok\n"
}

/// `/readyz`: whether the server serves commands.
async fn readyz(State(commands): State<Commands>) -> Response {
    match run(&commands, |client| client.call(&["PING"])).await {
        Ok(_) => "ready\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

/// `/metrics`: the figures of the server, for Prometheus.
async fn metrics(State(commands): State<Commands>) -> Response {
    let replies = run(&commands, |client| {
        let info = client.call(&["INFO", "everything"])?;
        let histograms = client.call(&["LATENCY", "HISTOGRAM"])?;
        Ok([info, histograms])
    });
    let written = match replies.await {
        Ok([info, histograms]) => metrics::write(&info, &histograms),
        Err(reason) => Err(reason),
    };
    match written {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

/// Runs commands on a thread that may wait for a slow script, for a limited time. The error is the
/// text for the reader of the page.
async fn run<T: Send + 'static>(
    commands: &Commands,
    action: impl FnOnce(&mut Client) -> Result<T, lockwheel::Error> + Send + 'static,
) -> Result<T, String> {
    let commands = Arc::clone(commands);
    let done = async {
        // At most one request waits on the thread.
        let mut client = commands.lock_owned().await;
        tokio::task::spawn_blocking(move || action(&mut client)).await
    };
    match within(limits::ADMIN_COMMAND_TIMEOUT, done).await {
        Some(Ok(result)) => result.map_err(|error| error.to_string()),
        Some(Err(_)) => Err("the command has failed".to_owned()),
        None => Err("the server does not reply: it runs a slow command, or is paused".to_owned()),
    }
}
