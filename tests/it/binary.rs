//! The program as it is shipped: what it prints, how it ends, what signals do.
//!
//! A supervisor and an operator see only this: flags, lines on stderr, exit statuses.

use std::net::TcpListener;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::dialect::STRANGER;
use crate::support::process::{Process, run};
use crate::support::upstream::script;
use crate::support::{Latch, Upstream, eventually, ms, soon};

const UPSTREAM: &str = "http://127.0.0.1:1/mcp";

fn stdout(output: &std::process::Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

#[tokio::test]
async fn b06_whole_ids_are_never_logged() {
    let (upstream, latch) = Upstream::holding("late").await;
    let mut gate = Process::start(&upstream, "[tasks]\nthreshold = \"60ms\"").await;
    let (plain, ext) = (gate.client().open().await, gate.client().extension().open().await);
    let job = plain.call("slow", json!({})).await.job();
    let cancelled = plain.call("slow", json!({})).await.job();
    let task = ext.call("slow", json!({})).await.task();
    plain.cancel_job(&cancelled).await;
    ext.task(STRANGER).await;
    gate.client().extension().open().await.task(&task).await;
    latch.open();
    plain.job_end(&job).await;
    ext.task_end(&task).await;
    ext.delete().await;
    gate.signal("TERM");
    assert_eq!(gate.ended().await, 0);

    let log = gate.log();
    for line in &log {
        assert!(serde_json::from_str::<Value>(line).is_ok_and(|line| line.is_object()), "not JSON: {line}");
    }
    let log = log.join("\n");
    for id in [job.as_str(), &cancelled, &task, STRANGER] {
        assert!(!log.contains(id), "{id} in {log}");
    }
    for id in [job, cancelled, task] {
        assert!(log.contains(&id[..8]), "not even the beginning of {id} in {log}");
    }
}

#[tokio::test]
async fn b20_the_default_is_far_below_what_clients_wait_and_a_long_one_warns() {
    let usual = run(&["check", "--upstream", UPSTREAM]).await;
    assert_eq!(usual.status.code(), Some(0), "{}", stderr(&usual));
    assert!(stdout(&usual).contains("deferred after 4s"), "{}", stdout(&usual));
    assert!(!stdout(&usual).contains("threshold"), "{}", stdout(&usual));
    for (threshold, warns) in [("49s", false), ("50s", true), ("2m", true)] {
        let checked = run(&["check", "--upstream", UPSTREAM, "--threshold", threshold]).await;
        let text = stdout(&checked);
        let warned = text.lines().any(|line| line.starts_with("warning: ") && line.contains("threshold"));
        assert_eq!((checked.status.code(), warned), (Some(0), warns), "{threshold}: {text}");
    }
}

#[tokio::test]
async fn a_bad_file_is_refused_with_everything_that_is_wrong_in_it() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("bad.toml");
    let text =
        "[tasks]\nthreshhold = \"4s\"\nttl = \"long\"\n[server]\nmax_body = -1\n[[upstream]]\nurl = \"ftp://x\"\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    for arguments in [["run", "--config", file].as_slice(), &["check", file]] {
        let refused = run(arguments).await;
        assert_eq!(refused.status.code(), Some(78), "{arguments:?}");
        let told = stderr(&refused);
        for expected in
            ["toml:2: ", "threshhold", "`threshold`", "toml:3: ", "tasks.ttl", "toml:5: ", "max_body", "toml:7: "]
        {
            assert!(told.contains(expected), "no {expected:?} in {told}");
        }
        assert!(!told.contains("panicked"), "{told}");
    }
    let missing = run(&["run", "--config", "/does/not/exist.toml"]).await;
    assert_eq!(missing.status.code(), Some(78), "{}", stderr(&missing));
}

#[tokio::test]
async fn a_taken_port_is_an_error_that_says_so() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flags in [["--listen", &address, "--admin-listen", ""], ["--listen", "127.0.0.1:0", "--admin-listen", &address]]
    {
        let refused = run(&[&["run", "--store", "memory", "--upstream", UPSTREAM], flags.as_slice()].concat()).await;
        assert_eq!(refused.status.code(), Some(1), "{flags:?}");
        assert!(stderr(&refused).contains(&address) && stderr(&refused).contains("taken"), "{}", stderr(&refused));
    }
}

const DRAIN: &str = "[server]\ndrain_timeout = \"20s\"\n[tasks]\nthreshold = \"30s\"\n\
                     [[upstream.rule]]\ntool = \"deferred\"\nmode = \"async\"\n";

/// A tool that is held and takes a while, and one that is deferred and waits for the latch.
async fn busy() -> (Upstream, Latch) {
    let latch = Latch::new();
    let deferred = script::held(&latch, "late");
    let builder = Upstream::builder().tool("held", script::after(ms(1200), "in time")).tool("deferred", deferred);
    (builder.tool("fast", script::says("x")).start().await, latch)
}

/// Waits until readiness is red.
async fn draining(gate: &Process) {
    let red = async {
        while gate.admin("/readyz").await.0 != 503 {
            sleep(ms(5)).await;
        }
    };
    soon("red readiness", red).await;
}

#[tokio::test]
async fn b95_a_signal_lets_running_work_end_and_takes_no_more() {
    let (upstream, latch) = busy().await;
    let mut gate = Process::start(&upstream, DRAIN).await;
    let client = gate.client().open().await;
    let job = client.call("deferred", json!({})).await.job();
    assert_eq!(gate.admin("/readyz").await.0, 200);
    let meddling = async {
        eventually("it is held", || upstream.calls("held").len() == 1).await;
        gate.signal("TERM");
        draining(&gate).await;
        assert_eq!(gate.admin("/healthz").await.0, 200);
        let refused = client.call("fast", json!({})).await;
        assert_eq!((refused.status, refused.code(), refused.reason()), (200, -32603, "shutting_down"));
        let refused = gate.client().hello().await;
        assert_eq!((refused.status, refused.reason()), (503, "shutting_down"));
        assert_eq!(client.job(&job, 0.0).await.state(), "running");
    };
    let (held, ()) = tokio::join!(client.call("held", json!({})), meddling);
    assert_eq!(held.text(), "in time");
    assert!(upstream.calls("fast").is_empty());
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "late");
    let read = Instant::now();
    assert_eq!(gate.ended().await, 0);
    assert!(read.elapsed() < ms(4000), "it leaves when the results are read: {:?}", read.elapsed());
    assert!(upstream.cancels().is_empty());
}

#[tokio::test]
async fn b95_a_second_signal_ends_it_at_once() {
    for (first, second) in [("TERM", "TERM"), ("INT", "INT"), ("INT", "TERM")] {
        let (upstream, _latch) = busy().await;
        let mut gate = Process::start(&upstream, DRAIN).await;
        gate.client().open().await.call("deferred", json!({})).await.job();
        gate.signal(first);
        draining(&gate).await;
        gate.signal(second);
        let signalled = Instant::now();
        assert_eq!(gate.ended().await, 1, "{first} {second}");
        assert!(signalled.elapsed() < ms(1500), "{first} {second}: {:?}", signalled.elapsed());
    }
}

#[tokio::test]
async fn b95_an_idle_process_leaves_at_once_and_work_is_cut_when_time_is_over() {
    let (upstream, _latch) = busy().await;
    let mut idle = Process::start(&upstream, DRAIN).await;
    let client = idle.client().open().await;
    assert_eq!(client.call("fast", json!({})).await.text(), "x");
    idle.signal("TERM");
    let signalled = Instant::now();
    assert_eq!(idle.ended().await, 0);
    assert!(signalled.elapsed() < ms(2000), "{:?}", signalled.elapsed());

    let mut gate = Process::start(&upstream, &DRAIN.replace("20s", "300ms")).await;
    let client = gate.client().open().await;
    let job = client.call("deferred", json!({})).await.job();
    let meddling = async {
        sleep(ms(50)).await;
        gate.signal("TERM");
    };
    let (read, ()) = tokio::join!(client.job(&job, 8.0), meddling);
    assert_eq!(read.state(), "error", "{}", read.raw);
    assert!(read.text().contains("outcome unknown"), "{}", read.raw);
    assert_eq!(gate.ended().await, 0);
}

#[tokio::test]
async fn a_hangup_is_told_and_ends_nothing() {
    let (upstream, _latch) = busy().await;
    let mut gate = Process::start(&upstream, DRAIN).await;
    let client = gate.client().open().await;
    gate.signal("HUP");
    eventually("it is told", || gate.log().iter().any(|line| line.contains("SIGHUP"))).await;
    assert_eq!(client.call("fast", json!({})).await.text(), "x");
    gate.signal("TERM");
    assert_eq!(gate.ended().await, 0);
}
