//! Standard input, with a signal for its end: whoever waits for a task then lets go at once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

/// A reader that says when it has come to its end.
pub struct Input<R> {
    reader: R,
    gone: CancellationToken,
}

impl<R> Input<R> {
    /// Wraps a reader; the token is cancelled at its end.
    pub fn new(reader: R) -> (Self, CancellationToken) {
        let gone = CancellationToken::new();
        (Input { reader, gone: gone.clone() }, gone)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Input<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.reader).poll_read(cx, buffer);
        if let Poll::Ready(read) = &polled
            && (read.is_err() || (buffer.filled().len() == before && buffer.remaining() > 0))
        {
            self.gone.cancel();
        }
        polled
    }
}
