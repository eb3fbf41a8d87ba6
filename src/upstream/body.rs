//! The body of an upstream's answer, decoded if it came compressed.
//!
//! taskgate asks for no compression; servers that compress all the same are decoded, and all others pay nothing for it.

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderValue, Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tower::ServiceExt;
use tower_http::decompression::{Decompression, DecompressionBody};

use super::Error;
use crate::call::BodyError;

/// The bytes of an answer as they come.
pub struct Body(Inner);

enum Inner {
    Plain(Incoming),
    Decoded(Pin<Box<DecompressionBody<Incoming>>>),
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().0 {
            Inner::Plain(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Inner::Decoded(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Plain(body) => body.is_end_stream(),
            Inner::Decoded(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Plain(body) => body.size_hint(),
            Inner::Decoded(body) => body.size_hint(),
        }
    }
}

/// Undoes the answer's content encoding and drops the headers that it makes untrue.
pub(super) async fn decoded(mut response: Response<Incoming>) -> Result<Response<Body>, Error> {
    let Some(encoding) = response.headers().get(CONTENT_ENCODING) else {
        return Ok(response.map(plain));
    };
    let known = match encoding.as_bytes().trim_ascii().to_ascii_lowercase().as_slice() {
        b"gzip" | b"x-gzip" => "gzip",
        b"deflate" => "deflate",
        b"br" => "br",
        b"zstd" => "zstd",
        b"identity" | b"" => {
            response.headers_mut().remove(CONTENT_ENCODING);
            return Ok(response.map(plain));
        }
        unknown => return Err(Error::encoding(unknown)),
    };
    if response.headers().get_all(CONTENT_ENCODING).iter().count() > 1 {
        return Err(Error::encoding(b"given twice"));
    }
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(known));
    let mut response = decompress(response).await;
    response.headers_mut().remove(CONTENT_ENCODING);
    response.headers_mut().remove(CONTENT_LENGTH);
    Ok(response.map(|body| Body(Inner::Decoded(Box::pin(body)))))
}

fn plain(body: Incoming) -> Body {
    Body(Inner::Plain(body))
}

/// The decoder is only to be had as a layer around a service: this one answers once.
async fn decompress(response: Response<Incoming>) -> Response<DecompressionBody<Incoming>> {
    let mut response = Some(response);
    let once = tower::service_fn(move |_: Request<()>| {
        ready(Ok::<_, Infallible>(response.take().expect("a service used by oneshot is called once")))
    });
    match Decompression::new(once).oneshot(Request::new(())).await {
        Ok(decoded) => decoded,
        Err(never) => match never {},
    }
}
