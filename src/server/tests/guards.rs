//! Who gets in: Host, Origin, transfer codings, CORS, paths, methods, sizes.

use http::HeaderMap;
use http::HeaderValue;

use super::*;
use crate::call::Body;

fn with_host(host: &str) -> String {
    format!("POST /mcp HTTP/1.1\r\n{host}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}")
}

#[tokio::test]
async fn exactly_one_host_that_agrees_with_the_target() {
    let gate = Gate::fine(options());
    assert_status(&gate.ask(&with_host("Host: localhost:1\r\n")).await, 200);
    for host in ["", "Host: localhost\r\nHost: localhost\r\n", "Host:\r\n", "Host: user@localhost\r\n"] {
        assert_status(&gate.ask(&with_host(host)).await, 400);
    }
    let absolute = |host: &str| {
        format!("POST http://localhost/mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    };
    assert_status(&gate.ask(&absolute("localhost")).await, 200);
    let answer = gate.ask(&absolute("other.localhost")).await;
    assert_status(&answer, 400);
    assert!(body(&answer).contains("\"code\":-32600"), "{answer}");
}

#[tokio::test]
async fn a_loopback_listener_answers_to_loopback_names_and_its_public_one() {
    let public_url = Some("https://gate.example:8443/mcp".parse().unwrap());
    let gate = Gate::fine(Options { public_url, ..options() });
    for host in ["127.0.0.1", "[::1]:8080", "app.localhost:80", "GATE.example", "gate.example:444"] {
        assert_status(&gate.ask(&with_host(&format!("Host: {host}\r\n"))).await, 200);
    }
    for host in ["rebound.example", "127.0.0.1.rebound.example:80", "192.168.1.1"] {
        assert_status(&gate.ask(&with_host(&format!("Host: {host}\r\n"))).await, 403);
    }
    let open = Gate::fine(Options { listen: "0.0.0.0:0".parse().unwrap(), ..options() });
    let open = Gate { addr: SocketAddr::from((Ipv4Addr::LOCALHOST, open.addr.port())), work: open.work };
    assert_status(&open.ask(&with_host("Host: any.example\r\n")).await, 200);
}

#[tokio::test]
async fn origins_of_strangers_are_refused() {
    let public_url = Some("https://gate.example/".parse().unwrap());
    let allowed_origins = vec!["localhost".into(), "https://app.example".into()];
    let gate = Gate::fine(Options { public_url, allowed_origins, ..options() });
    for origin in
        ["", "Origin: http://localhost:6274\r\n", "Origin: https://app.example\r\n", "Origin: https://gate.example\r\n"]
    {
        assert_status(&gate.ask(&post(BOTH, origin)).await, 200);
    }
    for origin in ["http://evil.example", "null", "http://app.example", "https://app.example.evil.example"] {
        let answer = gate.ask(&post(BOTH, &format!("Origin: {origin}\r\n"))).await;
        assert_status(&answer, 403);
        assert!(!head(&answer).contains("access-control"), "{answer}");
    }
    let any = Gate::fine(Options { allowed_origins: vec!["*".into()], ..options() });
    assert_status(&any.ask(&post(BOTH, "Origin: http://evil.example\r\n")).await, 200);
}

#[tokio::test]
async fn only_chunked_is_a_transfer_coding() {
    let gate = Gate::start(options(), |inbound| handled(Answer::message(StatusCode::OK, inbound.body)));
    let request = |coding: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: {coding}\r\n\r\n\
             3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n"
        )
    };
    let answer = gate.ask(&request("chunked")).await;
    assert_status(&answer, 200);
    assert_eq!(body(&answer), "[1,2]");
    assert_status(&gate.ask(&request("gzip, chunked")).await, 400);
    assert_status(&gate.ask(&request("gzip")).await, 400);
}

#[tokio::test]
async fn preflights_are_answered_without_credentials() {
    let gate = Gate::start(options(), |_| panic!("a preflight never reaches the handler"));
    let answer = gate
        .ask(
            "OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: http://localhost:3000\r\n\
             Access-Control-Request-Method: POST\r\n\
             Access-Control-Request-Headers: content-type, mcp-param-region, x-other, mcp-param-b@d\r\n\r\n",
        )
        .await;
    assert_status(&answer, 204);
    let head = head(&answer);
    assert!(head.contains("access-control-allow-origin: http://localhost:3000\r\n"), "{head}");
    assert!(head.contains("access-control-allow-methods: get, post, delete, options"), "{head}");
    let allowed = "access-control-allow-headers: accept, authorization, content-type, mcp-session-id, \
                   mcp-protocol-version, last-event-id, mcp-method, mcp-name, mcp-param-region\r\n";
    assert!(head.contains(allowed), "{head}");
    let plain = gate.ask("OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert_status(&plain, 204);
    assert!(!self::head(&plain).contains("access-control"), "{plain}");
}

#[tokio::test]
async fn cors_headers_of_the_upstream_are_replaced() {
    let gate = Gate::start(options(), |_| {
        let mut headers = HeaderMap::new();
        headers.insert("access-control-allow-origin", HeaderValue::from_static("*"));
        headers.insert("access-control-allow-credentials", HeaderValue::from_static("true"));
        headers.insert("mcp-session-id", HeaderValue::from_static("s1"));
        let body = Body::Message("{}".into());
        handled(Answer { status: StatusCode::UNAUTHORIZED, headers, body })
    });
    let answer = gate.ask(&post(BOTH, "Origin: http://localhost:3000\r\n")).await;
    assert_status(&answer, 401);
    let with_origin = head(&answer);
    assert!(with_origin.contains("access-control-allow-origin: http://localhost:3000\r\n"), "{answer}");
    assert!(with_origin.contains("access-control-expose-headers: mcp-session-id, "), "{answer}");
    assert!(with_origin.contains("vary: origin") && !with_origin.contains("credentials"), "{answer}");
    let without = head(&gate.ask(&post(BOTH, "")).await);
    assert!(without.contains("mcp-session-id: s1") && !without.contains("access-control"), "{without}");
}

#[tokio::test]
async fn paths_and_methods() {
    let gate = Gate::start(options(), |inbound| {
        let seen = format!("\"{} {} {}\"", inbound.method, inbound.path(), inbound.uri);
        handled(Answer::message(StatusCode::OK, seen))
    });
    let ask =
        async |line: &str| gate.ask(&format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")).await;
    assert_eq!(body(&ask("POST /mcp/?x=1").await), "\"POST /mcp /mcp/?x=1\"");
    assert_eq!(body(&ask("DELETE /mcp").await), "\"DELETE /mcp /mcp\"");
    let known = ask("GET /.well-known/oauth-protected-resource/mcp").await;
    assert_status(&known, 200);
    for path in ["/", "/other", "/mcp/x", "/.well-known/other"] {
        let answer = ask(&format!("GET {path}")).await;
        assert_status(&answer, 404);
        assert!(head(&answer).contains("content-type: application/json"), "{answer}");
        assert!(body(&answer).starts_with("{\"error\":"), "{answer}");
    }
    let answer = ask("PUT /mcp").await;
    assert_status(&answer, 405);
    assert!(head(&answer).contains("allow: get, post, delete, options"), "{answer}");
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused_however_they_come() {
    let gate = Gate::fine(Options { max_body: 1000, ..options() });
    let start = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let fits = format!("{start}Content-Length: 1000\r\n\r\n{}", "x".repeat(1000));
    assert_status(&gate.ask(&fits).await, 200);
    let announced = format!("{start}Content-Length: 200000\r\n\r\n{}", "x".repeat(200_000));
    let chunked = format!("{start}Transfer-Encoding: chunked\r\n\r\n3e9\r\n{}\r\n0\r\n\r\n", "x".repeat(1001));
    // Refused before a byte of it is asked for.
    let expecting = format!("{start}Content-Length: 200000\r\nExpect: 100-continue\r\n\r\n");
    for request in [announced, chunked, expecting] {
        let answer = gate.ask(&request).await;
        assert_status(&answer, 413);
        assert!(body(&answer).contains("\"reason\":\"too_large\""), "{answer}");
    }
    let answer = gate.ask(&format!("{start}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{{}}")).await;
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn a_panic_is_a_500_for_one_request() {
    let gate = Gate::start(options(), |inbound| {
        assert!(inbound.headers.get("x-panic").is_none(), "asked to panic");
        handled(Answer::message(StatusCode::OK, "{}"))
    });
    let mut client = gate.connect().await;
    client.send(&STAYING.replace("Accept", "X-Panic: yes\r\nAccept")).await;
    let answer = client.until("\"2.0\"}").await;
    assert_status(&answer, 500);
    assert!(body(&answer).contains("\"code\":-32603"), "{answer}");
    client.send(STAYING).await;
    assert_status(&client.until("{}").await, 200);
}

#[tokio::test]
async fn the_handler_sees_who_asks() {
    let trusted_proxies = vec![(Ipv4Addr::LOCALHOST.into(), 32)];
    let echo = |inbound: Inbound| {
        let forwarded = inbound.headers["x-forwarded-for"].to_str().unwrap();
        handled(Answer::message(StatusCode::OK, format!("\"{} {forwarded}\"", inbound.peer)))
    };
    let request = post(BOTH, "X-Forwarded-For: 203.0.113.9\r\n");
    let trusting = Gate::start(Options { trusted_proxies, ..options() }, echo);
    assert_eq!(body(&trusting.ask(&request).await), "\"203.0.113.9 203.0.113.9, 127.0.0.1\"");
    let wary = Gate::start(options(), echo);
    assert_eq!(body(&wary.ask(&request).await), "\"127.0.0.1 127.0.0.1\"");
}
