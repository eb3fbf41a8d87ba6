//! What is taken, and what comes out of it.
//!
//! What is refused is next door.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::gateway::{OutputSchema, SessionEnd};
use crate::policy::{Mode, Retry, WithoutTasks};
use crate::store::Kind;
use crate::task::OwnerMode;
use crate::telemetry::log::Format;

mod mistakes;

const UPSTREAM: &str = "\n[[upstream]]\nurl = \"http://127.0.0.1:8000/mcp\"\n";

fn none() -> Overrides {
    Overrides::default()
}

fn good(text: &str) -> Config {
    Config::parse(text, &none()).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

fn message(text: &str) -> String {
    Config::parse(text, &none()).expect_err(text).to_string()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn an_upstream_is_enough() {
    let config = good(UPSTREAM);
    assert_eq!(config.server.listen, SocketAddr::from(([127, 0, 0, 1], 8080)));
    assert_eq!(config.server.public_url, None);
    assert_eq!(config.server.allowed_origins, ["localhost"]);
    assert_eq!(config.server.trusted_proxies, []);
    assert_eq!(config.server.max_body, 32 << 20);
    assert_eq!(config.server.keepalive, seconds(15));
    assert_eq!(config.server.header_timeout, seconds(10));
    assert_eq!((config.session.max_sessions, config.session.idle), (100_000, seconds(3600)));
    assert_eq!((config.drain_timeout, &config.secret), (seconds(30), &None));
    let admin = config.admin.as_ref().unwrap();
    assert_eq!((admin.listen.port(), &admin.token, admin.metrics_token), (9090, &None, false));
    assert_eq!((config.log.format, config.log.level.as_str()), (Format::Text, "info"));
    assert_eq!(config.store.max_retained, 4 << 30);
    assert_eq!(config.store.kind, Kind::Embedded { path: "taskgate.db".into() });
    assert_eq!((config.worker.max_running, config.worker.max_running_per_owner), (10_000, 64));
    let gateway = &config.gateway;
    assert!(gateway.handshake_extension && gateway.harvest_progress);
    assert_eq!((gateway.owner, gateway.on_session_end), (OwnerMode::Auto, SessionEnd::Auto));
    let jobs = &gateway.jobs;
    assert_eq!((jobs.result_tool.as_str(), jobs.cancel_tool.as_str()), ("get_job_result", "cancel_job"));
    assert_eq!(
        (jobs.list_tool.as_str(), jobs.wait, jobs.output_schema),
        ("list_jobs", seconds(20), OutputSchema::Drop)
    );
    let [upstream] = &config.upstreams[..] else { panic!() };
    let options = &upstream.options;
    assert_eq!((options.name.as_str(), options.path.as_str()), ("default", "/mcp"));
    assert_eq!((options.connect_timeout, options.idle_timeout), (seconds(5), seconds(4)));
    assert!(options.forward_authorization && !options.mint_sessions && options.headers.is_empty());
    assert_eq!(options.credential_header, "authorization");
    let terms = upstream.rules.terms("any", None);
    assert_eq!((terms.mode, terms.threshold, terms.ttl), (Mode::Auto, seconds(4), seconds(3600)));
    assert_eq!((terms.max_ttl, terms.poll_interval, terms.max_runtime), (seconds(86400), seconds(2), seconds(3600)));
    assert_eq!((terms.without_tasks, terms.retry, terms.max_result), (WithoutTasks::Job, Retry::Never, 32 << 20));
    assert!(!terms.coalesce);
    assert_eq!(config.warnings, [""; 0]);
}

const EVERY_KEY: &str = r#"
[server]
listen = "[::1]:1"
public_url = "https://tasks.example.com/gate"
allowed_origins = ["https://a.example", "vscode-webview://abc", "*"]
trusted_proxies = ["10.0.0.0/8", "::1"]
max_body = "1 KiB"
max_sessions = 1_000
session_idle = "1h 30m"
keepalive = "10ms"
header_timeout = "1s"
drain_timeout = "0s"
secret = { env = "CARGO_PKG_DESCRIPTION" }
[admin]
listen = "0.0.0.0:2"
token = { file = "TOKEN_FILE" }
metrics_token = true
[log]
format = "json"
level = "info,taskgate::worker=debug"
[store]
kind = "embedded"
path = "a.db"
[tasks]
mode = "async"
without_tasks = "refuse"
retry = "idempotent"
owner = "id"
on_session_end = "cancel"
harvest_progress = false
max_running = 0x10
max_running_per_owner = 1
max_retained = "1GB"
[jobs]
result_tool = "r"
cancel_tool = "c"
list_tool = "l"
wait = "0s"
output_schema = "widen"
[dialect]
handshake_extension = false
[[upstream]]
name = "a"
path = "/a/"
url = "https://host:1/x?key=1"
mint_sessions = true
forward_authorization = false
credential_header = "X-Key"
connect_timeout = "1s"
idle_timeout = "2s"
"#;

#[test]
fn every_key_is_read() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "abc\r\n").unwrap();
    let config = good(&EVERY_KEY.replace("TOKEN_FILE", token.path().to_str().unwrap()));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    assert_eq!(config.server.public_url.unwrap().host(), Some("tasks.example.com"));
    assert_eq!(config.server.trusted_proxies, [("10.0.0.0".parse().unwrap(), 8), ("::1".parse().unwrap(), 128)]);
    assert_eq!((config.server.max_body, config.session.idle), (1024, seconds(5400)));
    assert_eq!(config.secret.as_deref(), Some(env!("CARGO_PKG_DESCRIPTION").as_bytes()));
    let admin = config.admin.unwrap();
    assert_eq!((admin.metrics_token, admin.token.as_deref()), (true, Some("abc")));
    assert_eq!((config.log.format, config.worker.max_running), (Format::Json, 16));
    assert_eq!(config.store.kind, Kind::Embedded { path: "a.db".into() });
    assert_eq!((config.store.max_retained, config.gateway.owner), (1_000_000_000, OwnerMode::Id));
    assert!(!config.gateway.handshake_extension && !config.gateway.harvest_progress);
    assert_eq!((config.gateway.jobs.wait, config.gateway.jobs.output_schema), (seconds(0), OutputSchema::Widen));
    let upstream = &config.upstreams[0];
    assert_eq!((upstream.options.path.as_str(), upstream.options.mint_sessions), ("/a", true));
    assert!(!upstream.options.forward_authorization);
    assert_eq!(upstream.options.credential_header, "x-key");
    assert_eq!((upstream.options.connect_timeout, upstream.options.idle_timeout), (seconds(1), seconds(2)));
    assert_eq!(upstream.options.url, "https://host:1/x?key=1");
    assert_eq!(upstream.rules.defaults().mode, Mode::Async);
}

#[test]
fn rules_are_laid_over_the_defaults() {
    let config = good(
        r#"
        [tasks]
        ttl = "2h"
        [[upstream]]
        url = "http://a/mcp"
        headers = { "X-Api-Key" = "k1", authorization = { env = "CARGO_PKG_NAME" } }
          [[upstream.rule]]
          tool = "mesh"
          when = "args.n > 10"
          mode = "async"
          [[upstream.rule]]
          tool = ["get_*", "mesh"]
          mode = "sync"
          coalesce = true
          ttl = "1m"
        "#,
    );
    let upstream = &config.upstreams[0];
    let modes = |args| upstream.rules.terms("mesh", Some(args)).mode;
    assert_eq!((modes(r#"{"n": 11}"#), modes(r#"{"n": 1}"#)), (Mode::Async, Mode::Sync));
    assert_eq!(upstream.rules.terms("mesh", Some(r#"{"n": 11}"#)).ttl, seconds(7200));
    assert_eq!(upstream.rules.terms("get_x", None).ttl, seconds(60));
    assert!(upstream.rules.terms("get_x", None).coalesce && !upstream.rules.terms("other", None).coalesce);
    assert_eq!(upstream.options.headers["x-api-key"], "k1");
    assert!(upstream.options.headers["authorization"].is_sensitive());
}

#[test]
fn secrets_are_not_printed() {
    let text = format!(
        "[server]\nsecret = \"hunter2hunter2hunter2\"\n[admin]\ntoken = \"hunter2\"\n{UPSTREAM}headers = {{ X = \"hunter2\" }}"
    );
    let config = good(&text);
    assert!(!format!("{config:?} {:?}", config.upstreams).contains("hunter2"));
    let text = text.replace("[admin]", "[admin]\ntoken_ = 1").replace("\"hunter2\"\n", "\"hunter2 \"\n");
    assert!(!message(&text).contains("hunter2"), "{}", message(&text));
}

#[test]
fn warnings_name_their_place() {
    let text = format!(
        "[tasks]\nowner = \"principal\"\nthreshold = \"50s\"\n[store]\nkind = \"memory\"\npath = \"a\"\n{UPSTREAM}\
         [[upstream.rule]]\ntool = [\"a\", \"*\"]\n[[upstream.rule]]\ntool = \"b\"\n"
    );
    let warnings = good(&text).warnings;
    let expected = [
        ("line 6: store.path", "not used"),
        ("line 5: store.kind", "tasks are lost"),
        ("line 3: tasks.threshold", "50s"),
        ("line 2: tasks.owner", "held"),
        ("line 13: upstream[0].rule[1].tool", "rule[0]"),
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for (warning, (place, said)) in warnings.iter().zip(expected) {
        assert!(warning.starts_with(place) && warning.contains(said), "{warning}");
    }
}

#[test]
fn flags_go_before_the_file() {
    let some = |text: &str| Some(text.to_owned());
    let overrides = Overrides {
        upstream: some("http://b:1/x"),
        listen: some("127.0.0.1:7"),
        threshold: some("1s"),
        store: some("memory"),
        admin_listen: some(""),
        log_format: some("json"),
    };
    let text = format!("[server]\nlisten = \"127.0.0.1:8\"\n[tasks]\nthreshold = \"2s\"\n{UPSTREAM}");
    for config in [Config::parse(&text, &overrides).unwrap(), Config::from_flags(&overrides).unwrap()] {
        assert_eq!((config.server.listen.port(), config.log.format), (7, Format::Json));
        assert!(config.admin.is_none() && config.warnings.len() == 1);
        assert_eq!((&config.store.kind, config.store.max_retained), (&Kind::Memory, 256 << 20));
        let upstream = &config.upstreams[0];
        assert_eq!((upstream.options.name.as_str(), upstream.options.path.as_str()), ("default", "/mcp"));
        assert_eq!(
            (upstream.options.url.to_string().as_str(), upstream.rules.defaults().threshold),
            ("http://b:1/x", seconds(1))
        );
    }
    let empty = Overrides { upstream: some("http://b/"), listen: some(""), store: some(""), ..none() };
    assert_eq!(Config::from_flags(&empty).unwrap().server.listen.port(), 8080);
    let file = Overrides { upstream: some("http://b/"), store: some("/x/y.db"), ..none() };
    let config = Config::parse("[store]\nkind = \"memory\"", &file).unwrap();
    assert_eq!(config.store.kind, Kind::Embedded { path: "/x/y.db".into() });
}

#[test]
fn wrong_flags_are_reported_with_the_file() {
    let some = |text: &str| Some(text.to_owned());
    let overrides = Overrides { listen: some("x"), store: some("redis://h"), upstream: some("b"), ..none() };
    let problems = Config::parse(&format!("[log]\nformat = \"xml\"\n{UPSTREAM}"), &overrides).unwrap_err();
    let keys: Vec<_> =
        problems.0.iter().map(|problem| (problem.line, problem.key.split(' ').next().unwrap())).collect();
    assert_eq!(keys, [(Some(2), "log.format"), (None, "--listen"), (None, "--store"), (None, "--upstream")]);
    let two = format!("{UPSTREAM}{UPSTREAM}name = \"b\"\npath = \"/b\"");
    let overrides = Overrides { upstream: some("http://b/"), ..none() };
    let problems = Config::parse(&two, &overrides).unwrap_err();
    assert!(problems.to_string().contains("--upstream (TASKGATE_UPSTREAM): the file has 2 upstreams"), "{problems}");
    assert!(Config::from_flags(&none()).unwrap_err().to_string().contains("there is no upstream"));
}

#[test]
fn a_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gate.toml");
    assert!(Config::load(&path, &none()).unwrap_err().to_string().contains("cannot be read"));
    std::fs::write(&path, "[log]\nformat = 1\n").unwrap();
    let problems = Config::load(&path, &none()).unwrap_err().to_string();
    assert!(problems.starts_with(&format!("{}:2: log.format: is an integer", path.display())), "{problems}");
}

#[test]
fn the_line_that_is_not_utf8_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"[log]\n# gr\xc3\xbc\xc3\x9fe\n# gr\xfc\xdfe\n").unwrap();
    let problems = Config::load(file.path(), &none()).unwrap_err();
    assert_eq!((problems.0.len(), problems.0[0].line), (1, Some(3)));
    let said = format!("{}:3: is not UTF-8: a byte is 0xFC\n  expected: a text file in UTF-8", file.path().display());
    assert!(problems.to_string().starts_with(&said), "{problems}");
}
