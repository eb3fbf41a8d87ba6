//! One caller's way to an upstream: every request made in its name carries its session, its credential and cookies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::jsonrpc::{Envelope, Id, request};
use crate::mcp::header::{LAST_EVENT_ID, PARAM_PREFIX, PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::{Era, STATELESS, own_request};
use crate::session::{Place, Repeated, Session, Sessions};
use crate::telemetry::metrics::{Metrics, UpstreamTimer};

use super::routed::routed;
use super::{Client, Error, Facts, Options, Outbound, Resume, headers};

/// One upstream server, with all that is known of it.
#[derive(Debug)]
pub struct Upstream {
    /// As configured.
    pub options: Options,
    /// Sends requests to it.
    pub client: Client,
    /// Its sessions.
    pub sessions: Sessions,
    /// Which eras it speaks, as far as is known.
    pub facts: Facts,
    /// How long its answers take.
    pub timer: UpstreamTimer,
    /// 0: no `initialize` was answered yet; 1: without a session id; 2: with one.
    gives_sessions: AtomicU8,
    /// Whether sessions have streams of their own.
    streams: AtomicU8,
    /// Held by who asks for the first of them.
    asking: Arc<Mutex<()>>,
}

/// Whether an upstream's sessions have streams of their own, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Nobody asked yet.
    Unknown,
    /// They do.
    Some,
    /// They do not: it says 405.
    None,
}

impl Upstream {
    /// An upstream of which nothing is known yet.
    ///
    /// # Errors
    /// If no client can be made.
    pub fn new(options: Options, sessions: Sessions, metrics: &Metrics) -> Result<Self, Error> {
        let client = Client::new(&options)?;
        let timer = metrics.upstream(&options.name);
        Ok(Self {
            options,
            client,
            sessions,
            facts: Facts::default(),
            timer,
            gives_sessions: AtomicU8::new(0),
            streams: AtomicU8::new(0),
            asking: Arc::default(),
        })
    }

    /// Whether its sessions have streams of their own.
    #[must_use]
    pub fn streams(&self) -> Streams {
        match self.streams.load(Ordering::Relaxed) {
            0 => Streams::Unknown,
            1 => Streams::Some,
            _ => Streams::None,
        }
    }

    /// It was asked for one.
    pub fn set_streams(&self, streams: Streams) {
        self.streams.store(streams as u8, Ordering::Relaxed);
    }

    /// Lets one at a time ask for the first stream, so that a thousand sessions do not learn the same at once.
    pub async fn turn_to_ask(&self) -> OwnedMutexGuard<()> {
        self.asking.clone().lock_owned().await
    }

    /// It answered `initialize`, with or without a session id.
    pub fn answered_hello(&self, session: Option<&str>) {
        self.gives_sessions.fetch_max(if session.is_some() { 2 } else { 1 }, Ordering::Relaxed);
    }

    /// Whether it gives session ids; `None` before it was seen to answer `initialize`.
    #[must_use]
    pub fn gives_sessions(&self) -> Option<bool> {
        match self.gives_sessions.load(Ordering::Relaxed) {
            0 => None,
            seen => Some(seen > 1),
        }
    }
}

/// A caller's way to its upstream; clones share it.
#[derive(Clone, Debug)]
pub struct Leg {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// The session, if the caller named one.
    pub session: Option<Arc<Session>>,
    /// The era that is spoken on it.
    pub era: Era,
    /// What each request repeats, where the upstream knows no sessions.
    repeated: Option<Arc<Repeated>>,
    way: Arc<Way>,
}

#[derive(Clone, Debug)]
struct Way {
    query: Option<Arc<str>>,
    uri: Uri,
    headers: Arc<HeaderMap>,
    credential: Option<HeaderValue>,
    /// What each request of the caller's says in `_meta`, where the era wants it.
    meta: Option<Arc<str>>,
    /// When it was brought, among the requests of its session.
    turn: u64,
}

impl Leg {
    /// The way of a caller that came with `headers` and this path and query.
    #[must_use]
    pub fn new(
        upstream: Arc<Upstream>,
        session: Option<Arc<Session>>,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Self {
        let credential = headers
            .get(&upstream.options.credential_header)
            .and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok());
        let mut headers = headers::to_upstream(headers, &upstream.options);
        let uri = with_query(&upstream.options.url, query);
        match &session {
            Some(session) if session.minted => drop(headers.remove(SESSION_ID)),
            _ => {}
        }
        if let Some(cookie) = session.as_ref().and_then(|session| session.cookie()) {
            headers.insert(COOKIE, cookie);
        }
        let turn = session.as_ref().map_or(0, |session| session.turn());
        let repeated = session.as_ref().and_then(|session| session.repeated().cloned());
        let era = if repeated.is_some() { Era::Stateless } else { Era::Handshake };
        let way = Way { query: query.map(Into::into), uri, headers: Arc::new(headers), credential, meta: None, turn };
        Self { upstream, era, repeated, session, way: Arc::new(way) }
    }

    /// The way of somebody who is not there: to this session, with this query, protocol version and credential.
    #[must_use]
    pub fn of_absent(
        upstream: Arc<Upstream>,
        session: Option<Arc<Session>>,
        (version, credential): (Option<&HeaderValue>, Option<&HeaderValue>),
        query: Option<&str>,
    ) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(credential) = credential {
            headers.insert(upstream.options.credential_header.clone(), credential.clone());
        }
        if let Some(id) = session.as_ref().and_then(|session| HeaderValue::from_str(&session.id).ok()) {
            headers.insert(SESSION_ID, id);
        }
        if let Some(version) = version {
            headers.insert(PROTOCOL_VERSION, version.clone());
        }
        Self::new(upstream, session, &headers, query)
    }

    /// Takes the session id off: `initialize` opens a session, it does not belong to one.
    #[must_use]
    pub fn without_session(self) -> Self {
        let mut headers = HeaderMap::clone(&self.way.headers);
        headers.remove(SESSION_ID);
        headers.remove(COOKIE);
        let way = Way { headers: Arc::new(headers), ..Way::clone(&self.way) };
        Self { session: None, era: Era::Handshake, repeated: None, way: Arc::new(way), ..self }
    }

    /// Speaks the stateless era in the name of a client that said this.
    #[must_use]
    pub fn repeating(self, repeated: Arc<Repeated>) -> Self {
        Self { era: Era::Stateless, repeated: Some(repeated), ..self }
    }

    /// What each of its requests repeats: `None` unless the upstream speaks another era than the caller.
    #[must_use]
    pub fn repeated(&self) -> Option<&Arc<Repeated>> {
        self.repeated.as_ref()
    }

    /// The same in the stateless era, with what the caller's request says in `_meta`.
    #[must_use]
    pub fn stateless(self, meta: Option<&str>) -> Self {
        let way = Way { meta: meta.map(Into::into), ..Way::clone(&self.way) };
        Self { era: Era::Stateless, way: Arc::new(way), ..self }
    }

    /// The headers that repeat arguments of the caller's request.
    #[must_use]
    pub fn argument_headers(&self) -> Vec<(String, String)> {
        let headers = self.way.headers.iter().filter(|(name, _)| name.as_str().starts_with(PARAM_PREFIX));
        headers.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned()))).collect()
    }

    /// The caller's own request again, later, with these headers that repeat its arguments.
    #[must_use]
    pub fn again(&self, body: Bytes, argument_headers: &[(String, String)]) -> Outbound {
        let again = self.message(body);
        let mut headers = HeaderMap::clone(&again.headers);
        for (name, value) in argument_headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        }
        Outbound { headers: Arc::new(headers), ..again }
    }

    /// Goes to another path on the upstream's server.
    #[must_use]
    pub fn at_path(self, path_and_query: &str) -> Self {
        let mut parts = self.way.uri.clone().into_parts();
        parts.path_and_query = path_and_query.parse().ok().or(parts.path_and_query);
        let uri = Uri::from_parts(parts).unwrap_or_else(|_| self.way.uri.clone());
        Self { way: Arc::new(Way { uri, ..Way::clone(&self.way) }), ..self }
    }

    /// The client's query.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.way.query.as_deref()
    }

    /// The caller's credential, as it brought it.
    #[must_use]
    pub fn credential(&self) -> Option<&HeaderValue> {
        self.way.credential.as_ref()
    }

    /// Whether the upstream is shown the caller's own credential, and none that is configured.
    #[must_use]
    pub fn shows_credential(&self) -> bool {
        self.way.credential.is_some() && self.is_judged()
    }

    /// Whether the upstream sees what credential the caller brings, or that it brings none: only then does it say
    /// anything about the caller that it accepts a request. Reached with a credential of ours, it accepts everybody.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        let options = &self.upstream.options;
        let name = &options.credential_header;
        !options.headers.contains_key(name) && (*name != AUTHORIZATION || options.forward_authorization)
    }

    /// Where the caller's requests go.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.way.uri
    }

    /// A header that the caller sent and that goes on to the upstream.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&HeaderValue> {
        self.way.headers.get(name)
    }

    /// The upstream said something to this caller: whoever subscribed to it hears of it.
    pub fn told(&self, message: &Envelope) {
        let session = self.session.as_ref().map(|session| session.fingerprint);
        let place = Place { session, credential: self.credential() };
        self.upstream.sessions.subscribers().told(place, message);
    }

    /// The caller's own request, as it came; in the words of the upstream's era, if that is another.
    #[must_use]
    pub fn request(&self, method: Method, body: Bytes) -> Outbound {
        let headers = self.way.headers.clone();
        match &self.repeated {
            Some(_) => self.written(method, headers, body),
            None => Outbound { method, uri: self.way.uri.clone(), headers, body },
        }
    }

    /// A request of taskgate's own in the caller's name, now: with the caller's headers, and its `_meta` where the era
    /// wants one.
    #[must_use]
    pub fn own_request(&self, id: &Id, method: &str, params: &str) -> Outbound {
        let text = request(id, method, params);
        let text = match self.era {
            Era::Handshake => text,
            Era::Stateless => own_request(&text, self.way.meta.as_deref()),
        };
        self.written(Method::POST, self.way.headers.clone(), text)
    }

    /// A message in the caller's name, later: with the latest credential of its session.
    #[must_use]
    pub fn message(&self, body: Bytes) -> Outbound {
        self.written(Method::POST, Arc::new(self.latest()), body)
    }

    /// A message as the upstream's era has it: in the stateless one, headers repeat what the body says.
    fn written(&self, method: Method, headers: Arc<HeaderMap>, body: Bytes) -> Outbound {
        let plain = Outbound { method, uri: self.way.uri.clone(), headers, body };
        let message = Some(&plain.body).filter(|_| self.era == Era::Stateless);
        let Some(Ok(message)) = message.map(|body| Envelope::read(body.clone())) else { return plain };
        let session = self.session.as_ref();
        let catalog = session.and_then(|session| session.catalog().or_else(|| self.upstream.sessions.latest_catalog()));
        let mut headers = routed(&plain.headers, &message, catalog.as_deref());
        let Some(repeated) = &self.repeated else { return Outbound { headers: Arc::new(headers), ..plain } };
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(STATELESS));
        Outbound { headers: Arc::new(headers), body: repeated.request(&message), ..plain }
    }

    /// Asks for the session's GET stream in the caller's name, later, from after this event of the upstream's on.
    #[must_use]
    pub fn listening(&self, cursor: Option<HeaderValue>) -> Outbound {
        let mut headers = self.latest();
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(cursor) = cursor {
            headers.insert(LAST_EVENT_ID, cursor);
        }
        Outbound { method: Method::GET, uri: self.way.uri.clone(), headers: Arc::new(headers), body: Bytes::new() }
    }

    /// How an event stream of the caller's is taken up again.
    #[must_use]
    pub fn resume(&self) -> Resume {
        let leg = self.clone();
        Resume::new(self.way.uri.clone(), move || {
            let mut headers = leg.latest();
            headers.remove(CONTENT_TYPE);
            headers
        })
    }

    /// The upstream accepted a request of the caller's. That one was accepted without a credential says nothing about
    /// a session that began with one: there may be methods that are open to all.
    pub fn accepted(&self, answer: &HeaderMap) {
        let Some(session) = &self.session else { return };
        if self.is_judged() && (self.credential().is_some() || session.began_with(None)) {
            self.vouched();
        }
        session.keep_cookies(answer);
    }

    /// The upstream, asked for it, accepted the caller's credential on the caller's session, or that it has none.
    pub fn vouched(&self) {
        if let Some(session) = &self.session {
            session.accepted(self.credential(), self.way.turn);
        }
    }

    /// Headers for a request that is made later, in the caller's name.
    fn latest(&self) -> HeaderMap {
        let mut headers = HeaderMap::clone(&self.way.headers);
        headers.remove(LAST_EVENT_ID);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let Some(session) = &self.session else { return headers };
        if let Some(credential) = session.latest_credential().filter(|_| self.is_judged()) {
            headers.insert(self.upstream.options.credential_header.clone(), credential);
        }
        if let Some(cookie) = session.cookie() {
            headers.insert(COOKIE, cookie);
        }
        headers
    }
}

/// The upstream's address with the client's query, after its own if it has one.
fn with_query(url: &Uri, query: Option<&str>) -> Uri {
    let Some(query) = query else { return url.clone() };
    let joined = match url.query() {
        Some(own) => format!("{}?{own}&{query}", url.path()),
        None => format!("{}?{query}", url.path()),
    };
    let mut parts = url.clone().into_parts();
    parts.path_and_query = joined.parse().ok().or(parts.path_and_query);
    Uri::from_parts(parts).unwrap_or_else(|_| url.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_joined() {
        let plain = Uri::from_static("http://h:1/mcp");
        let own = Uri::from_static("http://h:1/mcp?k=1");
        assert_eq!(with_query(&plain, None), "http://h:1/mcp");
        assert_eq!(with_query(&plain, Some("a=b")), "http://h:1/mcp?a=b");
        assert_eq!(with_query(&own, Some("a=b")), "http://h:1/mcp?k=1&a=b");
    }
}
