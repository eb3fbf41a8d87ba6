//! How a stream ends when the process does: with the outcomes that are written down meanwhile.

use super::*;
use crate::support::Home;
use crate::support::gate::Fault;

#[tokio::test]
async fn outcomes_that_a_slow_store_writes_down_at_the_end_are_still_told() {
    let upstream = slow(&Latch::new()).start().await;
    let home = Home::new();
    let gate = home.start(&upstream, ALWAYS).await;
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let clients = [
        gate.client().capabilities(capabilities.clone()).open().await,
        gate.client().bearer("a").stateless(capabilities),
    ];
    let mut open = Vec::new();
    for client in &clients {
        let task = client.call("forever", json!({})).await.task();
        let (mut stream, _) = Stream::open(client, "1", json!({"taskIds": [task]})).await;
        assert_eq!(stream.status().await, (task, "working".into()));
        open.push(stream);
    }
    gate.fault(Fault::Slow(ms(60)));
    let ends = async {
        for mut stream in open {
            let told = stream.task().await;
            assert_eq!(told["error"]["data"]["reason"], "outcome_unknown", "{told}");
            stream.end().await;
        }
    };
    tokio::join!(gate.leave(), ends);
}
