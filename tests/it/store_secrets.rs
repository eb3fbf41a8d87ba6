//! What the store's files hold of secrets: nothing that can be read from them.
//!
//! A store is copied, backed up and sent to whoever looks into a problem.

use std::path::Path;

use serde_json::json;

use crate::support::upstream::script;
use crate::support::{Gate, Latch, Upstream, eventually};

const TOKEN: &str = "tok-5d1f0c7ab2e94d33";
const KEY: &str = "key-90b1e44c7d2a8f16";
const COOKIE: &str = "sid=biscuit-3c58a0e7";
const QUERY: &str = "ticket-71ad9f02c6e8";
const ARGUMENT: &str = "argument-b8e2705d1f";

/// Every byte of the file and of those beside it.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn nobody_who_reads_the_files_learns_a_credential_or_a_session() {
    let home = tempfile::tempdir().unwrap();
    let config = format!(
        "[store]\nkind = \"embedded\"\npath = {:?}\n[tasks]\nretry = \"idempotent\"\n\
         [upstream]\ncredential_header = \"x-api-key\"",
        home.path().join("tasks.db")
    );
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .header("set-cookie", COOKIE)
        .tool("solve", script::resumable(&latch))
        .tool_with("again", &json!({"annotations": {"idempotentHint": true}}), script::held(&latch, "again end"))
        .resume(script::resumed(&latch))
        .start()
        .await;
    let gate = Gate::start(&upstream, &config).await;
    let client = gate.client().path(&format!("/mcp?{QUERY}")).bearer(TOKEN).header("x-api-key", KEY);
    let client = client.extension().open().await;
    client.tools().await.result();
    let tasks = [
        client.call("solve", json!({"text": "in the open", "more": ARGUMENT})).await.task(),
        client.call("again", json!({"more": ARGUMENT})).await.task(),
    ];
    let session = client.session.clone().expect("the server gave one");
    let secrets = [TOKEN, KEY, COOKIE, QUERY, ARGUMENT, &*session];
    let call = &upstream.calls("solve")[0];
    assert_eq!(call.header("authorization"), Some(&*format!("Bearer {TOKEN}")));
    assert_eq!((call.header("x-api-key"), call.session()), (Some(KEY), Some(&*session)));

    let read = || {
        let files = files(home.path());
        for (name, bytes) in &files {
            for secret in secrets {
                assert!(!has(bytes, secret), "{secret} in {name}");
            }
        }
        move |word: &str| files.iter().any(|(_, bytes)| has(bytes, word))
    };
    eventually("both are there", || read()("solve") && read()("again")).await;
    latch.open();
    for task in &tasks {
        client.task_end(task).await.result();
    }
    eventually("the result is there, and in the open", || read()("in the open")).await;
    client.delete().await;
    gate.closed().await;
    assert!(read()("in the open"));
}
