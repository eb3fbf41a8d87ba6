//! What a server lists and says of itself, with what taskgate adds.

use serde_json::{Value, json};

use super::{plain, tasks};
use crate::support::client::{Answer, EXTENSION};
use crate::support::upstream::{Script, script};
use crate::support::{Gate, Upstream};

/// Two pages, each with its own cache hints; the last ends with an empty cursor.
fn pages() -> Script {
    script::script(|mut call| async move {
        let tool = |name: &str| json!({"name": name, "description": "D.", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}});
        match call.request.json["params"]["cursor"].as_str() {
            None => {
                call.result(
                    &json!({"tools": [tool("a")], "nextCursor": "2", "ttlMs": 300_000, "cacheScope": "public"}),
                );
            }
            Some(_) => {
                call.result(&json!({"tools": [tool("quick")], "nextCursor": "", "ttlMs": 5, "cacheScope": "public"}));
            }
        }
    })
}

fn hints(page: &Answer) -> (&Value, &Value) {
    (&page.result()["ttlMs"], &page.result()["cacheScope"])
}

#[tokio::test]
async fn every_page_of_a_server_with_a_slow_tool_is_for_one_client() {
    let upstream = Upstream::builder().native().on("tools/list", pages()).start().await;
    let rule = "[upstream]\n[[upstream.rule]]\ntool = \"quick\"\nmode = \"sync\"";
    let gate = Gate::start(&upstream, rule).await;
    for client in [plain(&gate), tasks(&gate)] {
        let first = client.tools().await;
        assert_eq!(hints(&first), (&json!(60_000), &json!("private")), "{}", first.raw);
        let last = client.request("tools/list", json!({"cursor": "2"})).await;
        assert_eq!(hints(&last), (&json!(5), &json!("private")), "{}", last.raw);
        assert_eq!(last.result()["nextCursor"], "", "an empty cursor is one in this era");
    }
    let first = plain(&gate).tools().await;
    let names: Vec<_> = first.result()["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["a", "get_job_result", "cancel_job"]);
    let tool = &first.result()["tools"][0];
    assert!(tool["description"].as_str().unwrap().contains("get_job_result") && tool.get("outputSchema").is_none());
    let last = plain(&gate).request("tools/list", json!({"cursor": "2"})).await;
    assert_eq!(last.result()["tools"][0]["description"], "D.");
    // A task has no handle beside it: whoever declares tasks sees the tools as they are.
    let declared = tasks(&gate).tools().await;
    let tool = &declared.result()["tools"][0];
    assert_eq!((&tool["description"], tool.get("outputSchema").is_some()), (&json!("D."), true), "{}", declared.raw);
    assert!(!declared.raw.contains("get_job_result") && !declared.raw.contains("taskSupport"), "{}", declared.raw);
}

#[tokio::test]
async fn a_list_without_a_slow_tool_passes_as_it_is() {
    let upstream = Upstream::builder().native().on("tools/list", pages()).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nmode = \"sync\"").await;
    for client in [plain(&gate), tasks(&gate)] {
        let first = client.tools().await;
        assert_eq!(hints(&first), (&json!(300_000), &json!("public")));
        assert!(!first.raw.contains("get_job_result"));
    }
}

#[tokio::test]
async fn discovery_announces_an_exactly_empty_extension() {
    let upstream = Upstream::builder().native().instructions("Mind the gap.").start().await;
    let gate = Gate::start(&upstream, "").await;
    for client in [plain(&gate), tasks(&gate)] {
        for _ in 0..2 {
            let answer = client.request("server/discover", json!({})).await;
            let capabilities = &answer.result()["capabilities"];
            assert_eq!(capabilities, &json!({"tools": {}, "extensions": {EXTENSION: {}}}), "{}", answer.raw);
            assert_eq!(answer.result()["instructions"], "Mind the gap.");
            assert!(!answer.raw.contains("\"tasks\""));
        }
    }
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"principal\"").await;
    let answer = plain(&gate).request("server/discover", json!({})).await;
    assert!(answer.result()["capabilities"].get("extensions").is_none(), "nobody could own a task");
}
