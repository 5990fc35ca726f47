//! A connection whose client must take what is sent to it: not all at once, but at some pace.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::seats::Seat;

/// Bytes that a client must take while it is waited for once: two kilobytes a second with a patience of half a minute, and a
/// second of speech has forty.
const LEAST: usize = 64 * 1024;

/// A stream whose writes fail when the other side takes less than [`LEAST`] bytes in the time of its patience. Once the server
/// is to end it has that time once, not again and again.
pub(crate) struct Impatient {
    pub(crate) stream: TcpStream,
    pub(crate) patience: Duration,
    pub(crate) seat: Arc<Seat>,
    pub(crate) stop: Arc<AtomicBool>,
    waiting: Option<Waiting>,
}

struct Waiting {
    end: Pin<Box<Sleep>>,
    taken: usize,
}

impl Impatient {
    pub(crate) fn new(stream: TcpStream, patience: Duration, seat: Arc<Seat>, stop: Arc<AtomicBool>) -> Impatient {
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

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
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
