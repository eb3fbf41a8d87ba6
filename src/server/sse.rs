//! Server-sent events, outgoing: framing, keepalive comments, and the end of a stream.
//!
//! Lines end in LF and every event has one data line: some clients split on nothing else. A line break within data
//! becomes a space, which in JSON can only have been white space.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Body as _;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::reply::is_type;
use crate::call::{Answer, Body, BodyError, Event, PassBody, Step, Steps};

/// What is sent to say that somebody is still there; it means nothing to a client.
pub(super) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

const MESSAGE_START: &[u8] = b"event: message\ndata: ";
const END: Bytes = Bytes::from_static(b"\n\n");
/// Room for field names, ids and line ends.
const OVERHEAD: usize = 64;

/// Frames a relayed event; `None` when nothing of it is left.
pub(super) fn event(event: &Event) -> Option<Bytes> {
    let mut out = BytesMut::with_capacity(event.data.as_ref().map_or(0, Bytes::len) + OVERHEAD);
    if let Some(id) = &event.id {
        field(&mut out, b"id: ", id.as_bytes());
    }
    if let Some(name) = &event.event {
        field(&mut out, b"event: ", name.as_bytes());
    }
    if let Some(retry) = event.retry {
        field(&mut out, b"retry: ", retry.to_string().as_bytes());
    }
    if let Some(data) = &event.data {
        field(&mut out, b"data: ", data);
    }
    if out.is_empty() {
        return None;
    }
    out.put_u8(b'\n');
    Some(out.freeze())
}

/// The beginning of a stream on which there is nothing to say yet: a comment, and the event that only tells an id.
pub(super) fn sign_of_life(priming: Option<Event>) -> Bytes {
    match priming.and_then(|priming| event(&priming)) {
        Some(priming) => Bytes::from([&COMMENT[..], &priming[..]].concat()),
        None => COMMENT,
    }
}

/// Frames one JSON-RPC message.
pub(super) fn message(message: &[u8]) -> Bytes {
    identified(message, None)
}

/// The same with its id, if it has one.
fn identified(message: &[u8], id: Option<&str>) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 2 * OVERHEAD);
    if let Some(id) = id {
        field(&mut out, b"id: ", id.as_bytes());
    }
    field(&mut out, MESSAGE_START, message);
    out.put_u8(b'\n');
    out.freeze()
}

fn field(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.put_slice(name);
    let start = out.len();
    out.put_slice(value);
    flatten(&mut out[start..]);
    out.put_u8(b'\n');
}

fn flatten(bytes: &mut [u8]) {
    for byte in bytes {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

/// The body of an event stream: steps as they come, comments in between.
#[derive(Debug)]
pub(super) struct Events {
    first: Option<Bytes>,
    source: Source,
    silence: Interval,
}

#[derive(Debug)]
enum Source {
    Steps(Steps),
    /// The answer's body, on its way as one event.
    Pass(PassBody),
    Ended,
}

impl Events {
    /// A stream that begins with `first` and goes on with `steps`.
    pub(super) fn new(steps: Steps, first: Option<Bytes>, keepalive: Duration) -> Self {
        Self { first, source: Source::Steps(steps), silence: silence(keepalive) }
    }

    /// A stream that is one event: `body`, which has to be JSON.
    pub(super) fn passing(body: PassBody, keepalive: Duration) -> Self {
        let first = Some(Bytes::from_static(MESSAGE_START));
        Self { first, source: Source::Pass(body), silence: silence(keepalive) }
    }

    /// The next bytes to send; `None` at the end.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let next = match &mut self.source {
            Source::Ended => return Poll::Ready(None),
            Source::Pass(body) => {
                let next = ready!(poll_data(body, cx));
                if !matches!(next, Some(Ok(_))) {
                    self.source = Source::Ended;
                }
                // The body's end is the event's end.
                return Poll::Ready(Some(next.unwrap_or(Ok(END))));
            }
            Source::Steps(steps) => loop {
                match steps.poll_recv(cx) {
                    Poll::Pending => break None,
                    // Too late: the head has left.
                    Poll::Ready(Some(Step::Open(_) | Step::Hold)) => {}
                    Poll::Ready(Some(Step::Event(relayed))) => {
                        if let Some(bytes) = event(&relayed) {
                            break Some(Some(bytes));
                        }
                    }
                    Poll::Ready(Some(Step::Done(answer, id))) => {
                        let last;
                        (last, self.source) = finish(*answer, id.as_deref());
                        break Some(last);
                    }
                    Poll::Ready(None) => {
                        self.source = Source::Ended;
                        break Some(None);
                    }
                }
            },
        };
        if let Some(next) = next {
            self.silence.reset();
            return Poll::Ready(next.map(Ok));
        }
        ready!(self.silence.poll_tick(cx));
        Poll::Ready(Some(Ok(COMMENT)))
    }
}

fn silence(keepalive: Duration) -> Interval {
    let mut silence = interval_at(Instant::now() + keepalive, keepalive);
    silence.set_missed_tick_behavior(MissedTickBehavior::Delay);
    silence
}

/// The last thing to send, and what is left after it.
fn finish(answer: Answer, id: Option<&str>) -> (Option<Bytes>, Source) {
    match answer.body {
        Body::Empty | Body::Silence => (None, Source::Ended),
        Body::Message(bytes) | Body::Foreign(_, bytes) => (Some(identified(&bytes, id)), Source::Ended),
        Body::Pass(body) if answer.status.is_success() && is_type(&answer.headers, "application/json") => {
            let mut start = BytesMut::with_capacity(2 * OVERHEAD);
            if let Some(id) = id {
                field(&mut start, b"id: ", id.as_bytes());
            }
            start.put_slice(MESSAGE_START);
            (Some(start.freeze()), Source::Pass(body))
        }
        // What is no message has no place on a stream.
        Body::Pass(_) => (None, Source::Ended),
    }
}

/// Data of a body that becomes one line; trailers have no place in it.
fn poll_data(body: &mut PassBody, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
    loop {
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(one_line(data))));
                }
            }
        }
    }
}

fn one_line(data: Bytes) -> Bytes {
    if !data.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return data;
    }
    let mut data = data.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    flatten(&mut data);
    data.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_passed_on_and_data_stays_on_one_line() {
        let full = Event {
            id: Some("7".into()),
            event: Some("message".into()),
            data: Some(Bytes::from_static(b"{\"a\":\r\n1}")),
            retry: Some(1500),
        };
        assert_eq!(event(&full).unwrap(), &b"id: 7\nevent: message\nretry: 1500\ndata: {\"a\":  1}\n\n"[..]);
        let priming = Event { id: Some("1".into()), data: Some(Bytes::new()), ..Event::default() };
        assert_eq!(event(&priming).unwrap(), &b"id: 1\ndata: \n\n"[..]);
        assert_eq!(event(&Event::default()), None);
    }

    #[test]
    fn only_breaks_cost_a_copy() {
        let plain = Bytes::from_static(b"{\"a\":1}");
        assert_eq!(one_line(plain.clone()).as_ptr(), plain.as_ptr());
        assert_eq!(one_line(Bytes::from_static(b"{\n}\r")), &b"{ } "[..]);
    }
}
