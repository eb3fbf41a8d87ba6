//! HTTP around the messages: answers that are none, methods, headers, hosts and origins.
//!
//! A request with an id always gets an answer with that id, and nobody gets in who should not.

use serde_json::json;

use crate::support::client::raw_exchange;
use crate::support::upstream::{Get, script};
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, soon};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

#[tokio::test]
async fn b73_headers_survive_on_every_path() {
    let headed = |sse: bool| {
        script::script(move |mut call| async move {
            for (name, value) in
                [("x-custom", "1"), ("connection", "x-hop"), ("x-hop", "1"), ("keep-alive", "timeout=5")]
            {
                call.header(name, value);
            }
            let session = call.request.session().unwrap().to_owned();
            call.header("mcp-session-id", &session);
            if sse {
                call.open();
            }
            call.say("x");
        })
    };
    let busy = [("x-custom", "1"), ("retry-after", "7"), ("content-type", "text/plain")];
    let busy = script::script(move |mut call| async move { call.raw(429, &busy, "slow down") });
    let builder = Upstream::builder().header("x-always", "2").tool("json", headed(false)).tool("sse", headed(true));
    let upstream = builder.tool("busy", busy).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    for tool in ["json", "sse"] {
        let answer = client.call(tool, json!({})).await;
        assert_eq!((answer.text(), answer.sse), ("x", tool == "sse"));
        assert_eq!(answer.header("mcp-session-id"), client.session.as_deref(), "{tool}");
        assert_eq!((answer.header("x-custom"), answer.header("x-always")), (Some("1"), Some("2")), "{tool}");
        assert_eq!((answer.header("x-hop"), answer.header("keep-alive")), (None, None), "{tool}");
    }
    let busy = client.call("busy", json!({})).await;
    assert_eq!((busy.status, busy.header("retry-after"), busy.header("x-custom")), (429, Some("7"), Some("1")));
    let accepted = client.notify("notifications/roots/list_changed", &json!({})).await;
    assert_eq!((accepted.status, accepted.raw.as_str()), (202, ""));
}

#[tokio::test]
async fn b73_a_stale_session_does_not_leak_into_initialize() {
    let upstream = Upstream::builder().start().await;
    let gate = Gate::start(&upstream, "").await;
    let mut client = gate.client().in_session(Some("stale"));
    let hello = client.hello().await;
    hello.result();
    assert_eq!(upstream.of("initialize")[0].session(), None);
    assert_eq!(client.session, Some(upstream.sessions().remove(0)));
}

/// Name, status, headers, body.
type Response = (&'static str, u16, &'static [(&'static str, &'static str)], &'static [u8]);

/// Answers that are no answers.
const ODD: &[Response] = &[
    ("502 html", 502, &[("content-type", "text/html")], b"<html>Bad Gateway</html>"),
    ("500 empty", 500, &[], b""),
    ("200 html", 200, &[("content-type", "text/html")], b"<html>Welcome</html>"),
    ("200 array", 200, JSON, b"[]"),
    ("200 object", 200, JSON, b"{\"hello\":1}"),
    ("200 text", 200, JSON, b"oops"),
    ("200 empty", 200, JSON, b""),
    ("204", 204, &[], b""),
    ("202", 202, &[], b""),
    ("truncated", 200, JSON, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{"),
    ("empty stream", 200, &[("content-type", "text/event-stream")], b""),
    ("stream of comments", 200, &[("content-type", "text/event-stream")], b": a\n\n: b\n\n"),
];

#[tokio::test]
async fn b79_answers_that_are_none_become_errors_with_the_callers_id() {
    for &(name, status, headers, body) in ODD {
        let upstream = Upstream::builder().tool("odd", script::responds(status, headers, body)).start().await;
        let gate = Gate::start(&upstream, PATIENT).await;
        let answer = soon(name, gate.client().open().await.call_as("\"odd\"", "odd", json!({}))).await;
        assert_eq!((answer.status, &answer.json["id"]), (200, &json!("odd")), "{name}: {}", answer.raw);
        assert_eq!(answer.code(), -32603, "{name}");
        assert!(["upstream_protocol", "outcome_unknown"].contains(&answer.reason()), "{name}: {}", answer.raw);
        assert_eq!(upstream.calls("odd").len(), 1, "{name}");
    }
}

#[tokio::test]
async fn b79_a_wrong_or_null_id_is_answered_under_the_right_one() {
    for id in ["null", "999", "\"x\""] {
        let wrong = script::script(move |mut call| async move {
            call.raw(200, JSON, format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"m"}}}}"#));
        });
        let upstream = Upstream::builder().tool("wrong", wrong).start().await;
        let gate = Gate::start(&upstream, PATIENT).await;
        let answer = gate.client().open().await.call_as("31", "wrong", json!({})).await;
        assert_eq!(answer.json["id"], 31, "{id}: {}", answer.raw);
        assert!(answer.error()["code"].is_number());
    }
}

#[tokio::test]
async fn b79_statuses_with_a_meaning_pass() {
    for status in [401, 403, 404, 405, 429] {
        let refuse = script::script(move |mut call| async move {
            call.raw(status, &[("x-why", "because"), ("content-type", "text/plain")], "no");
        });
        let upstream = Upstream::builder().tool("no", refuse).start().await;
        let gate = Gate::start(&upstream, PATIENT).await;
        let answer = gate.client().open().await.call("no", json!({})).await;
        assert_eq!((answer.status, answer.header("x-why")), (status, Some("because")));
    }
}

#[tokio::test]
async fn b79_after_the_handle_the_task_fails() {
    let latch = Latch::new();
    let late = script::held_then(&latch, |mut call| async move {
        call.raw(502, &[("content-type", "text/html")], format!("<html>{}</html>", "secret ".repeat(100)));
    });
    let upstream = Upstream::builder().tool("late", late).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let task = client.call("late", json!({})).await.task();
    latch.open();
    let end = client.task_end(&task).await;
    assert_eq!((end.state().as_str(), &end.result()["error"]["data"]["source"]), ("failed", &json!("taskgate")));
    assert!(end.raw.matches("secret").count() <= 30, "at most 200 characters of a body: {}", end.raw);
}

#[tokio::test]
async fn b79_before_a_session_stands_the_status_tells() {
    let upstream = Upstream::builder().start().await;
    let url = upstream.url();
    drop(upstream);
    for url in [url.as_str(), "http://does-not-exist.invalid/mcp"] {
        let gate = Gate::at(url, "").await;
        let refused = gate.client().hello().await;
        assert_eq!((refused.status, refused.reason()), (502, "upstream_unreachable"), "{url}");
        assert_eq!(refused.json["id"], 1);
    }
    let html = script::responds(502, &[("content-type", "text/html")], b"<html>");
    let upstream = Upstream::builder().on("initialize", html).start().await;
    let gate = Gate::start(&upstream, "").await;
    let refused = gate.client().hello().await;
    assert_eq!((refused.status, refused.reason()), (502, "upstream_protocol"));
}

#[tokio::test]
async fn b79_notifications_are_accepted_and_never_answered() {
    let chatty = script::responds(200, JSON, b"{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}");
    let upstream = Upstream::builder().on("notifications/x", chatty).start().await;
    let gate = Gate::start(&upstream, "").await;
    let answer = gate.client().open().await.notify("notifications/x", &json!({})).await;
    assert_eq!((answer.status, answer.raw.as_str()), (202, ""));
    assert_eq!(upstream.of("notifications/x").len(), 1);
}

#[tokio::test]
async fn b80_get_without_a_session() {
    let upstream = Upstream::builder().get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let before = upstream.all().len();
    let bare = gate.client();
    for _ in 0..100 {
        assert_eq!(bare.listen().await.status, 405);
    }
    assert_eq!((upstream.all().len(), upstream.sessions().len()), (before, 1));
    assert_eq!(bare.version("2026-07-28").listen().await.status, 405, "stateless");
    assert_eq!(client.listen().await.status, 200);
}

#[tokio::test]
async fn b80_get_is_relayed_both_ways() {
    let upstream = Upstream::builder().start().await;
    let gate = Gate::start(&upstream, "").await;
    let refused = gate.client().open().await.listen().await;
    assert_eq!((refused.status, refused.header("allow")), (405, Some("POST, DELETE")));

    let upstream = Upstream::builder().get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let mut stream = client.listen().await.events();
    eventually("it is open", || upstream.listeners() == 1).await;
    for number in 0..3 {
        upstream.push(&json!({"jsonrpc": "2.0", "method": "notifications/n", "params": {"n": number}}));
        assert_eq!(stream.message().await.unwrap()["params"]["n"], number);
    }
    assert_eq!(upstream.http("GET")[0].session(), client.session.as_deref());
}

#[tokio::test]
async fn b80_delete_is_the_upstreams_answer() {
    for status in [200, 204, 404, 405] {
        let upstream = Upstream::builder().delete(status).start().await;
        let gate = Gate::start(&upstream, "").await;
        let client = gate.client().open().await;
        assert_eq!(client.delete().await.status, status);
        assert_eq!(upstream.http("DELETE")[0].session(), client.session.as_deref());
    }
}

#[tokio::test]
async fn b82_the_upstream_sees_its_own_host_and_both_accept_types() {
    let upstream = Upstream::builder().own_host_only().tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    for accept in [
        "application/json, text/event-stream",
        "application/json",
        "text/event-stream",
        "*/*",
        "",
        "text/event-stream;q=0.9, application/json;q=0.1",
    ] {
        let client = gate.client().accept(accept).open().await;
        let answer = client.call("echo", json!({"text": accept})).await;
        assert_eq!(answer.text(), accept);
        if accept.starts_with("application/json") || accept == "text/event-stream" {
            assert_eq!(answer.sse, accept == "text/event-stream", "{accept}");
        }
        let seen = upstream.calls("echo").pop().unwrap();
        let sent = seen.header("accept").unwrap();
        assert!(sent.contains("application/json") && sent.contains("text/event-stream"), "{accept} became {sent}");
        assert!(seen.header("x-forwarded-for").is_some_and(|peer| peer.contains("127.0.0.1")), "{:?}", seen.headers);
    }
}

#[tokio::test]
async fn b82_a_client_that_reads_only_json_gets_its_handle_as_json() {
    let latch = Latch::new();
    let upstream = Upstream::builder().sse().tool("slow", script::held(&latch, "late")).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().accept("application/json").open().await;
    let handle = client.call("slow", json!({})).await;
    assert!(!handle.sse);
    latch.open();
    assert_eq!(client.job_end(&handle.job()).await.block(1), "late");
}

#[tokio::test]
async fn b82_hosts_and_origins() {
    let upstream = Upstream::builder().start().await;
    let gate = Gate::start(
        &upstream,
        "[server]\npublic_url = \"https://gate.example\"\nallowed_origins = [\"localhost\", \"https://app.example\"]",
    )
    .await;
    let hello = |name: &'static str, value: &'static str| {
        let mut client = gate.client().header(name, value);
        async move { client.hello().await.status }
    };
    for origin in ["http://localhost:3000", "http://127.0.0.1:8080", "http://[::1]:1", "https://app.example"] {
        assert_eq!(hello("origin", origin).await, 200, "{origin}");
    }
    for origin in ["https://evil.example", "http://localhost.evil.example", "https://app.example.evil", "null"] {
        assert_eq!(hello("origin", origin).await, 403, "{origin}");
    }
    for host in ["localhost:1", "127.0.0.1", "[::1]:80", "gate.example"] {
        assert_eq!(hello("host", host).await, 200, "{host}");
    }
    let before = upstream.all().len();
    for host in ["evil.example", "localhost.evil.example"] {
        assert!((400..500).contains(&hello("host", host).await), "{host}");
    }
    for hosts in ["", "Host: localhost\r\nHost: localhost\r\n"] {
        let request = format!("POST /mcp HTTP/1.1\r\n{hosts}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}");
        let answer = raw_exchange(gate.addr, request.as_bytes(), |seen| seen.contains("\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{hosts}: {answer}");
    }
    assert_eq!(upstream.all().len(), before);
}

#[tokio::test]
async fn b82_cors() {
    let upstream =
        Upstream::builder().header("access-control-allow-origin", "*").tool("e", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let ask = [
        ("origin", "http://localhost:6274"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "mcp-session-id"),
    ];
    let preflight = gate.http().send("OPTIONS", "/mcp", &ask, "").await;
    assert!([200, 204].contains(&preflight.status), "{}", preflight.status);
    assert_eq!(preflight.header("access-control-allow-origin"), Some("http://localhost:6274"));
    let allowed = preflight.header("access-control-allow-headers").unwrap().to_lowercase();
    for name in [
        "accept",
        "authorization",
        "content-type",
        "mcp-session-id",
        "mcp-protocol-version",
        "last-event-id",
        "mcp-method",
        "mcp-name",
    ] {
        assert!(allowed.contains(name), "{name} in {allowed}");
    }
    assert!(upstream.all().is_empty());
    let answer = gate.client().header("origin", "http://localhost:6274").hello().await;
    assert_eq!(
        answer.header("access-control-allow-origin"),
        Some("http://localhost:6274"),
        "the upstream's is replaced"
    );
    let exposed = answer.header("access-control-expose-headers").unwrap_or_default().to_lowercase();
    assert!(exposed.contains("mcp-session-id"), "{exposed}");
}

#[tokio::test]
async fn b82_slashes_queries_and_redirects() {
    let upstream = Upstream::builder().redirect("/mcp").tool("echo", script::echo()).start().await;
    let gate = Gate::at(&upstream.url_at("/old"), PATIENT).await;
    for path in ["/mcp", "/mcp/"] {
        let client = gate.client().path(path).open().await;
        assert_eq!(client.call("echo", json!({"text": "x"})).await.text(), "x", "{path}");
    }
    assert_eq!(gate.client().path("/other").hello().await.status, 404);
    assert!(upstream.http("POST").iter().any(|post| post.path == "/old"));

    let gate = Gate::start(&upstream, PATIENT).await;
    gate.client().path("/mcp?tenant=7&x=%20").open().await;
    assert_eq!(upstream.of("initialize").pop().unwrap().path, "/mcp?tenant=7&x=%20");

    let elsewhere = Upstream::builder().start().await;
    let away = Upstream::builder().redirect(&elsewhere.url()).start().await;
    let gate = Gate::at(&away.url_at("/old"), "").await;
    assert_eq!(gate.client().hello().await.status, 502);
    assert!(elsewhere.all().is_empty(), "never to another host");
}

#[tokio::test]
async fn b82_several_upstreams_each_on_its_path() {
    let latch = Latch::new();
    let one = Upstream::builder().tool("slow", script::held(&latch, "one")).start().await;
    let two = Upstream::builder().tool("slow", script::held(&latch, "two")).start().await;
    let gate = Gate::paths(&[("/one", &one), ("/two", &two)], "").await;
    let (a, b) = (gate.client().path("/one").open().await, gate.client().path("/two").open().await);
    let job = a.call("slow", json!({})).await.job();
    assert_eq!(b.job(&job, 0.0).await.state(), "not_found", "a task belongs to its path");
    latch.open();
    assert_eq!(a.job_end(&job).await.block(1), "one");
    assert_eq!((one.calls("slow").len(), two.calls("slow").len()), (1, 0));
}
