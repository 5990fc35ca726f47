//! A connection whose client must take what is sent to it: not all at once, but at some pace.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::seats::Seat;

/// Bytes that a client must take while it is waited for once: two kilobytes a second with a patience of half a minute, and a
/// second of speech has forty.
const LEAST: usize = 64 * 1024;

/// A stream whose writes fail when the other side takes less than [`LEAST`] bytes in the time of its patience. Once the server
/// is to end it has that time once, not again and again.
pub(crate) struct Impatient<S> {
    stream: S,
    patience: Duration,
    seat: Arc<Seat>,
    stop: Arc<AtomicBool>,
    waiting: Option<Waiting>,
}

struct Waiting {
    end: Pin<Box<Sleep>>,
    taken: usize,
}

impl<S> Impatient<S> {
    pub(crate) fn new(stream: S, patience: Duration, seat: Arc<Seat>, stop: Arc<AtomicBool>) -> Impatient<S> {
        Impatient { stream, patience, seat, stop, waiting: None }
    }

    /// Counts what was taken, and waits for a client that takes nothing.
    fn bounded(&mut self, context: &mut Context<'_>, answer: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(answer) = answer {
            if let (Ok(bytes), Some(waiting)) = (&answer, &mut self.waiting) {
                waiting.taken += bytes;
                if waiting.taken >= LEAST && !self.stop.load(Ordering::SeqCst) {
                    self.waiting = None;
                }
            }
            return Poll::Ready(answer);
        }
        let patience = self.patience;
        let fresh = || Waiting { end: Box::pin(tokio::time::sleep(patience)), taken: 0 };
        let waiting = self.waiting.get_or_insert_with(fresh);
        match waiting.end.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let answer = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, answer)
    }

    /// Called when nothing is left to be written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = Pin::new(&mut self.stream).poll_flush(context);
        if answer.is_ready() {
            self.waiting = None;
            self.seat.sent();
        }
        answer
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let answer = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(context, answer)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::seats::Connections;

    /// Writes 30 KB to a client that takes 200 bytes every ten milliseconds, with a patience of 200: longer than between two of
    /// them, shorter than for all.
    fn written(stopping: bool) -> io::Result<()> {
        crate::runtime()?.block_on(async {
            let (ours, mut theirs) = tokio::io::duplex(1000);
            let seat = Connections::default().take(1, 1).expect("room");
            let stop = Arc::new(AtomicBool::new(stopping));
            let mut stream = Impatient::new(ours, Duration::from_millis(200), seat, stop);
            let taking = tokio::spawn(async move {
                let mut few = vec![0; 200];
                while theirs.read(&mut few).await.is_ok_and(|read| read > 0) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
            let all = stream.write_all(&[7; 30_000]).await;
            taking.abort();
            all
        })
    }

    #[test]
    fn a_byte_now_and_then_is_not_enough() {
        assert_eq!(written(false).map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        assert_eq!(written(true).map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
    }
}
