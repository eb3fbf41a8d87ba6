//! Servers that want a credential: stateless clients hear it in the server's own words, and find what it points to.

use serde_json::json;

use crate::support::client::Answer;
use crate::support::upstream::guard::{DOCUMENTS, REFUSAL, challenge, document};
use crate::support::upstream::{Builder, Get, script};
use crate::support::{Client, Gate, PATIENT, Upstream};

const ALWAYS: &str = "[upstream]\nbridge = \"always\"\n";
const BRIDGES: [&str; 3] = ["always", "auto", "off"];

/// Servers that speak the handshake, the stateless era, both.
fn servers() -> [Builder; 3] {
    let server = || Upstream::builder().get(Get::Stream).tool("echo", script::echo());
    [server(), server().native(), server().both()]
}

fn tasks(gate: &Gate) -> Client {
    gate.client().stateless_with_tasks(json!({}))
}

/// One without tasks, and one with.
fn clients(gate: &Gate) -> [Client; 2] {
    [gate.client().stateless(json!({})), tasks(gate)]
}

/// A request in every way in which taskgate treats them.
async fn each(client: &Client) -> Vec<(&'static str, Answer)> {
    let mut answers = Vec::new();
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "echo", "arguments": {"text": "hi"}})),
        ("prompts/list", json!({})),
    ] {
        answers.push((method, client.request(method, params).await));
    }
    answers
}

/// The server's own 401, as it sent it.
fn is_challenged(answer: &Answer, upstream: &Upstream, what: &str) {
    assert_eq!((answer.status, &*answer.raw), (401, REFUSAL), "{what}: {}", answer.raw);
    assert_eq!(answer.header("www-authenticate"), Some(&*challenge(&upstream.url_at(""))), "{what}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
}

#[tokio::test]
async fn b86_who_has_no_credential_is_challenged_by_the_server_itself() {
    for bridge in BRIDGES {
        for (n, server) in servers().into_iter().enumerate() {
            let what = format!("server {n}, bridge {bridge}");
            let upstream = server.guarded("good").start().await;
            let gate = Gate::start(&upstream, &format!("{PATIENT}[upstream]\nbridge = \"{bridge}\"\n")).await;
            for client in clients(&gate) {
                for (method, answer) in each(&client.bearer("bad")).await {
                    is_challenged(&answer, &upstream, &format!("{what}, {method}"));
                }
            }
            gate.gauge("running_tasks", 0).await;
            // It is remembered of nobody: who has the credential is served, and who has none is not.
            let answer = tasks(&gate).bearer("good").call("echo", json!({"text": "hi"})).await;
            if n > 0 || bridge != "off" {
                assert_eq!(answer.text(), "hi", "{what}");
            }
            for (method, answer) in each(&tasks(&gate)).await {
                is_challenged(&answer, &upstream, &format!("{what}, {method} afterwards"));
            }
        }
    }
}

#[tokio::test]
async fn b86_a_credential_that_expires_meanwhile_is_challenged_too() {
    for (n, server) in servers().into_iter().enumerate() {
        let expired = script::script(|mut call| async move {
            if call.before == 0 {
                return call.say("hi");
            }
            call.raw(401, &[("www-authenticate", "Bearer error=\"invalid_token\"")], "expired");
        });
        let upstream = server.tool("expires", expired).start().await;
        // Also where a task would be made at once: an error that comes before is the call's.
        for mode in ["auto", "async"] {
            let rule = format!("{ALWAYS}[[upstream.rule]]\ntool = \"*\"\nmode = \"{mode}\"\n");
            let gate = Gate::start(&upstream, &format!("{PATIENT}{rule}")).await;
            for client in clients(&gate) {
                let client = client.bearer("good");
                let mut answer = client.call("expires", json!({})).await;
                if upstream.calls("expires").len() == 1 {
                    assert_eq!(answer.text(), "hi", "server {n}, {mode}");
                    answer = client.call("expires", json!({})).await;
                }
                assert_eq!((answer.status, &*answer.raw), (401, "expired"), "server {n}, {mode}");
                assert_eq!(answer.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
            }
            gate.gauge("running_tasks", 0).await;
        }
    }
}

#[tokio::test]
async fn b86_the_documents_that_it_points_to_are_there() {
    for server in servers() {
        let upstream = server.guarded("good").start().await;
        let gate = Gate::start(&upstream, ALWAYS).await;
        for path in DOCUMENTS {
            for client in clients(&gate) {
                let answer = Answer::read(client.path(path).send("GET", &[], String::new()).await).await;
                assert_eq!((answer.status, answer.raw), (200, document(path)));
            }
            let seen = upstream.http("GET").pop().expect("it was asked");
            assert_eq!((&*seen.path, seen.session()), (path, None));
        }
    }
    let [one, two] = [Upstream::builder().guarded("a").start().await, Upstream::builder().guarded("b").start().await];
    let gate = Gate::paths(&[("/mcp", &one), ("/other", &two)], "").await;
    let client = gate.client().stateless(json!({})).path(DOCUMENTS[1]);
    assert_eq!(client.send("GET", &[], String::new()).await.text().await, document(DOCUMENTS[1]));
    assert_eq!((one.http("GET").len(), two.http("GET").len()), (1, 0), "its path says whose it is");
    let nobodys = gate.client().stateless(json!({})).path(DOCUMENTS[0]);
    assert_eq!(nobodys.send("GET", &[], String::new()).await.status, 404);
}

#[tokio::test]
async fn b86_where_there_is_no_stream_nobody_is_asked_for_a_credential() {
    for server in servers() {
        let upstream = server.guarded("good").start().await;
        let gate = Gate::start(&upstream, ALWAYS).await;
        for method in ["GET", "DELETE"] {
            let client = gate.client().stateless(json!({}));
            assert_eq!(client.send(method, &[], String::new()).await.status, 405, "{method}");
        }
        assert!(upstream.all().is_empty(), "it is not asked");
    }
}
