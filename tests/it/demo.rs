//! The demo, killed while its job runs and started again on the same store: it tells what became of the job.
//!
//! Whoever tries taskgate tries this sooner or later.

use serde_json::{Value, json};

use crate::support::process::Talker;

/// A demo that was killed in the middle of its first job; returns the beginning of that job's id.
async fn killed(store: &str, more: &[&str]) -> String {
    let arguments = [&["demo", "--once", "--store", store], more].concat();
    let demo = Talker::start(&arguments);
    let handle = demo.says("\"status\":\"running\"").await;
    let (_, rest) = handle.split_once("\"job_id\":\"").unwrap_or_else(|| panic!("{handle}"));
    let job = rest.split('-').next().expect("a UUID").to_owned();
    demo.says("progress \"").await;
    demo.kill();
    job
}

#[tokio::test]
async fn the_fate_of_a_job_whose_server_died_too_is_told_truthfully() {
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("f.db").display().to_string();
    let job = killed(&store, &[]).await;
    let again = Talker::start(&["demo", "--once", "--store", &store]);
    let told = again.says("Left running").await;
    assert!(told.contains(&store) && told.ends_with(": 1 task"), "{told}");
    let fate = again.says("failed: outcome unknown").await;
    assert!(fate.contains(&job) && fate.contains("simulate"), "{fate}");
    again.says("1. A client that knows nothing of tasks lists the tools").await;
    let lines = again.said();
    let at = |words: &str| lines.iter().position(|line| line.contains(words)).unwrap();
    assert!(at("outcome unknown") < at("1. A client"), "{lines:?}");
}

#[tokio::test]
async fn a_job_whose_server_lives_completes() {
    let solver = Talker::start(&["demo", "--solver", "127.0.0.1:0"]);
    let url = solver.says("solver at ").await;
    let url = url.split_whitespace().nth(2).unwrap().trim_end_matches(';').to_owned();
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("f.db").display().to_string();
    let job = killed(&store, &["--upstream", &url]).await;
    let again = Talker::start(&["demo", "--once", "--store", &store, "--upstream", &url]);
    let fate = again.says("  completed: ").await;
    assert!(fate.contains(&job) && fate.ends_with("run 3: 12 steps simulated, energy drift 0.02 %"), "{fate}");
    again.says("1. A client").await;
    again.kill();
    let seen = reqwest::get(format!("{url}/seen")).await.unwrap().text().await.unwrap();
    let seen: Vec<Value> = serde_json::from_str(&seen).unwrap();
    let jobs = seen.iter().take(3).filter(|call| call["tool"] == "simulate").count();
    assert_eq!((jobs, &seen[2]["end"]), (2, &json!("done")), "progress and the job, each once: {seen:?}");

    // With nothing left, nothing is told.
    let third = Talker::start(&["demo", "--once", "--store", "memory", "--upstream", &url]);
    third.says("1. A client").await;
    assert!(!third.said().iter().any(|line| line.contains("Left running")));
}

#[tokio::test]
async fn what_is_no_demo_solver_is_refused() {
    let refused = crate::support::process::run(&["demo", "--once", "--upstream", "http://127.0.0.1:1/mcp"]).await;
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("is no demo solver, or does not answer"), "{text}");
}
