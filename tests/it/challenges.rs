//! Servers that want a credential: stateless clients hear it in the server's own words, and find what it points to.

use serde_json::json;

use crate::support::client::Answer;
use crate::support::upstream::guard::{DOCUMENTS, REFUSAL, challenge, document, resource};
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

const PUBLIC: &str = "https://gate.example:8443";

/// The URL that a challenge points to; all around it is the server's.
fn pointed_to(answer: &Answer) -> String {
    let challenge = answer.header("www-authenticate").unwrap_or_else(|| panic!("{}: {}", answer.status, answer.raw));
    let url = challenge.split('"').nth(3).expect("a URL");
    assert_eq!(challenge, format!("Bearer realm=\"meshes\", resource_metadata=\"{url}\""));
    url.to_owned()
}

/// What is at a URL of the public address, as the proxy in front of taskgate fetches it.
async fn fetched(client: Client, url: &str) -> String {
    let path = url.strip_prefix(PUBLIC).unwrap_or_else(|| panic!("{url} is not to be reached"));
    let answer = client.path(path).header("host", "gate.example:8443").send("GET", &[], String::new()).await;
    assert_eq!(answer.status, 200, "{url}");
    answer.text().await
}

/// Both eras, without and with tasks.
fn all_clients(gate: &Gate) -> [Client; 3] {
    let [plain, tasks] = clients(gate);
    [gate.client(), plain, tasks]
}

#[tokio::test]
async fn b86_who_follows_a_challenge_finds_metadata_about_what_it_calls() {
    for bridge in BRIDGES {
        for (n, server) in servers().into_iter().enumerate() {
            let upstream = server.guarded("good").described(0).start().await;
            let settings = format!("{PATIENT}[server]\npublic_url = \"{PUBLIC}\"\n[upstream]\nbridge = \"{bridge}\"\n");
            let gate = Gate::start(&upstream, &settings).await;
            for (of_clients, client) in all_clients(&gate).into_iter().enumerate() {
                let mut answers = each(&client.bearer("bad")).await;
                // Without `_meta` it is no request of its era, whoever sends it.
                answers.retain(|(method, _)| of_clients > 0 || *method != "server/discover");
                answers.push(("initialize", gate.client().hello().await));
                for (method, answer) in answers {
                    let url = pointed_to(&answer);
                    assert_eq!((answer.status, &*answer.raw), (401, REFUSAL), "server {n}, {bridge}, {method}");
                    assert_eq!(url, format!("{PUBLIC}{}", DOCUMENTS[1]), "server {n}, {bridge}, {method}");
                }
            }
            for path in &DOCUMENTS[..2] {
                let document = fetched(tasks(&gate), &format!("{PUBLIC}{path}")).await;
                assert_eq!(document, resource(&format!("{PUBLIC}/mcp"), 0));
            }
            // Not about a resource: the server's own words.
            let other = fetched(tasks(&gate), &format!("{PUBLIC}{}", DOCUMENTS[2])).await;
            assert_eq!(other, resource(&upstream.url(), 0));
        }
    }
}

#[tokio::test]
async fn b86_each_upstreams_metadata_is_at_the_path_that_clients_call() {
    let server = || Upstream::builder().tool("echo", script::echo());
    let one = server().guarded("a").described(0).start().await;
    let two = server().guarded("b").described(0).start().await;
    let settings = format!("[server]\npublic_url = \"{PUBLIC}/\"\n");
    let gate = Gate::paths(&[("/mcp", &one), ("/solver", &two)], &settings).await;
    for (path, upstream, token) in [("/mcp", &one, "a"), ("/solver", &two, "b")] {
        for client in all_clients(&gate) {
            let url = pointed_to(&client.path(path).bearer("bad").request("tools/list", json!({})).await);
            assert_eq!(url, format!("{PUBLIC}/.well-known/oauth-protected-resource{path}"));
            let document = fetched(gate.client(), &format!("{url}?a=b")).await;
            // The server knows no other path than its own.
            assert_eq!(upstream.http("GET").pop().expect("it was asked").path, format!("{}?a=b", DOCUMENTS[1]));
            assert_eq!(document, resource(&format!("{PUBLIC}{path}"), 0));
        }
        let served = gate.client().path(path).bearer(token).hello().await;
        assert_eq!(served.status, 200, "a credential for that resource is the server's");
    }
}

#[tokio::test]
async fn b86_a_document_of_any_size_passes() {
    for (padding, is_edited) in [(900_000, true), (5_000_000, false)] {
        let upstream = Upstream::builder().guarded("good").described(padding).start().await;
        let gate = Gate::start(&upstream, &format!("[server]\npublic_url = \"{PUBLIC}\"\n")).await;
        let document = fetched(gate.client(), &format!("{PUBLIC}{}", DOCUMENTS[1])).await;
        let about = if is_edited { format!("{PUBLIC}/mcp") } else { upstream.url() };
        assert!(document == resource(&about, padding), "{padding}: {} bytes", document.len());
    }
}

#[tokio::test]
async fn b86_without_a_public_address_the_servers_own_words_pass() {
    let one = Upstream::builder().guarded("a").described(0).start().await;
    let two = Upstream::builder().guarded("b").described(0).start().await;
    let gate = Gate::paths(&[("/mcp", &one), ("/solver", &two)], "").await;
    for (path, upstream) in [("/mcp", &one), ("/solver", &two)] {
        for client in all_clients(&gate) {
            let answer = client.path(path).bearer("bad").request("tools/list", json!({})).await;
            assert_eq!(pointed_to(&answer), upstream.url_at(DOCUMENTS[1]));
        }
    }
    let document = gate.client().path(DOCUMENTS[1]).send("GET", &[], String::new()).await.text().await;
    assert_eq!(document, resource(&one.url(), 0));
    let path = "/.well-known/oauth-protected-resource/solver";
    assert_ne!(gate.client().path(path).send("GET", &[], String::new()).await.status, 200);
    assert_eq!(two.http("GET").pop().expect("it was asked").path, path);
}
