//! A session id alone, where its owner brought a credential too: it opens nothing that the upstream would not.

use serde_json::json;

use crate::support::dialect::is_unknown;
use crate::support::upstream::{Script, script};
use crate::support::{Dialect, Gate, Latch, Upstream};

/// Answers `ping` for whoever brings a credential.
fn wants_one() -> Script {
    script::script(|mut call| async move {
        match call.request.header("authorization") {
            Some(_) => call.result(&json!({})),
            None => call.raw(401, &[("www-authenticate", "Bearer")], ""),
        }
    })
}

#[tokio::test]
async fn b07_a_session_id_without_its_credential_reads_nothing() {
    for dialect in Dialect::ALL {
        let latch = Latch::new();
        let builder = Upstream::builder().on("ping", wants_one()).tool("slow", script::accepted(&latch, "worth it"));
        let upstream = builder.start().await;
        let gate = Gate::start(&upstream, "").await;
        let maker = dialect.client(&gate, json!({})).bearer("U").open().await;
        let id = dialect.start(&maker, "slow", json!({})).await;
        let bare = dialect.client(&gate, json!({})).in_session(maker.session.as_deref());
        is_unknown(&bare, &id).await;
        assert!(upstream.cancels().is_empty(), "{dialect:?}");
        let asked = upstream.of("ping");
        assert!(!asked.is_empty() && asked.iter().all(|ping| ping.header("authorization").is_none()), "{dialect:?}");
        latch.open();
        assert_eq!(dialect.text(&maker, &id).await, "worth it", "{dialect:?}");
        is_unknown(&bare, &id).await;
    }
}

#[tokio::test]
async fn b07_no_credential_counts_as_another_that_the_upstream_may_accept() {
    for dialect in Dialect::ALL {
        let latch = Latch::new();
        let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "worth it")).start().await;
        let gate = Gate::start(&upstream, "").await;
        let maker = dialect.client(&gate, json!({})).bearer("U").open().await;
        let id = dialect.start(&maker, "slow", json!({})).await;
        let bare = dialect.client(&gate, json!({})).in_session(maker.session.as_deref());
        latch.open();
        assert_eq!(dialect.text(&bare, &id).await, "worth it", "{dialect:?}: it takes everybody on that session");
        assert_eq!(upstream.of("ping").len(), 1, "{dialect:?}: asked once");
    }
}
