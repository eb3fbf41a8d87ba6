//! `[server]`, `[admin]`, `[log]` and `[store]`: the process as a whole.
//!
//! They are read together because an address of one must not be an address of another.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use tracing_subscriber::EnvFilter;

use super::document::Section;
use super::overrides::Overrides;
use super::problem::{Wrong, nearest};
use super::value::{self, Read, Value};
use crate::store::Kind;
use crate::telemetry::log::Format;
use crate::{admin, server, session, telemetry};

/// Bytes a secret must have at least.
const SECRET_MIN: usize = 16;

/// `[server]`, resolved.
pub(super) struct Server {
    pub(super) options: server::Options,
    pub(super) session: session::Options,
    pub(super) drain_timeout: Duration,
    pub(super) secret: Option<Vec<u8>>,
}

pub(super) fn server(section: Section<'_>, overrides: &Overrides) -> Server {
    let listen = section.read_flag("listen", overrides.listen_flag(), value::address);
    let keepalive = value::duration_in(Duration::from_millis(10)..=Duration::from_secs(60));
    let max_body = section.read_or("max_body", 32 << 20, value::size);
    let options = server::Options {
        listen: listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8080))),
        public_url: section.read("public_url", public_url).flatten(),
        allowed_origins: section.read_or("allowed_origins", vec!["localhost".to_owned()], value::list(origin)),
        trusted_proxies: section.read_or("trusted_proxies", Vec::new(), value::list(network)),
        max_body: usize::try_from(max_body).unwrap_or(usize::MAX),
        keepalive: section.read_or("keepalive", Duration::from_secs(15), keepalive),
        header_timeout: section.read_or("header_timeout", Duration::from_secs(10), value::duration),
    };
    let session = session::Options {
        max_sessions: section.read_or("max_sessions", 100_000, value::count),
        idle: section.read_or("session_idle", Duration::from_secs(3600), value::duration),
    };
    let a_day = value::duration_in(value::up_to(Duration::from_secs(24 * 3600)));
    let drain_timeout = section.read_or("drain_timeout", Duration::from_secs(30), a_day);
    let secret = section.read("secret", secret);
    section.not_yet(&["tls"]);
    section.done();
    Server { options, session, drain_timeout, secret }
}

fn secret(value: &Value<'_>) -> Read<Vec<u8>> {
    let secret = value::secret(value)?;
    if secret.len() < SECRET_MIN {
        return Err(Wrong::new("is too short").expected(format!("at least {SECRET_MIN} bytes")).into());
    }
    Ok(secret.into_bytes())
}

fn public_url(value: &Value<'_>) -> Read<Option<Uri>> {
    let text = value::text(value)?;
    if text.is_empty() { Ok(None) } else { Ok(Some(web_address(&text)?)) }
}

/// An absolute `http` or `https` address with a host, and without user, password or fragment. No message repeats it,
/// since a password may be in it.
pub(super) fn web_address(text: &str) -> Result<Uri, Wrong> {
    let wrong = |what| Wrong::new(what).expected("http://host[:port][/path] or https://…");
    let uri: Uri = text.parse().map_err(|_| wrong("is not a URL"))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(_) => return Err(wrong("has a scheme that is not http or https")),
        None => return Err(wrong("has no scheme")),
    }
    let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
    if authority.as_str().contains('@') {
        let hint = "send credentials in a header: headers = { Authorization = { env = \"NAME\" } }";
        return Err(wrong("has a user or password in it").hint(hint));
    }
    if authority.host().is_empty() {
        return Err(wrong("has no host"));
    }
    // The library takes any text for a port and gives none back when it is not a number.
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    if !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(wrong("has a port that is none"));
    }
    if text.contains('#') {
        return Err(wrong("has a fragment").hint("take out the # and what follows"));
    }
    Ok(uri)
}

fn origin(value: &Value<'_>) -> Read<String> {
    let text = value::text(value)?;
    if text == "localhost" || text == "*" {
        return Ok(text);
    }
    let uri = text.parse::<Uri>().ok().filter(|uri| uri.scheme().is_some() && uri.authority().is_some());
    let bare = uri.is_some_and(|uri| matches!(uri.path(), "" | "/") && uri.query().is_none());
    if bare && !text.ends_with('/') && !text.contains(['#', '@', '*']) {
        return Ok(text);
    }
    let expected = "an origin such as \"https://app.example.com\", \"localhost\" for every loopback origin, or \"*\"";
    Err(Wrong::new(format!("is {text:?}")).expected(expected).into())
}

fn network(value: &Value<'_>) -> Read<(IpAddr, u8)> {
    let text = value::text(value)?;
    let (address, prefix) = text.split_once('/').map_or((text.as_str(), None), |(ip, prefix)| (ip, Some(prefix)));
    let parsed = address.parse::<IpAddr>().ok().and_then(|ip| {
        let all = if ip.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(all), |prefix| prefix.parse().ok())?;
        (prefix <= all).then_some((ip, prefix))
    });
    let expected = "an address or a network, such as \"10.0.0.7\" or \"10.0.0.0/8\"";
    Ok(parsed.ok_or_else(|| Wrong::new(format!("is {text:?}")).expected(expected))?)
}

pub(super) fn admin(section: Section<'_>, overrides: &Overrides, server: SocketAddr) -> Option<admin::Options> {
    let flag = overrides.admin_listen_flag();
    let listen = section.read_flag("listen", flag, |value| {
        if value.get_ref().as_str() == Some("") { Ok(None) } else { value::address(value).map(Some) }
    });
    let listen = listen.unwrap_or(Some(SocketAddr::from(([127, 0, 0, 1], 9090))));
    let token = section.read("token", token);
    let metrics_token = section.read_or("metrics_token", false, value::boolean);
    let problem = |wrong| match flag.value {
        Some(_) => section.flag_problem(flag, wrong),
        None => section.problem("listen", wrong),
    };
    if metrics_token && !section.has("token") && section.sound("token") {
        section.problem("metrics_token", Wrong::new("needs a token").hint("set admin.token"));
    }
    let options = listen.map(|listen| {
        if !listen.ip().to_canonical().is_loopback() && !section.has("token") && section.sound("token") {
            let hint = "set admin.token, for example token = { env = \"TASKGATE_ADMIN_TOKEN\" }";
            problem(Wrong::new(format!("{listen} is not loopback and there is no token")).hint(hint));
        }
        if section.sound("listen") && section.sound_at("server.listen") && clash(listen, server) {
            problem(Wrong::new(format!("{listen} is where the server listens ({server})")).expected("another port"));
        }
        admin::Options { listen, token, metrics_token }
    });
    section.done();
    options
}

/// What `store.kind` may be.
const KINDS: &str = "\"embedded\" or \"memory\"";
/// The kind of store that has no file, as files and flags name it.
pub const MEMORY: &str = "memory";
/// Where tasks are kept unless something else is said.
const DEFAULT_STORE: &str = "taskgate.db";

/// Whether two listeners cannot both have their address.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let same = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && same
}

fn token(value: &Value<'_>) -> Read<String> {
    let token = value::secret(value)?;
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Wrong::new("is empty or has other characters").expected("visible ASCII without spaces").into());
    }
    Ok(token)
}

pub(super) fn log(section: Section<'_>, overrides: &Overrides) -> telemetry::log::Options {
    let formats = [("text", Format::Text), ("json", Format::Json)];
    let format = section.read_flag("format", overrides.log_format_flag(), value::choice(&formats));
    let level = section.read_or("level", "info".to_owned(), level);
    section.done();
    telemetry::log::Options { format: format.unwrap_or_default(), level }
}

fn level(value: &Value<'_>) -> Read<String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    const EXPECTED: &str = "off, error, warn, info, debug, trace, or directives such as \"info,taskgate=debug\"";
    let text = value::text(value)?;
    let wrong = || Wrong::new(format!("is {text:?}")).expected(EXPECTED);
    if text.is_empty() || EnvFilter::try_new(&text).is_err() {
        return Err(wrong().into());
    }
    // A bare word that is no level would silently be the name of a module.
    let bare = text
        .split(',')
        .map(str::trim)
        .find(|part| !part.contains(['=', '[', ':']) && !LEVELS.iter().any(|level| level.eq_ignore_ascii_case(part)));
    match bare {
        None => Ok(text),
        Some(word) => Err(match nearest(word, LEVELS) {
            Some(near) => wrong().hint(format!("did you mean {near}?")),
            None => wrong().hint(format!("write \"{word}=debug\" for a module")),
        }
        .into()),
    }
}

/// `[store]`: which engine, and its file.
pub(super) fn store(section: Section<'_>, overrides: &Overrides) -> Kind {
    let memory = section.read("kind", |value| match value::text(value)?.as_str() {
        "embedded" => Ok(false),
        MEMORY => Ok(true),
        "redis" => Err(Wrong::new("\"redis\" is not in this version").expected(KINDS).into()),
        other => Err(Wrong::new(format!("is {other:?}")).expected(KINDS).into()),
    });
    let written = section.read("path", |value| match value::text(value)? {
        path if path.is_empty() => Err(Wrong::new("is empty").expected("a file, such as \"taskgate.db\"").into()),
        path => Ok(path),
    });
    section.not_yet(&["url"]);
    if memory == Some(true) && written.is_some() {
        section.warn("path", "is not used: the memory store has no file");
    }
    let flag = overrides.store_flag();
    let kind = match flag.value {
        Some(MEMORY) => Kind::Memory,
        Some(path) => {
            if path.contains("://") {
                let wrong = Wrong::new("names a server, which is not in this version").expected("memory, or a file");
                section.flag_problem(flag, wrong);
            }
            Kind::Embedded { path: path.into() }
        }
        None if memory == Some(true) => Kind::Memory,
        None => Kind::Embedded { path: written.unwrap_or_else(|| DEFAULT_STORE.to_owned()).into() },
    };
    if kind == Kind::Memory {
        section.warn("kind", "the store is memory: tasks are lost when the process ends");
    }
    section.done();
    kind
}
