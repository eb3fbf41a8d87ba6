//! What a call has said so far, kept for whoever lost its stream: a client resumes with the id of the last event.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{Stream, stream};
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::watch;

use super::lock;

/// The messages of one call.
#[derive(Debug)]
pub(super) struct Tape {
    /// Begins the ids of its events.
    name: String,
    /// Whose it is.
    session: String,
    messages: Mutex<Vec<Value>>,
    /// How many there are, and whether no more will come.
    said: watch::Sender<(usize, bool)>,
}

/// Ends a tape when it goes out of scope.
pub(super) struct Recorder(Arc<Tape>);

impl Tape {
    /// An empty tape of a call in `session`, and who writes on it.
    pub(super) fn new(session: &str) -> (Arc<Self>, Recorder) {
        let tape = Arc::new(Self {
            name: uuid::Uuid::new_v4().simple().to_string(),
            session: session.to_owned(),
            messages: Mutex::default(),
            said: watch::Sender::new((0, false)),
        });
        (tape.clone(), Recorder(tape))
    }

    /// How many messages came up to the event with this id; `None` if it is none of this tape's, or another's to read.
    pub(super) fn place(&self, session: &str, event: &str) -> Option<usize> {
        let (name, place) = event.split_once('-')?;
        if name == self.name && session == self.session { place.parse().ok() } else { None }
    }

    /// Waits for the end; the last message.
    pub(super) async fn last(&self) -> Option<Value> {
        let _ = self.said.subscribe().wait_for(|(_, over)| *over).await;
        lock(&self.messages).last().cloned()
    }

    /// The events after the first `heard` messages, to the end; before them one that only tells an id.
    pub(super) fn events(
        self: Arc<Self>,
        heard: usize,
    ) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + use<> {
        let first = stream::iter([Ok(Frame::data(Bytes::from(format!("id: {}-{heard}\ndata:\n\n", self.name))))]);
        let state = (self.said.subscribe(), self, heard);
        let rest = stream::unfold(state, async |(mut said, tape, at)| {
            let (count, _) = *said.wait_for(|(count, over)| *count > at || *over).await.ok()?;
            let message = if count > at { lock(&tape.messages).get(at).cloned() } else { None }?;
            let event = format!("id: {}-{}\nevent: message\ndata: {message}\n\n", tape.name, at + 1);
            Some((Ok(Frame::data(Bytes::from(event))), (said, tape, at + 1)))
        });
        futures_util::StreamExt::chain(first, rest)
    }
}

impl Recorder {
    /// One more message.
    pub(super) fn say(&self, message: Value) {
        let mut messages = lock(&self.0.messages);
        messages.push(message);
        self.0.said.send_modify(|(count, _)| *count = messages.len());
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.0.said.send_modify(|(_, over)| *over = true);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn is_heard_from_any_place_on() {
        let (tape, recorder) = Tape::new("s");
        for n in 0..3 {
            recorder.say(json!(n));
        }
        let event = format!("{}-1", tape.name);
        assert_eq!((tape.place("s", &event), tape.place("t", &event), tape.place("s", "x-1")), (Some(1), None, None));
        let listening = tape.clone().events(1).collect::<Vec<_>>();
        let ending = async { drop(recorder) };
        let (heard, ()) = tokio::join!(listening, ending);
        let heard: Vec<String> = heard
            .into_iter()
            .map(|frame| String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap())
            .collect();
        assert_eq!(heard.len(), 3, "{heard:?}");
        assert!(heard[0].ends_with("-1\ndata:\n\n") && heard[2].contains("-3\nevent: message\ndata: 2\n"), "{heard:?}");
        assert_eq!(tape.last().await, Some(json!(2)));
    }
}
