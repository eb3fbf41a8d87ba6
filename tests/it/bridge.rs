//! Stateless clients in front of a server that opens sessions: it never learns what they speak.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::upstream::{Builder, script};
use crate::support::{Client, Gate, Home, Latch, PATIENT, Upstream, eventually, ms};

mod answers;
mod input;
mod leaving;
mod reads;
mod restarts;
mod sessions;
mod their_tasks;

const ALWAYS: &str = "[upstream]\nbridge = \"always\"\n";

/// A server of many kinds of tools, and its latch.
fn tools(latch: &Latch) -> Builder {
    Upstream::builder()
        .tool("fast", script::says("fast end"))
        .tool("slow", script::accepted(latch, "slow end"))
        .tool("who", script::who())
}

/// A gate that bridges everything, with these settings of `[tasks]`.
async fn bridged(upstream: &Upstream, threshold_ms: u64, more: &str) -> Gate {
    // However busy the machine is, what is fast is answered.
    let fast = "[[upstream.rule]]\ntool = [\"fast\", \"who\"]\nmode = \"sync\"";
    Gate::start(upstream, &format!("[tasks]\nthreshold = \"{threshold_ms}ms\"\n{more}\n{ALWAYS}{fast}")).await
}

fn plain(gate: &Gate) -> Client {
    gate.client().stateless(json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}}))
}

fn tasks(gate: &Gate) -> Client {
    gate.client().stateless_with_tasks(json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}}))
}

/// What an answer asks: keys with their questions, in the order of their keys.
fn asked(answer: &Answer) -> Vec<(String, Value)> {
    assert_eq!(answer.result()["resultType"], "input_required", "{}", answer.raw);
    let requests = answer.result()["inputRequests"].as_object().expect("questions").clone();
    requests.into_iter().collect()
}
