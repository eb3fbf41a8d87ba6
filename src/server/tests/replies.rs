//! How answers are framed: JSON or SSE, when a stream begins, what it carries, how it ends.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt, Full};

use super::*;
use crate::call::{Body, Event};

const SSE: &str = "text/event-stream";
const JSON: &str = "application/json";

fn event(data: &'static str) -> Step {
    Step::event(Event { data: Some(data.into()), ..Event::default() })
}

fn done(status: StatusCode, message: &'static str) -> Step {
    Step::done(Answer::message(status, message))
}

fn silence() -> Answer {
    Answer { status: StatusCode::OK, headers: HeaderMap::new(), body: Body::Silence }
}

fn pass(content_type: &'static str, text: &'static str) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static(content_type));
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    Answer { status: StatusCode::OK, headers, body: Body::Pass(body) }
}

/// What a client sees of `steps` that all come at once.
async fn seen(request: &str, steps: Vec<Step>) -> String {
    let (gate, mut called) = Gate::fed(options());
    let mut client = gate.connect().await;
    client.send(request).await;
    let feed = called.recv().await.unwrap();
    for step in steps {
        feed.send(step).await.unwrap();
    }
    drop(feed);
    client.rest().await
}

/// The payload of a chunked body.
fn dechunked(answer: &str) -> String {
    let (mut rest, mut payload) = (body(answer), String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        payload.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    payload
}

#[tokio::test]
async fn the_accept_matrix() {
    let gate = Gate::fine(options());
    for accept in [BOTH, JSON, "*/*", "application/*;q=0.5", "text/event-stream, application/json;q=0.1"] {
        let answer = gate.ask(&post(accept, "")).await;
        assert_status(&answer, 200);
        assert!(head(&answer).contains("content-type: application/json\r\n"), "{accept}: {answer}");
        assert!(head(&answer).contains("content-length: 11"), "{accept}: {answer}");
        assert_eq!(body(&answer), "{\"ok\":true}", "{accept}");
    }
    let none = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(body(&gate.ask(none).await), "{\"ok\":true}");
    for accept in [SSE, "application/json;q=0, text/*"] {
        let answer = gate.ask(&post(accept, "")).await;
        assert_status(&answer, 200);
        assert!(head(&answer).contains("content-type: text/event-stream\r\n"), "{accept}: {answer}");
        assert_eq!(body(&answer), "event: message\ndata: {\"ok\":true}\n\n", "{accept}");
    }
    let answer = gate.ask(&post("text/html", "")).await;
    assert_status(&answer, 406);
    assert!(body(&answer).contains("\"code\":-32600"), "{answer}");
}

#[tokio::test]
async fn errors_stay_json_with_their_status_even_for_readers_of_events() {
    let error = seen(&post(SSE, ""), vec![done(StatusCode::NOT_FOUND, "{\"error\":1}")]).await;
    assert_status(&error, 404);
    assert_eq!(body(&error), "{\"error\":1}");
    let get = "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n";
    let refused = seen(get, vec![done(StatusCode::METHOD_NOT_ALLOWED, "{}")]).await;
    assert_status(&refused, 405);
}

#[tokio::test]
async fn a_wait_of_keepalive_becomes_a_stream() {
    let (gate, mut called) = Gate::fed(Options { keepalive: Duration::from_millis(50), ..options() });
    let mut client = gate.connect().await;
    let started = Instant::now();
    client.send(&post(BOTH, "")).await;
    let steps = called.recv().await.unwrap();
    let head = client.until("3\r\n:\n\n\r\n").await;
    assert!(started.elapsed() >= Duration::from_millis(50));
    assert_status(&head, 200);
    for line in ["content-type: text/event-stream", "cache-control: no-cache", "x-accel-buffering: no"] {
        assert!(head.to_lowercase().contains(&format!("{line}\r\n")), "{line}: {head}");
    }
    for _ in 0..2 {
        client.until("3\r\n:\n\n\r\n").await;
    }
    assert!(started.elapsed() >= Duration::from_millis(150));
    // Whatever its status: the head has left.
    steps.send(done(StatusCode::BAD_GATEWAY, "{\"id\":1,\n\"x\":2}")).await.unwrap();
    let end = client.rest().await;
    assert!(end.ends_with("event: message\ndata: {\"id\":1, \"x\":2}\n\n\r\n0\r\n\r\n"), "{end}");
}

#[tokio::test]
async fn a_wait_is_not_upgraded_where_it_must_not_be() {
    let keepalive = Duration::from_millis(20);
    let slow = |upgrade| {
        move |_| {
            let (steps, outgoing) = mpsc::channel(1);
            let answer = async move {
                tokio::time::sleep(Duration::from_millis(80)).await;
                drop(steps.send(done(StatusCode::CREATED, "{\"slow\":1}")).await);
            };
            drop(Work::new().spawn(answer));
            Handled { upgrade, ..handled(Outgoing::Later(outgoing.into())) }
        }
    };
    let allowed = Gate::start(Options { keepalive, ..options() }, slow(Upgrade::Allowed));
    let never = Gate::start(Options { keepalive, ..options() }, slow(Upgrade::Never));
    for (gate, accept) in [(&allowed, JSON), (&allowed, "*/*"), (&never, BOTH)] {
        let answer = gate.ask(&post(accept, "")).await;
        assert_status(&answer, 201);
        assert_eq!(body(&answer), "{\"slow\":1}");
    }
    assert_status(&allowed.ask(&post(BOTH, "")).await, 200);
}

#[tokio::test]
async fn a_stream_of_the_upstream_is_relayed_with_its_headers() {
    let (gate, mut called) = Gate::fed(Options { keepalive: Duration::from_millis(60), ..options() });
    let mut client = gate.connect().await;
    client.send(&post(BOTH, "")).await;
    let steps = called.recv().await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("mcp-session-id", HeaderValue::from_static("s1"));
    headers.insert("content-length", HeaderValue::from_static("99"));
    headers.insert("content-encoding", HeaderValue::from_static("gzip"));
    headers.insert("content-type", HeaderValue::from_static("text/event-stream; charset=utf-8"));
    steps.send(Step::open(headers)).await.unwrap();
    // The head does not wait for the first event.
    let head = client.until("\r\n\r\n").await.to_lowercase();
    assert!(head.contains("mcp-session-id: s1\r\n") && head.contains("content-type: text/event-stream\r\n"), "{head}");
    assert!(!head.contains("content-length") && !head.contains("content-encoding"), "{head}");
    let first = Event { id: Some("e1".into()), retry: Some(9), data: Some("{}".into()), ..Event::default() };
    steps.send(Step::event(first)).await.unwrap();
    client.until("id: e1\nretry: 9\ndata: {}\n\n").await;
    // Silence on a stream of the upstream's is filled as well, and counted from the last event.
    client.until(":\n\n").await;
    steps.send(event("{\"n\":2}")).await.unwrap();
    steps.send(done(StatusCode::OK, "{\"last\":1}")).await.unwrap();
    let end = client.rest().await;
    assert!(end.contains("data: {\"n\":2}\n\n") && end.ends_with("data: {\"last\":1}\n\n\r\n0\r\n\r\n"), "{end}");
}

#[tokio::test]
async fn a_reader_of_json_gets_the_answer_alone() {
    let mut headers = HeaderMap::new();
    headers.insert("mcp-session-id", HeaderValue::from_static("s1"));
    let steps = vec![Step::open(headers), event("1"), event("2"), done(StatusCode::OK, "{\"last\":1}")];
    let answer = seen(&post(JSON, ""), steps).await;
    assert_status(&answer, 200);
    assert!(head(&answer).contains("mcp-session-id: s1"), "{answer}");
    assert_eq!(body(&answer), "{\"last\":1}");
}

#[tokio::test]
async fn what_answers_a_get_is_streamed_to_whoever_asked() {
    let get = "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nConnection: close\r\n\r\n";
    let answer = seen(get, vec![Step::open(HeaderMap::new()), event("1")]).await;
    assert!(head(&answer).contains("content-type: text/event-stream"), "{answer}");
    assert_eq!(dechunked(&answer), "data: 1\n\n");
}

#[tokio::test]
async fn silence_ends_a_stream_without_a_message() {
    for steps in [vec![Step::done(silence())], vec![]] {
        let answer = seen(&post(BOTH, ""), steps).await;
        assert_status(&answer, 200);
        assert!(head(&answer).contains("content-type: text/event-stream"), "{answer}");
        assert_eq!(body(&answer), "");
    }
    let answer = seen(&post(JSON, ""), vec![Step::done(silence())]).await;
    assert_status(&answer, 202);
    assert_eq!(body(&answer), "");
    let answer = seen(&post(BOTH, ""), vec![event("1"), Step::done(silence())]).await;
    assert_eq!(dechunked(&answer), "data: 1\n\n");
}

#[tokio::test]
async fn a_body_that_passes_is_one_event_on_a_stream_and_untouched_elsewhere() {
    let answer = seen(&post(BOTH, ""), vec![event("1"), Step::done(pass(JSON, "{\n\"big\":1}"))]).await;
    assert_eq!(dechunked(&answer), "data: 1\n\nevent: message\ndata: { \"big\":1}\n\n");
    let answer = seen(&post(SSE, ""), vec![Step::done(pass(JSON, "{}"))]).await;
    assert_eq!(dechunked(&answer), "event: message\ndata: {}\n\n");
    let answer = seen(&post(BOTH, ""), vec![Step::done(pass(JSON, "{\n\"big\":1}"))]).await;
    assert_eq!(body(&answer), "{\n\"big\":1}");
    let answer = seen(&post(BOTH, ""), vec![Step::done(pass(SSE, "data: 1\n\n"))]).await;
    assert!(head(&answer).contains("x-accel-buffering: no"), "{answer}");
    assert_eq!(body(&answer), "data: 1\n\n");
}

#[tokio::test]
async fn an_empty_answer_has_no_body_and_no_type() {
    let gate = Gate::start(options(), |_| handled(Answer::empty(StatusCode::ACCEPTED)));
    let answer = gate.ask(&post(BOTH, "")).await;
    assert_status(&answer, 202);
    assert!(!head(&answer).contains("content-type"), "{answer}");
    assert_eq!(body(&answer), "");
}
