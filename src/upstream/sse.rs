//! Bytes of an event stream to events.
//!
//! The format itself is `sse-stream`'s business; here it is fed chunk by chunk, so that an event has a size limit and
//! a stream whose last blank line is missing still gives its last event.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_util::{FutureExt, Stream, StreamExt};
use serde::de::IgnoredAny;
use sse_stream::{Sse, SseByteStream};

use super::Error;
use crate::call::Event;

/// Decodes one event stream: [`push`](Self::push) a chunk, take events until there are none, push the next.
pub struct Decoder {
    events: Box<SseByteStream<Feed>>,
    feed: Feed,
    limit: usize,
    /// How many of the bytes read so far belong to no later event.
    settled: usize,
    /// Whether the last byte ended a line.
    at_line_end: bool,
    finished: bool,
}

impl Decoder {
    /// A decoder for one stream whose events may have up to `limit` bytes each.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let feed = Feed::default();
        let events = Box::new(SseByteStream::new(feed.clone()));
        Self { events, feed, limit, settled: 0, at_line_end: true, finished: false }
    }

    /// Adds what came.
    pub fn push(&mut self, chunk: Bytes) {
        let Some(last) = chunk.last() else { return };
        // Comments keep a stream alive for hours: they do not add up to an event.
        if self.at_line_end && is_idle(&chunk) {
            self.settled += chunk.len();
        }
        self.at_line_end = is_line_end(*last);
        self.feed.push(chunk);
    }

    /// The stream has ended: an event without its blank line is delivered if its data is a complete JSON object or
    /// array. Take all events before.
    pub fn finish(&mut self) {
        if !self.finished {
            self.finished = true;
            self.feed.push(Bytes::from_static(b"\n\n"));
        }
    }

    /// The next event, if what was pushed completes one. Comments and unknown fields are dropped.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for an event over the limit, [`Error::Protocol`] for text that is not UTF-8. The decoder
    /// is of no use after either.
    #[allow(clippy::should_implement_trait)] // an iterator ends with `None`, this one goes on after a push
    pub fn next(&mut self) -> Result<Option<Event>, Error> {
        match self.events.next().now_or_never().flatten() {
            Some(Ok(event)) if self.finished => Ok(self.tail(event)),
            Some(Ok(event)) => {
                self.settled = self.feed.read();
                self.within_limit(event.data.as_ref().map_or(0, String::len))?;
                Ok(Some(from_sse(event)))
            }
            // Half a character at the end of a broken stream is no news.
            Some(Err(_)) if self.finished => Ok(None),
            Some(Err(_)) => Err(Error::Protocol("event stream is not UTF-8".into())),
            None => self.within_limit(self.feed.read().saturating_sub(self.settled)).map(|()| None),
        }
    }

    fn within_limit(&self, size: usize) -> Result<(), Error> {
        if size > self.limit { Err(Error::TooLarge { limit: self.limit }) } else { Ok(()) }
    }

    /// The event that the end of the stream cut off: whole, or nothing. An id that may be half an id is dropped.
    fn tail(&self, event: Sse) -> Option<Event> {
        let data = event.data.as_deref().filter(|data| data.trim_start().starts_with(['{', '[']))?;
        serde_json::from_str::<IgnoredAny>(data).ok()?;
        let event = from_sse(event);
        Some(if self.at_line_end { event } else { Event { data: event.data, ..Event::default() } })
    }
}

fn from_sse(event: Sse) -> Event {
    Event { id: event.id, event: event.event, data: event.data.map(Bytes::from), retry: event.retry }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Whether a chunk that starts a line holds nothing but whole comments and blank lines.
fn is_idle(chunk: &[u8]) -> bool {
    matches!(chunk.first(), Some(b':' | b'\n' | b'\r'))
        && chunk.last().copied().is_some_and(is_line_end)
        && chunk.split(|byte| is_line_end(*byte)).all(|line| matches!(line.first(), None | Some(b':')))
}

/// The decoder's other end: chunks that wait to be read, and how many bytes were.
#[derive(Clone, Default)]
struct Feed(Arc<Shared>);

#[derive(Default)]
struct Shared {
    chunks: Mutex<VecDeque<Bytes>>,
    read: AtomicUsize,
}

impl Feed {
    fn push(&self, chunk: Bytes) {
        self.0.chunks.lock().unwrap_or_else(PoisonError::into_inner).push_back(chunk);
    }

    fn read(&self) -> usize {
        self.0.read.load(Ordering::Relaxed)
    }
}

impl Stream for Feed {
    type Item = Result<Chunk, Infallible>;

    /// Never ends; nobody is woken, because [`Decoder::next`] asks again after every push.
    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.chunks.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
            Some(bytes) => Poll::Ready(Some(Ok(Chunk { bytes, feed: self.clone() }))),
            None => Poll::Pending,
        }
    }
}

/// A chunk that tells how far it was read: an event may end in its middle.
struct Chunk {
    bytes: Bytes,
    feed: Feed,
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.feed.0.read.fetch_add(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Event>, Error> {
        let mut decoder = Decoder::new(1 << 20);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(Bytes::copy_from_slice(chunk));
            while let Some(event) = decoder.next()? {
                events.push(event);
            }
        }
        decoder.finish();
        while let Some(event) = decoder.next()? {
            events.push(event);
        }
        Ok(events)
    }

    fn data(text: &'static str) -> Event {
        Event { data: Some(Bytes::from_static(text.as_bytes())), ..Event::default() }
    }

    fn corpus() -> Vec<(&'static str, Vec<Event>)> {
        let id = |id: &str| Event { id: Some(id.into()), ..Event::default() };
        let named = |name: &str, text| Event { event: Some(name.into()), ..data(text) };
        vec![
            ("data: {\"a\":1}\n\n", vec![data("{\"a\":1}")]),
            ("data: 1\r\n\r\ndata: 2\r\n\r\n", vec![data("1"), data("2")]),
            ("data: 1\r\rdata: 2\r\r", vec![data("1"), data("2")]),
            ("data: 1\r\n\ndata: 2\n\r\n", vec![data("1"), data("2")]),
            ("data: {\"a\":\ndata: 1}\n\n", vec![data("{\"a\":\n1}")]),
            ("data:1\n\ndata:  2\n\n", vec![data("1"), data(" 2")]),
            ("\u{feff}data: 1\n\n", vec![data("1")]),
            ("\u{feff}: hello\n\ndata: 1\n\n", vec![data("1")]),
            (": keep\n\n:\n\ndata: 1\n: in between\n\n", vec![data("1")]),
            ("data: é漢🙂 \u{2028}\u{2029}\u{85}x\n\n", vec![data("é漢🙂 \u{2028}\u{2029}\u{85}x")]),
            ("id: e1\n\n", vec![id("e1")]),
            ("id: e1\ndata: \n\n", vec![Event { data: Some(Bytes::new()), ..id("e1") }]),
            ("retry: 300\n\nretry: x\n\n", vec![Event { retry: Some(300), ..Event::default() }]),
            ("event: message\ndata: 1\n\nevent: ping\ndata: 2\n\n", vec![named("message", "1"), named("ping", "2")]),
            ("nonsense\nfoo: bar\ndata: 1\n\n\n\n", vec![data("1")]),
            ("data: 1\n\ndata: {\"tail\":[]}", vec![data("1"), data("{\"tail\":[]}")]),
            ("data: {\"tail\":[]}\n", vec![data("{\"tail\":[]}")]),
            ("id: e9\r\ndata: [1]\r\n", vec![Event { id: Some("e9".into()), ..data("[1]") }]),
            ("data: [1]\nid: e", vec![data("[1]")]),
            ("data: {\"tail\":[", vec![]),
            ("data: 12", vec![]),
            ("id: e1", vec![]),
            ("", vec![]),
        ]
    }

    #[test]
    fn every_framing_gives_its_events_whole_and_byte_by_byte() {
        for (stream, events) in corpus() {
            assert_eq!(decode([stream.as_bytes()]).unwrap(), events, "{stream:?}");
            assert_eq!(decode(stream.as_bytes().chunks(1)).unwrap(), events, "{stream:?} by bytes");
        }
    }

    #[test]
    fn text_that_is_not_utf8_is_an_error() {
        let error = decode([&b"data: \xff\xfe\n\ndata: 1\n\n"[..]]).unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error}");
        assert_eq!(decode([&b"data: 1\n\ndata: {\"\xe2\x82"[..]]).unwrap(), [data("1")]);
    }

    #[test]
    fn an_event_has_a_limit_and_a_stream_has_none() {
        let mut decoder = Decoder::new(100);
        for _ in 0..1000 {
            decoder.push(Bytes::from_static(b": keepalive\n\n"));
            assert_eq!(decoder.next(), Ok(None));
            decoder.push(Bytes::from_static(b"data: 0123456789\n\n"));
            assert_eq!(decoder.next(), Ok(Some(data("0123456789"))));
        }
        for _ in 0..7 {
            assert_eq!(decoder.next(), Ok(None));
            decoder.push(Bytes::from_static(b"data: 01234567"));
        }
        assert_eq!(decoder.next(), Ok(None));
        decoder.push(Bytes::from_static(b"890"));
        assert_eq!(decoder.next(), Err(Error::TooLarge { limit: 100 }));
    }

    #[test]
    fn the_limit_counts_from_the_last_event_within_a_chunk() {
        let mut decoder = Decoder::new(100);
        for (padding, outcome) in [(94, Ok(None)), (95, Err(Error::TooLarge { limit: 100 }))] {
            decoder.push(Bytes::from(format!("\n\ndata: 1\n\ndata: {}", "x".repeat(padding))));
            while let Ok(Some(_)) = decoder.next() {}
            assert_eq!(decoder.next(), outcome, "{padding}");
        }
    }

    #[test]
    fn a_large_event_in_one_chunk_is_refused() {
        let mut decoder = Decoder::new(100);
        decoder.push(Bytes::from(format!("data: {}\n\n", "x".repeat(101))));
        assert_eq!(decoder.next(), Err(Error::TooLarge { limit: 100 }));
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(picks in prop::collection::vec(0..18_usize, 1..8), cuts in prop::collection::vec(0..400_usize, 0..40)) {
            let corpus = corpus();
            // Complete streams only, without a BOM in the middle: they can be joined.
            let complete: Vec<_> = corpus.iter().filter(|(stream, _)| stream.ends_with(['\n', '\r']) && !stream.starts_with('\u{feff}')).collect();
            let stream: String = picks.iter().map(|pick| complete[pick % complete.len()].0).collect();
            let bytes = stream.as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut % (bytes.len() + 1)).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            prop_assert_eq!(decode(chunks).unwrap(), decode([bytes]).unwrap());
        }

        #[test]
        fn no_bytes_panic(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20)) {
            let _ = decode(chunks.iter().map(Vec::as_slice));
        }
    }
}
