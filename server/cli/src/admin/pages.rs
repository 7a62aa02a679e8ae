//! The router: which path is which page, and what holds for all of them.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Form, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use lockwheel::Reply;
use serde::Deserialize;

use super::access::{Admin, Caller, Connection, IsLocal, Refusal, is_same_origin};
use super::commands::{Failure, error, json, run};
use super::{locks, metrics};
use crate::limits;

/// The pages.
pub(super) fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/", get(index))
        .route("/page.css", get(style))
        .route("/page.js", get(script))
        .route("/login", get(login).post(log_in))
        .route("/logout", post(log_out))
        .route("/session", get(session))
        .route("/locks", get(locks::list))
        .route("/locks/", get(locks::details))
        .route("/locks/{key}", get(locks::details))
        .route("/locks/{key}/release", post(locks::release))
        .route("/locks//release", post(locks::release))
        .route("/events", get(locks::events))
        .route("/node", get(node))
        .layer(DefaultBodyLimit::max(limits::ADMIN_BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(Arc::clone(&admin), guard))
        .layer(middleware::from_fn(close_refused))
        .with_state(admin)
}

/// What browsers may do with a page: nothing with other hosts, and no scripts but that of the page.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; \
    form-action 'self'";

/// Refuses requests for another host. Adds headers that forbid browsers to use a reply otherwise.
async fn guard(
    State(admin): State<Arc<Admin>>,
    connection: Connection,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(is_local) = admin.host(connection, request.headers()) else {
        let text = "the header Host must be a loopback address or localhost, or the address that \
                    the connection is to, or one of admin-hosts\n";
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    };
    if *request.method() == Method::POST && !is_same_origin(request.headers()) {
        return error(StatusCode::FORBIDDEN, "the request is from a page of another host");
    }
    request.extensions_mut().insert(is_local);
    let mut response = next.run(request).await;
    if response.status() == StatusCode::UNAUTHORIZED && admin.has_ended() {
        // A login would not help.
        response = error(StatusCode::SERVICE_UNAVAILABLE, "the server ends");
    }
    let headers: [(HeaderName, &str); 5] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Says that the connection of a refused change is closed: its body may not have been read.
async fn close_refused(request: Request, next: Next) -> Response {
    let is_change = *request.method() == Method::POST;
    let mut response = next.run(request).await;
    let status = response.status();
    if is_change && (status.is_client_error() || status.is_server_error()) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// `/healthz`: the process can reply, and the server has not failed. Does not wait for a command
/// that runs.
async fn healthz() -> &'static str {
    // A server that fails ends the process.
    "ok\n"
}

/// `/readyz`: whether the server serves commands. A node without a leader serves none on keys.
async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    let info = run(&admin.system, |client| {
        client.call(&["PING"])?;
        client.call(&["INFO", "lockwheel"])
    });
    match info.await {
        Ok(info) => match no_leader(&info) {
            None => "ready\n".into_response(),
            Some(reason) => unavailable(&reason),
        },
        Err(failure) => unavailable(failure.reason()),
    }
}

/// That a node has no leader, if that is so. How many nodes are in contact is known to leaders.
fn no_leader(info: &Reply) -> Option<String> {
    let fields = metrics::fields(info)?;
    let is_without = fields.get("raft_has_leader").is_some_and(|value| value == "0");
    let count = fields.get("raft_nodes").filter(|_| is_without)?;
    Some(format!("no leader: more than half of the nodes ({count}) must be in contact"))
}

/// `/metrics`: the figures of the server, for Prometheus. They contain no keys, so that programs on
/// the same machine need no login.
async fn metrics(
    State(admin): State<Arc<Admin>>,
    Extension(IsLocal(is_local)): Extension<IsLocal>,
    caller: Result<Caller, Refusal>,
) -> Response {
    let commands = match caller {
        _ if is_local => Arc::clone(&admin.system),
        Ok(caller) => caller.commands,
        Err(refusal) => return refusal.into_response(),
    };
    let replies = run(&commands, |client| {
        let info = client.call(&["INFO", "everything", "lockwheel"])?;
        let histograms = client.call(&["LATENCY", "HISTOGRAM"])?;
        Ok([info, histograms])
    });
    match replies.await {
        Ok([info, histograms]) => match metrics::write(&info, &histograms) {
            Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
            Err(reason) => unavailable(&reason),
        },
        Err(failure) if is_local => unavailable(failure.reason()),
        Err(failure) => failure.into_response(),
    }
}

/// `/node`: the version and the port of the server and, if it is a node, its role in the cluster:
/// these fields of `INFO`. Every user that may log in may see it.
async fn node(State(admin): State<Arc<Admin>>, _: Caller) -> Result<Response, Failure> {
    const OF_SERVER: [&str; 2] = ["lockwheel_version", "tcp_port"];
    let info = run(&admin.system, |client| client.call(&["INFO", "server", "lockwheel"])).await?;
    let mut fields = metrics::fields(&info).unwrap_or_default();
    fields.retain(|name, _| name.starts_with("raft_") || OF_SERVER.contains(&name.as_str()));
    Ok(json(StatusCode::OK, serde_json::json!(fields).to_string()))
}

fn unavailable(reason: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response()
}

/// `/`: the page that shows the locks.
async fn index(caller: Result<Caller, Refusal>) -> Response {
    match caller {
        Ok(_) => Html(include_str!("page/index.html")).into_response(),
        Err(Refusal::NoLogin) => Redirect::to("/login").into_response(),
        Err(refusal) => (refusal.status(), Html(login_page(refusal.reason()))).into_response(),
    }
}

async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("page/page.css"))
        .into_response()
}

async fn script() -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("page/page.js"))
        .into_response()
}

/// `/login`: the form.
async fn login() -> Html<String> {
    Html(login_page(""))
}

/// The form, with the reason why a login has failed. The reason is a text of this program.
fn login_page(reason: &str) -> String {
    let escaped = reason.replace('&', "&amp;").replace('<', "&lt;");
    include_str!("page/login.html").replace("{reason}", &escaped)
}

/// The fields of the form.
#[derive(Deserialize)]
struct Login {
    user: String,
    password: String,
}

/// `POST /login`: begins a session.
async fn log_in(
    State(admin): State<Arc<Admin>>,
    connection: Connection,
    Form(login): Form<Login>,
) -> Response {
    match admin.log_in(connection, &login.user, &login.password).await {
        Ok(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response(),
        Err(refusal) => (refusal.status(), Html(login_page(refusal.reason()))).into_response(),
    }
}

/// `POST /logout`: ends a session.
async fn log_out(
    State(admin): State<Arc<Admin>>,
    connection: Connection,
    caller: Caller,
    headers: axum::http::HeaderMap,
) -> Response {
    let Some(id) = caller.session.as_ref().filter(|_| caller.has_token(&headers)) else {
        return error(StatusCode::FORBIDDEN, "no session, or the header X-CSRF-Token is wrong");
    };
    ([(header::SET_COOKIE, admin.log_out(connection, id))], StatusCode::NO_CONTENT).into_response()
}

/// `/session`: the user, and the token for changes.
async fn session(caller: Caller) -> Response {
    let session = serde_json::json!({
        "user": caller.user,
        "is_login": caller.session.is_some(),
        "token": caller.token,
    });
    json(StatusCode::OK, session.to_string())
}
