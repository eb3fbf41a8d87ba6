//! From a checked request to the handler and back: path, method, `Accept`, body.
//!
//! Everything that can be refused without reading the body is, so that `Expect: 100-continue` saves an upload.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::EXPECT;
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::accept::Accept;
use super::body::ReplyBody;
use super::refusal::Refusal;
use super::reply::{self, Terms};
use super::{Handled, Handler, Inbound, Labels, Options};

/// How long a client may pause within its body.
const FRAME_PATIENCE: Duration = Duration::from_secs(30);
/// How long, and how many times over the limit, the rest of a refused body is read, so that a client which reads
/// only after writing sees why it was refused.
const DISCARD_PATIENCE: Duration = Duration::from_secs(5);
const DISCARD_FACTOR: usize = 4;

/// A path without its trailing slash.
pub(super) fn trimmed(path: &str) -> &str {
    match path.strip_suffix('/') {
        Some("") | None => path,
        Some(trimmed) => trimmed,
    }
}

/// The handler with the limits it needs around it.
#[derive(Debug)]
pub(super) struct Endpoint<H> {
    handler: H,
    max_body: usize,
    keepalive: Duration,
}

impl<H: Handler> Endpoint<H> {
    pub(super) fn new(handler: H, options: &Options) -> Self {
        Self { handler, max_body: options.max_body, keepalive: options.keepalive }
    }

    // Not an `async fn`, which would keep its arguments twice, for every request in flight.
    #[allow(clippy::manual_async_fn)]
    pub(super) fn serve(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
    ) -> impl Future<Output = Result<(Response<ReplyBody>, Labels), Refusal>> + Send {
        async move {
            if !self.handler.accepts(trimmed(request.uri().path())) {
                return Err(Refusal::Path);
            }
            let accept = Accept::of(request.headers());
            let is_post = match *request.method() {
                Method::POST if accept.is_nothing() => return Err(Refusal::NotAcceptable),
                Method::POST => true,
                Method::GET | Method::DELETE => false,
                _ => return Err(Refusal::Method),
            };
            let (parts, body) = request.into_parts();
            let body = match read(body, self.max_body).await {
                Err((Refusal::BodyTooLarge, rest)) if !parts.headers.contains_key(EXPECT) => {
                    discard(rest, self.max_body.saturating_mul(DISCARD_FACTOR)).await;
                    return Err(Refusal::BodyTooLarge);
                }
                read => read.map_err(|(refusal, _)| refusal)?,
            };
            let received = Instant::now();
            let (method, uri, headers) = (parts.method, parts.uri, parts.headers);
            let takes_events = accept.sse;
            let inbound = Inbound { method, uri, headers, peer, body, received, takes_events };
            let handled = self.handler.handle(inbound).await;
            let Handled { outgoing, upgrade, labels } = handled;
            let terms = Terms { accept, is_post, upgrade, keepalive: self.keepalive, received };
            Ok((reply::reply(outgoing, &terms).await, labels))
        }
    }
}

async fn read<B>(mut body: B, limit: usize) -> Result<Bytes, (Refusal, B)>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > limit as u64 {
        return Err((Refusal::BodyTooLarge, body));
    }
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    loop {
        let data = match next(&mut body).await {
            Err(refusal) => return Err((refusal, body)),
            Ok(None) => break,
            Ok(Some(frame)) => frame.into_data().unwrap_or_default(),
        };
        if first.len() + more.len() + data.len() > limit {
            return Err((Refusal::BodyTooLarge, body));
        }
        if first.is_empty() && more.is_empty() {
            first = data;
            continue;
        }
        if more.is_empty() {
            let expected = usize::try_from(body.size_hint().lower()).unwrap_or(limit).min(limit);
            more.reserve(first.len() + data.len() + expected);
            more.extend_from_slice(&std::mem::take(&mut first));
        }
        more.extend_from_slice(&data);
    }
    Ok(if more.is_empty() { first } else { more.freeze() })
}

/// The next frame; a timer is only made when there is something to wait for.
async fn next<B>(body: &mut B) -> Result<Option<Frame<Bytes>>, Refusal>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut frame = pin!(body.frame());
    let frame = match poll_fn(|cx| Poll::Ready(frame.as_mut().poll(cx))).await {
        Poll::Ready(frame) => frame,
        Poll::Pending => tokio::time::timeout(FRAME_PATIENCE, frame).await.map_err(|_| Refusal::BodyTimeout)?,
    };
    frame.transpose().map_err(|_| Refusal::BodyBroken)
}

async fn discard(mut body: Incoming, mut budget: usize) {
    let rest = async {
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let read = frame.data_ref().map_or(0, Bytes::len);
            match budget.checked_sub(read) {
                Some(left) => budget = left,
                None => break,
            }
        }
    };
    // Whether it came to the end does not matter: the answer is the same.
    drop(tokio::time::timeout(DISCARD_PATIENCE, rest).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::convert::Infallible;

    use futures_util::stream::{self, StreamExt};
    use http_body_util::StreamBody;

    fn frames(chunks: &[&'static str]) -> Vec<Result<Frame<Bytes>, Infallible>> {
        chunks.iter().map(|chunk| Ok(Frame::data(Bytes::from_static(chunk.as_bytes())))).collect()
    }

    #[tokio::test]
    async fn bodies_are_read_whole_up_to_the_limit() {
        for (chunks, expected) in
            [(&[][..], Ok("")), (&["ab"], Ok("ab")), (&["", "a", "", "bc", "d"], Ok("abcd")), (&["abc", "de"], Err(()))]
        {
            let read = read(StreamBody::new(stream::iter(frames(chunks))), 4).await;
            match expected {
                Ok(text) => assert_eq!(read.map_err(|(refusal, _)| refusal), Ok(Bytes::from(text))),
                Err(()) => assert_eq!(read.map_err(|(refusal, _)| refusal), Err(Refusal::BodyTooLarge)),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_given_up() {
        let started = Instant::now();
        let body = StreamBody::new(stream::iter(frames(&["ab"])).chain(stream::pending()));
        assert_eq!(read(body, 100).await.map_err(|(refusal, _)| refusal), Err(Refusal::BodyTimeout));
        assert_eq!(started.elapsed(), FRAME_PATIENCE);
    }

    #[test]
    fn one_trailing_slash_is_taken_off() {
        for (path, expected) in [("/mcp", "/mcp"), ("/mcp/", "/mcp"), ("/", "/"), ("", ""), ("/a//", "/a/")] {
            assert_eq!(trimmed(path), expected);
        }
    }
}
