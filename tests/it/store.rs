//! `taskgate store` and what `run` says of its file: an operator with a file at hand and nothing else.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::process::run;
use crate::support::upstream::script;
use crate::support::{Gate, Upstream, ms};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

async fn store(action: &str, file: &Path) -> (i32, Output) {
    let output = run(&["store", action, "--store", file.to_str().expect("UTF-8")]).await;
    (output.status.code().expect("it ended"), output)
}

#[tokio::test]
async fn b03_a_job_is_read_after_a_restart_and_its_file_from_outside() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tasks.db");
    let config = format!("[store]\nkind = \"embedded\"\npath = {:?}\n[tasks]\nowner = \"id\"", file.display());
    let upstream = Upstream::builder().tool("slow", script::after(ms(150), "late")).start().await;
    let gate = Gate::start(&upstream, &config).await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    let told = client.job_end(&job).await.result().clone();

    let (status, used) = store("prune", &file).await;
    assert_eq!(status, 1, "{}", text(&used.stdout));
    assert!(text(&used.stderr).contains("in use by another taskgate (process "), "{}", text(&used.stderr));
    let (status, sound) = store("check", &file).await;
    assert_eq!(status, 0, "{}", text(&sound.stderr));
    assert!(text(&sound.stdout).starts_with("ok\n"), "{}", text(&sound.stdout));
    assert!(text(&sound.stdout).contains("tasks     1: 1 completed"), "{}", text(&sound.stdout));
    gate.closed().await;

    let gate = Gate::start(&upstream, &config).await;
    let client = gate.client().open().await;
    assert_eq!(*client.job_end(&job).await.result(), told, "as it was before the restart");
    gate.closed().await;

    let (status, exported) = store("export", &file).await;
    assert_eq!(status, 0, "{}", text(&exported.stderr));
    let line: Value = serde_json::from_str(text(&exported.stdout).trim()).expect("one line of JSON");
    assert_eq!((&line["tool"], &line["status"]), (&json!("slow"), &json!("completed")));
    let id = line["id"].as_str().expect("text");
    assert!(job.starts_with(id) && id.len() < job.len(), "whoever has a whole id may read the job: {id}");
    assert_eq!(line["result"]["content"][0]["text"], "late");
    let (status, pruned) = store("prune", &file).await;
    assert_eq!(status, 0, "{}", text(&pruned.stderr));
    assert!(text(&pruned.stdout).starts_with("dropped 0 results and 0 records: "), "{}", text(&pruned.stdout));
}

#[tokio::test]
async fn b94_a_file_that_is_no_store_is_refused_by_every_command() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("garbage.db");
    std::fs::write(&file, vec![b'?'; 5_000]).unwrap();
    for action in ["check", "export", "prune"] {
        let (status, refused) = store(action, &file).await;
        assert_eq!(status, 1, "{action}");
        assert!(text(&refused.stderr).contains("damaged"), "{action}: {}", text(&refused.stderr));
        let (status, missing) = store(action, &home.path().join("none.db")).await;
        assert_eq!(status, 1, "{action}");
        assert!(text(&missing.stderr).contains("none.db cannot be opened"), "{action}: {}", text(&missing.stderr));
    }
    assert!(!home.path().join("none.db").exists(), "looking makes no file");
    let path = file.to_str().unwrap();
    let flags = ["--listen", "127.0.0.1:0", "--admin-listen", "", "--upstream", "http://127.0.0.1:1/mcp"];
    let refused = run(&[["run", "--store", path].as_slice(), &flags].concat()).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("taskgate store check --store"), "{}", text(&refused.stderr));
    let (status, memory) = store("check", Path::new("memory")).await;
    assert_eq!((status, text(&memory.stdout)), (1, ""));
}
