//! Connections over time: silence, half requests, drain, HTTP/2, clients that leave.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;

use super::*;

#[tokio::test]
async fn clients_that_never_finish_a_head_are_closed() {
    let header_timeout = Duration::from_millis(50);
    let gate = Gate::fine(Options { header_timeout, ..options() });
    for start in ["", "P", "PRI * HTTP/2", "POST /mcp HTTP/1.1\r\nHost: loc"] {
        let started = Instant::now();
        assert_eq!(gate.ask(start).await, "", "{start:?}");
        assert!(started.elapsed() >= header_timeout && started.elapsed() < Duration::from_secs(2), "{start:?}");
    }
}

#[tokio::test]
async fn a_connection_that_was_used_may_rest_longer_than_a_head_may_take() {
    let gate = Gate::fine(Options { header_timeout: Duration::from_millis(30), ..options() });
    let mut client = gate.connect().await;
    for _ in 0..2 {
        client.send(STAYING).await;
        assert_status(&client.until("{\"ok\":true}").await, 200);
        tokio::time::sleep(Duration::from_millis(80)).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_drops_the_receiver() {
    let (gate, mut called) = Gate::fed(Options { keepalive: Duration::from_millis(30), ..options() });
    for is_upgraded in [false, true] {
        let mut client = gate.connect().await;
        let request = if is_upgraded { post(BOTH, "") } else { post("application/json", "") };
        client.send(&request).await;
        let steps = called.recv().await.unwrap();
        if is_upgraded {
            client.until(":\n\n").await;
        }
        assert!(!steps.is_closed());
        drop(client);
        tokio::time::timeout(PATIENCE, steps.closed()).await.expect("the receiver is dropped");
    }
}

#[tokio::test]
async fn draining_serves_on_and_asks_clients_to_move() {
    let gate = Gate::fine(options());
    let mut early = gate.connect().await;
    early.send(STAYING).await;
    let before = early.until("{\"ok\":true}").await;
    assert!(!head(&before).contains("connection: close"), "{before}");
    gate.work.drain();
    // A connection from before is still answered, and so is a new one.
    tokio::time::sleep(Duration::from_millis(20)).await;
    early.send(STAYING).await;
    let answer = early.rest().await;
    assert_status(&answer, 200);
    assert!(head(&answer).contains("connection: close"), "{answer}");
    assert_status(&gate.ask(STAYING).await, 200);
}

#[tokio::test]
async fn severing_ends_streams_and_idle_connections_and_frees_the_port() {
    let (gate, mut called) = Gate::fed(options());
    let idle = gate.connect().await;
    let mut streaming = gate.connect().await;
    streaming.send(&post(BOTH, "")).await;
    let steps = called.recv().await.unwrap();
    steps.send(Step::open(HeaderMap::new())).await.unwrap();
    streaming.until("\r\n\r\n").await;
    gate.work.drain();
    steps.send(Step::event(crate::call::Event { data: Some("1".into()), ..Default::default() })).await.unwrap();
    streaming.until("data: 1\n\n").await;
    gate.work.cut();
    assert_eq!(idle.rest().await, "");
    streaming.rest().await;
    assert!(gate.work.finished(PATIENCE).await);
    assert!(steps.is_closed());
    assert!(TcpStream::connect(gate.addr).await.is_err());
}

#[tokio::test]
async fn an_answer_under_way_is_finished_when_everything_ends() {
    let (gate, mut called) = Gate::fed(options());
    let mut client = gate.connect().await;
    client.send(STAYING).await;
    let steps = called.recv().await.unwrap();
    gate.work.cut();
    tokio::time::sleep(Duration::from_millis(20)).await;
    steps.send(Step::done(Answer::message(StatusCode::OK, "{\"last\":1}"))).await.unwrap();
    let answer = client.rest().await;
    assert_status(&answer, 200);
    assert_eq!(body(&answer), "{\"last\":1}");
}

#[tokio::test]
async fn http2_without_tls() {
    let gate = Gate::start(options(), |inbound| {
        let host = inbound.headers["x-forwarded-host"].to_str().unwrap();
        handled(Answer::message(StatusCode::OK, format!("\"{host} {}\"", inbound.body.len())))
    });
    let client: HttpClient<_, Full<Bytes>> = HttpClient::builder(TokioExecutor::new()).http2_only(true).build_http();
    let ask = async |host: &str| {
        let request = Request::post(format!("http://{}/mcp", gate.addr)).header("host", host);
        let response = client.request(request.body(Full::from("{}")).unwrap()).await.unwrap();
        (response.status(), response.into_body().collect().await.unwrap().to_bytes())
    };
    let addr = gate.addr.to_string();
    assert_eq!(ask(&addr).await, (StatusCode::OK, Bytes::from(format!("\"{addr} 2\""))));
    assert_eq!(ask("evil.example").await.0, StatusCode::BAD_REQUEST);
    gate.work.drain();
    assert_eq!(ask(&addr).await.0, StatusCode::OK);
    gate.work.cut();
    assert!(gate.work.finished(PATIENCE).await);
}
