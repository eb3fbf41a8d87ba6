//! `taskgate tools`: asks each upstream for its tools and shows on which terms they are called.
//!
//! Globs and conditions are easy to get wrong; this shows what they come to, tool by tool, before a client does.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use serde_json::{Value, json};

use super::Source;
use super::demo::answer;
use super::demo::client::explain;
use crate::config;
use crate::mcp::header::{METHOD, PROTOCOL_VERSION, SESSION_ID as SESSION};
use crate::mcp::{Era, STATELESS, meta_key};
use crate::policy::{Mode, Rules, Terms};
use crate::upstream::{Body, Client, Options};

const VERSION: &str = "2025-11-25";
/// Longest conversation with one upstream.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most pages that are read of one list.
const MOST_PAGES: usize = 50;

/// Ask the upstreams for their tools and show how each is called: mode, threshold, hints
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// A header for every request, as in "Authorization: Bearer …" (may be repeated)
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Asks and prints. Status 1 if an upstream could not be asked, 78 if the configuration is wrong.
#[must_use]
pub(super) fn run(args: Args) -> ExitCode {
    let config = match args.source.read() {
        Ok(config) => config,
        Err(status) => return status,
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            // Without a reader there is nobody to tell; the status says it too.
            let _ = writeln!(std::io::stderr(), "taskgate tools: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let headers: HeaderMap = args.headers.into_iter().collect();
    let shelves = runtime.block_on(join_all(config.upstreams.iter().map(|upstream| shelf(upstream, &headers))));
    let failed = shelves.iter().any(|shelf| shelf.tools.is_err());
    let text = if args.json { as_json(&shelves) } else { as_text(&shelves) };
    // A reader that leaves early has seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected \"Name: value\"")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is not a header name"))?;
    // The value may be a secret: it is not repeated.
    let value = HeaderValue::from_str(value.trim());
    let mut value = value.map_err(|_| "the value has characters that a header cannot carry")?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// One upstream and what it has.
struct Shelf {
    name: String,
    path: String,
    url: String,
    tools: Result<Vec<Tool>, String>,
}

/// One tool and its terms.
struct Tool {
    name: String,
    /// Several when a condition on the arguments decides.
    terms: Vec<Arc<Terms>>,
    read_only: Option<bool>,
    idempotent: Option<bool>,
}

impl Tool {
    fn new(tool: &Value, rules: &Rules) -> Self {
        let name = tool["name"].as_str().unwrap_or_default().to_owned();
        let mut terms: Vec<Arc<Terms>> = Vec::new();
        for possible in rules.possible(&name) {
            if !terms.iter().any(|known| phrase(known) == phrase(possible)) {
                terms.push(possible.clone());
            }
        }
        let hint = |hint: &str| tool["annotations"][hint].as_bool();
        Self { name, terms, read_only: hint("readOnlyHint"), idempotent: hint("idempotentHint") }
    }

    fn mode(&self) -> String {
        let phrases: Vec<_> = self.terms.iter().map(|terms| phrase(terms)).collect();
        match phrases.as_slice() {
            [only] => only.clone(),
            several => format!("depends on arguments: {}", several.join(" | ")),
        }
    }
}

/// The mode, and the threshold where there is one: `auto 4s`.
fn phrase(terms: &Terms) -> String {
    match terms.mode {
        Mode::Auto => format!("auto {}", humantime::format_duration(terms.threshold)),
        Mode::Async => "async".to_owned(),
        Mode::Sync => "sync".to_owned(),
    }
}

async fn shelf(upstream: &config::Upstream, headers: &HeaderMap) -> Shelf {
    let options = &upstream.options;
    let listed = tokio::time::timeout(PATIENCE, list(options, headers)).await;
    let listed = listed.unwrap_or_else(|_| Err(format!("no complete list within {} s", PATIENCE.as_secs())));
    Shelf {
        name: options.name.clone(),
        path: options.path.clone(),
        url: shown(&options.url),
        tools: listed.map(|tools| tools.iter().map(|tool| Tool::new(tool, &upstream.rules)).collect()),
    }
}

/// The URL without its query, which may hold a key.
fn shown(url: &http::Uri) -> String {
    let host = url.authority().map_or("", |authority| authority.as_str());
    format!("{}://{host}{}", url.scheme_str().unwrap_or_default(), url.path())
}

/// All tools of one upstream: one session, opened, read page by page, closed; none where the server opens no sessions.
async fn list(options: &Options, headers: &HeaderMap) -> Result<Vec<Value>, String> {
    let client = Client::new(options).map_err(|error| explain(&error))?;
    let (url, headers_of_ours) = (options.url.clone(), options.headers.clone());
    let mut session = Session { client, url, headers: headers_of_ours, next: 0, era: Era::Handshake };
    session.headers.extend(headers.clone());
    if let Err(refused) = session.open().await {
        session.era = Era::Stateless;
        return session.tools().await.map_err(|_| refused);
    }
    let tools = session.tools().await;
    // A server may refuse to close; the list is here all the same.
    let _ = session.send(Method::DELETE, Bytes::new()).await;
    tools
}

/// A conversation with one upstream.
struct Session {
    client: Client,
    url: http::Uri,
    headers: HeaderMap,
    next: u64,
    era: Era,
}

impl Session {
    async fn open(&mut self) -> Result<(), String> {
        let params = json!({"protocolVersion": VERSION, "capabilities": {},
            "clientInfo": client_info()});
        let result = self.request("initialize", params).await?;
        let version = result["protocolVersion"].as_str().unwrap_or(VERSION);
        let version = version.parse().map_err(|_| "initialize answered with an impossible protocolVersion")?;
        self.headers.insert(PROTOCOL_VERSION, version);
        let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let status = self.send(Method::POST, note.to_string().into()).await?.status();
        if status.is_success() { Ok(()) } else { Err(format!("notifications/initialized: HTTP {status}")) }
    }

    async fn tools(&mut self) -> Result<Vec<Value>, String> {
        let mut tools = Vec::new();
        let mut params = json!({});
        for _ in 0..MOST_PAGES {
            let mut page = self.request("tools/list", params.clone()).await?;
            match page["tools"].as_array_mut() {
                Some(more) => tools.append(more),
                None => return Err("tools/list: the result has no list of tools".to_owned()),
            }
            match page["nextCursor"].as_str() {
                None | Some("") => return Ok(tools),
                Some(cursor) => params = json!({"cursor": cursor}),
            }
        }
        Err(format!("tools/list: no end after {MOST_PAGES} pages"))
    }

    /// Sends a request and returns its result; learns the session's id from the answer to `initialize`.
    async fn request(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.next;
        self.next += 1;
        let params = match self.era {
            Era::Handshake => params,
            Era::Stateless => self.stateless(method, params),
        };
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let response = self.send(Method::POST, body.to_string().into()).await?;
        if method == "initialize"
            && let Some(session) = response.headers().get(SESSION)
        {
            self.headers.insert(SESSION, session.clone());
        }
        let (mut message, _) = answer::read(response, id).await.map_err(|error| format!("{method}: {error}"))?;
        match message.get("error") {
            Some(error) => Err(format!("{method}: error {}: {}", error["code"], error["message"])),
            None => Ok(message["result"].take()),
        }
    }

    /// What a request of the stateless era says each time, in its headers and in its parameters, which are returned.
    fn stateless(&mut self, method: &str, mut params: Value) -> Value {
        self.headers.remove(SESSION);
        self.headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(STATELESS));
        if let Ok(method) = HeaderValue::from_str(method) {
            self.headers.insert(METHOD, method);
        }
        params["_meta"] = json!({
            meta_key::PROTOCOL_VERSION: STATELESS,
            meta_key::CLIENT_INFO: client_info(),
            meta_key::CLIENT_CAPABILITIES: {},
        });
        params
    }

    async fn send(&self, method: Method, body: Bytes) -> Result<Response<Body>, String> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        self.client.send(request).await.map_err(|error| explain(&error))
    }
}

fn client_info() -> Value {
    json!({"name": "taskgate-tools", "version": env!("CARGO_PKG_VERSION")})
}

/// What usually helps against an error.
fn hint(error: &str) -> &'static str {
    if error.contains("HTTP 401") || error.contains("HTTP 403") {
        "the server wants a credential: --header \"Authorization: Bearer …\""
    } else if error.contains("HTTP 404") || error.contains("HTTP 405") || error.contains("no JSON") {
        "is this the path of its MCP endpoint (often /mcp)?"
    } else {
        "is the server running, and is this its address?"
    }
}

fn as_text(shelves: &[Shelf]) -> String {
    let mut text = String::new();
    for (index, shelf) in shelves.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let _ = writeln!(text, "{}: {} served on {}", printable(&shelf.name), shelf.url, shelf.path);
        match &shelf.tools {
            Ok(tools) if tools.is_empty() => text.push_str("  it has no tools\n"),
            Ok(tools) => text.push_str(&table(tools)),
            Err(error) => {
                let _ = writeln!(text, "  could not be asked: {}\n  hint: {}", printable(error), hint(error));
            }
        }
    }
    text
}

fn table(tools: &[Tool]) -> String {
    let declared = |hint: Option<bool>| match hint {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => "-".to_owned(),
    };
    let head = ["TOOL", "MODE", "READ-ONLY", "IDEMPOTENT"].map(str::to_owned);
    let rows = tools
        .iter()
        .map(|tool| [printable(&tool.name), tool.mode(), declared(tool.read_only), declared(tool.idempotent)]);
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    let mut text = String::new();
    for [tool, mode, read_only, idempotent] in &rows {
        let [a, b, c] = widths;
        let _ = writeln!(text, "  {tool:a$}  {mode:b$}  {read_only:c$}  {idempotent}");
    }
    text
}

fn as_json(shelves: &[Shelf]) -> String {
    let terms = |terms: &Arc<Terms>| match terms.mode {
        Mode::Auto => json!({"mode": "auto", "threshold": humantime::format_duration(terms.threshold).to_string()}),
        Mode::Async => json!({"mode": "async"}),
        Mode::Sync => json!({"mode": "sync"}),
    };
    let tool = |tool: &Tool| {
        json!({"name": tool.name, "terms": tool.terms.iter().map(terms).collect::<Vec<_>>(),
            "readOnly": tool.read_only, "idempotent": tool.idempotent})
    };
    let shelves = shelves.iter().map(|shelf| {
        let mut entry = json!({"name": shelf.name, "path": shelf.path, "url": shelf.url});
        match &shelf.tools {
            Ok(tools) => entry["tools"] = tools.iter().map(tool).collect(),
            Err(error) => entry["error"] = json!(error),
        }
        entry
    });
    format!("{:#}\n", json!({"upstreams": shelves.collect::<Vec<_>>()}))
}

/// Text from a server, harmless to a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, Full};
    use hyper_util::rt::TokioIo;

    use super::*;
    use crate::config::{Config, Overrides};
    use crate::shutdown::Work;

    fn terms(mode: Mode) -> Arc<Terms> {
        let second = Duration::from_secs(1);
        Arc::new(Terms {
            mode,
            threshold: 4 * second,
            ttl: second,
            max_ttl: second,
            poll_interval: second,
            max_runtime: second,
            input_timeout: second,
            without_tasks: crate::policy::WithoutTasks::Job,
            retry: crate::policy::Retry::Never,
            coalesce: false,
            max_result: 1,
        })
    }

    fn tool(name: &str, terms: Vec<Arc<Terms>>, read_only: Option<bool>) -> Tool {
        Tool { name: name.to_owned(), terms, read_only, idempotent: Some(true) }
    }

    fn shelves() -> Vec<Shelf> {
        let tools = vec![
            tool("get\u{1b}[2J", vec![terms(Mode::Sync)], Some(true)),
            tool("mesh_sweep", vec![terms(Mode::Async), terms(Mode::Auto)], None),
        ];
        let shelf = |name: &str, tools| Shelf {
            name: name.to_owned(),
            path: format!("/{name}"),
            url: format!("http://{name}/mcp"),
            tools,
        };
        vec![shelf("a", Ok(tools)), shelf("b", Err("HTTP 401 Unauthorized".to_owned())), shelf("c", Ok(Vec::new()))]
    }

    #[test]
    fn the_table_is_aligned_and_harmless() {
        let want = "\
a: http://a/mcp served on /a
  TOOL        MODE                                   READ-ONLY  IDEMPOTENT
  get\u{fffd}[2J     sync                                   yes        yes
  mesh_sweep  depends on arguments: async | auto 4s  -          yes

b: http://b/mcp served on /b
  could not be asked: HTTP 401 Unauthorized
  hint: the server wants a credential: --header \"Authorization: Bearer …\"

c: http://c/mcp served on /c
  it has no tools
";
        assert_eq!(as_text(&shelves()), want);
    }

    #[test]
    fn json_says_the_same() {
        let json: Value = serde_json::from_str(&as_json(&shelves())).unwrap();
        let upstreams = &json["upstreams"];
        assert_eq!(
            upstreams[0]["tools"][1],
            json!({"name": "mesh_sweep", "terms": [{"mode": "async"}, {"mode": "auto", "threshold": "4s"}],
                "readOnly": null, "idempotent": true})
        );
        assert_eq!(upstreams[1]["error"], "HTTP 401 Unauthorized");
    }

    #[test]
    fn a_header_is_read_and_a_secret_not_repeated() {
        let (name, value) = header("Authorization: Bearer a:b").unwrap();
        assert_eq!((name.as_str(), value.as_bytes()), ("authorization", b"Bearer a:b".as_slice()));
        assert!(header("Authorization").is_err() && header("a b: c").is_err());
        assert!(!header("X: sec\u{1}ret").unwrap_err().contains("ret"));
    }

    type Answered = (u16, &'static str, String);

    /// A server on a loopback port whose answers `script` makes from the `X-Key` header and the message.
    async fn upstream(work: &Work, script: fn(&HeaderMap, &Value) -> Answered) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let spawner = work.clone();
        drop(work.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let (status, kind, body) =
                        script(&head.headers, &serde_json::from_slice(&body).unwrap_or_default());
                    let response = Response::builder().status(status).header(CONTENT_TYPE, kind).header(SESSION, "s");
                    Ok::<_, Infallible>(response.body(Full::<Bytes>::from(body)).unwrap())
                });
                let connection = hyper::server::conn::http1::Builder::new();
                drop(spawner.spawn(connection.serve_connection(TokioIo::new(stream), service)));
            }
        }));
        url
    }

    fn paged(headers: &HeaderMap, message: &Value) -> Answered {
        let answer = |result: &Value| json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        let (method, known) = (message["method"].as_str(), headers.get(SESSION).is_some_and(|id| id == "s"));
        match (method, known) {
            (Some("initialize"), false) => {
                let result = answer(&json!({"protocolVersion": "2025-06-18"}));
                (200, "text/event-stream", format!("id: 1\ndata:\n\ndata: {result}\n\n"))
            }
            (Some("tools/list"), true) if headers["mcp-protocol-version"] == "2025-06-18" => {
                let page = if message["params"]["cursor"] == "2" {
                    json!({"tools": [{"name": "two", "annotations": {"readOnlyHint": true}}], "nextCursor": ""})
                } else {
                    json!({"tools": [{"name": "one"}], "nextCursor": "2"})
                };
                (200, "application/json", answer(&page))
            }
            (_, true) => (202, "text/plain", String::new()),
            _ => (400, "text/plain", "no session".to_owned()),
        }
    }

    async fn asked(url: &str) -> Shelf {
        let text = format!("[[upstream]]\nname = \"it\"\nurl = \"{url}\"\n");
        let Ok(config) = Config::parse(&text, &Overrides::default()) else { panic!("the configuration is valid") };
        shelf(&config.upstreams[0], &HeaderMap::new()).await
    }

    #[tokio::test]
    async fn reads_every_page_in_one_session() {
        let work = Work::new();
        let url = upstream(&work, paged).await;
        let shelf = asked(&format!("{url}?key=hunter2")).await;
        assert_eq!(shelf.url, url);
        let tools = shelf.tools.unwrap();
        let rows: Vec<_> = tools.iter().map(|tool| (tool.name.as_str(), tool.read_only)).collect();
        assert_eq!(rows, [("one", None), ("two", Some(true))]);
        assert_eq!(tools[0].mode(), "auto 4s");
    }

    #[tokio::test]
    async fn reads_the_tools_of_a_server_without_sessions() {
        let work = Work::new();
        let url = upstream(&work, |headers, message| {
            let says = |name: &str, value: &str| headers.get(name).is_some_and(|found| found == value);
            let meta = &message["params"]["_meta"];
            let fits = says("mcp-protocol-version", STATELESS)
                && says("mcp-method", "tools/list")
                && !headers.contains_key(SESSION)
                && meta["io.modelcontextprotocol/protocolVersion"] == STATELESS
                && meta["io.modelcontextprotocol/clientCapabilities"].is_object();
            let told = if fits {
                json!({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [{"name": "one"}]}})
            } else {
                json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}})
            };
            (if fits { 200 } else { 404 }, "application/json", told.to_string())
        });
        let tools = asked(&url.await).await.tools.unwrap();
        assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["one"]);
    }

    #[tokio::test]
    async fn a_list_without_end_is_given_up() {
        let work = Work::new();
        let endless = upstream(&work, |_, message| {
            let result = json!({"tools": [], "nextCursor": "again"});
            (200, "application/json", json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
        });
        let error = asked(&endless.await).await.tools.err().unwrap();
        assert!(error.contains("no end after 50 pages"), "{error}");
    }

    #[tokio::test]
    async fn an_upstream_that_refuses_or_is_not_there_is_an_error_with_a_hint() {
        let work = Work::new();
        let locked = upstream(&work, |_, _| (401, "text/plain", "who are you?".to_owned())).await;
        let error = asked(&locked).await.tools.err().unwrap();
        assert_eq!(error, "initialize: HTTP 401 Unauthorized: who are you?");
        assert!(hint(&error).contains("--header"));

        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let gone = asked(&format!("http://{free}/mcp")).await;
        assert!(gone.tools.is_err());
        let text = as_text(&[gone]);
        assert!(text.contains(&free.to_string()) && text.contains("is the server running"), "{text}");
    }
}
