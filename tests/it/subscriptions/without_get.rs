//! Stateless clients that listen to a server whose sessions have no stream of their own: it says 405 to GET.

use super::*;
use crate::support::upstream::script::script;

#[tokio::test]
async fn news_come_on_the_streams_of_calls_and_the_server_is_not_asked_for_another_again_and_again() {
    let change = script(|mut call| async move {
        let (method, uri) = (call.arg("method").as_str().unwrap().to_owned(), call.arg("uri").clone());
        call.notify(&method, &json!({"uri": uri}));
        call.say("changed");
    });
    let upstream = Upstream::builder()
        .capabilities(json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}}))
        .on("resources/subscribe", script(|mut call| async move { call.result(&json!({})) }))
        .on("resources/unsubscribe", script(|mut call| async move { call.result(&json!({})) }))
        .tool("change", change)
        .start()
        .await;
    let gate = Gate::start(&upstream, ALWAYS).await;
    let owner = gate.client().bearer("a").stateless(json!({}));
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["x://1"]});
    let (mut stream, honoured) = Stream::open(&owner, "1", filter.clone()).await;
    assert_eq!(honoured, filter, "it can be told of on a call's stream");
    let second = gate.client().bearer("b").stateless(json!({}));
    let (_second, _) = Stream::open(&second, "2", json!({"toolsListChanged": true})).await;
    for _ in 0..3 {
        owner.call("change", json!({"method": "notifications/tools/list_changed"})).await.result();
        assert_eq!(stream.next().await["method"], "notifications/tools/list_changed");
        owner.call("change", json!({"method": "notifications/resources/updated", "uri": "x://1"})).await.result();
        assert_eq!(stream.next().await["params"]["uri"], "x://1");
    }
    tokio::time::sleep(ms(300)).await;
    assert_eq!(upstream.http("GET").len(), 1, "it has said that there are no such streams");
    assert_eq!(upstream.of("initialize").len(), 2, "and no session is lost for that");
    assert!(upstream.of("ping").is_empty(), "nor thought to be");
    drop(stream);
    eventually("it is left", || upstream.of("resources/unsubscribe").len() == 1).await;
}
