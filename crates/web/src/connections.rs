//! Connections: at most so many, none that waits forever. When all are taken, the one that has been idle longest makes room;
//! if none is, a newcomer is told to come back.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Bytes, Frame, SizeHint};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Sleep;

use crate::errors::ApiError;
use crate::http::{Body, Handler, Request, Response};

/// What connections may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Connections at once.
    pub(crate) most: usize,
    /// How long the head of a request, or the next request, may take.
    pub(crate) head_timeout: Duration,
    /// How long a client may take nothing of what is sent to it.
    pub(crate) write_timeout: Duration,
}

/// How often it is looked whether the program is to end.
const LOOK: Duration = Duration::from_millis(50);

/// How long somebody who is turned away is listened to.
const TURNED_AWAY: Duration = Duration::from_secs(1);

/// What is said when there is no room.
const NO_ROOM: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-type: application/json\r\n\
content-length: 109\r\n\r\n{\"error\":{\"message\":\"too many connections\",\"type\":\"server_error\",\"param\":null,\"code\":\"too_many_connections\"}}";

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Waits for a request, since then.
    Waiting(Instant),
    /// Answers one.
    Answering,
    /// Has given its place to another one, and ends.
    Ending,
}

/// A connection, as the others see it.
#[derive(Debug)]
struct Seat {
    doing: Mutex<Doing>,
    close: Notify,
}

impl Seat {
    fn new() -> Seat {
        Seat { doing: Mutex::new(Doing::Waiting(Instant::now())), close: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has come; whether it can be answered.
    fn begin(&self) -> bool {
        let mut doing = self.lock();
        let fine = *doing != Doing::Ending;
        if fine {
            *doing = Doing::Answering;
        }
        fine
    }

    /// The answer is sent.
    fn end(&self) {
        let mut doing = self.lock();
        if *doing == Doing::Answering {
            *doing = Doing::Waiting(Instant::now());
        }
    }

    fn waiting_since(&self) -> Option<Instant> {
        match *self.lock() {
            Doing::Waiting(since) => Some(since),
            _ => None,
        }
    }

    /// Ends it if it waits.
    fn evict(&self) -> bool {
        let mut doing = self.lock();
        let waits = matches!(*doing, Doing::Waiting(_));
        if waits {
            *doing = Doing::Ending;
            self.close.notify_one();
        }
        waits
    }
}

/// All open connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    seats: Mutex<BTreeMap<u64, Arc<Seat>>>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// A place for a connection, if need be that of the one that is idle longest.
    fn take(&self, number: u64, most: usize) -> Option<Arc<Seat>> {
        let mut seats = self.lock();
        if seats.len() >= most {
            let oldest = seats.iter().filter_map(|(number, seat)| Some((seat.waiting_since()?, *number))).min()?.1;
            // A request may have come meanwhile; then there is no room this time.
            if !seats.get(&oldest)?.evict() {
                return None;
            }
            seats.remove(&oldest);
        }
        let seat = Arc::new(Seat::new());
        seats.insert(number, seat.clone());
        Some(seat)
    }

    fn release(&self, number: u64) {
        self.lock().remove(&number);
    }
}

/// Serves until `stop` is set; then finishes what is under way. `refused` hears of each connection that found no room.
pub(crate) async fn serve(
    listener: TcpListener,
    handler: Handler,
    limits: ConnectionLimits,
    connections: Arc<Connections>,
    stop: Arc<AtomicBool>,
    refused: impl Fn(),
) {
    let mut tasks = JoinSet::new();
    let mut number = 0;
    let stopping = Arc::new(Notify::new());
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    // Out of descriptors, most likely: others must close first.
                    tokio::time::sleep(LOOK).await;
                    continue;
                };
                number += 1;
                match connections.take(number, limits.most) {
                    Some(seat) => {
                        let (handler, connections, stopping) = (handler.clone(), connections.clone(), stopping.clone());
                        let stop = stop.clone();
                        tasks.spawn(async move {
                            one(stream, handler, limits, seat, stopping, stop).await;
                            connections.release(number);
                        });
                    }
                    None => {
                        refused();
                        tasks.spawn(turn_away(stream, limits.write_timeout));
                    }
                }
            }
            _ = look.tick() => {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
            // Those that are over are forgotten.
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
    drop(listener);
    stopping.notify_waiters();
    for seat in connections.lock().values() {
        seat.evict();
    }
    while tasks.join_next().await.is_some() {}
}

async fn one(
    stream: TcpStream,
    handler: Handler,
    limits: ConnectionLimits,
    seat: Arc<Seat>,
    stopping: Arc<Notify>,
    stop: Arc<AtomicBool>,
) {
    // Audio is to be heard when it is made, not when a packet is full.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(Impatient { stream, patience: limits.write_timeout, waiting: None });
    let service = Counted { handler, seat: seat.clone() };
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(64 * 1024)
        .serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    let mut over = std::pin::pin!(stopping.notified());
    let mut told = false;
    if stop.load(Ordering::SeqCst) {
        return;
    }
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = seat.close.notified() => {
                connection.as_mut().graceful_shutdown();
                // One that never asked does not end by itself; one that asked just now is still told why.
                let _ = tokio::time::timeout(TURNED_AWAY, connection.as_mut()).await;
                return;
            }
            () = over.as_mut(), if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

async fn turn_away(mut stream: TcpStream, patience: Duration) {
    let _ = tokio::time::timeout(patience.min(TURNED_AWAY), async {
        stream.write_all(NO_ROOM).await?;
        stream.shutdown().await?;
        // What was sent is read: closing before that would take the answer away from the client.
        let mut request = [0; 4096];
        while stream.read(&mut request).await? > 0 {}
        io::Result::Ok(())
    })
    .await;
}

/// Knows whether a connection is answering or waiting.
struct Counted {
    handler: Handler,
    seat: Arc<Seat>,
}

impl Service<Request> for Counted {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request) -> Self::Future {
        if !self.seat.begin() {
            let refusal = ApiError::new(503, "too_many_connections", "too many connections").retry_after(5);
            return Box::pin(std::future::ready(Ok(refusal.response())));
        }
        let answer = (self.handler)(request);
        let busy = Busy(self.seat.clone());
        Box::pin(async move { Ok(answer.await.map(|body| Body::made(Watched { body, _busy: busy }))) })
    }
}

/// Idle again when this is gone: with the last byte of the answer, or with the answer itself.
struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Watched {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose writes fail when the other side takes nothing for a while.
struct Impatient {
    stream: TcpStream,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn bounded<T>(&mut self, context: &mut Context<'_>, answer: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if answer.is_ready() {
            self.waiting = None;
            return answer;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match waiting.as_mut().poll(context) {
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

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, answer)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, answer)
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
    use super::*;

    #[test]
    fn the_one_that_is_idle_longest_makes_room() {
        let connections = Connections::default();
        let seats: Vec<Arc<Seat>> = (1..=3).map(|number| connections.take(number, 3).expect("room")).collect();
        assert!(seats[0].begin());
        connections.take(4, 3).expect("the second made room");
        assert_eq!(connections.lock().keys().copied().collect::<Vec<_>>(), [1, 3, 4]);
        assert!(!seats[1].begin(), "a request that comes too late is told so");
        for seat in connections.lock().values() {
            seat.begin();
        }
        assert!(connections.take(5, 3).is_none(), "all are busy");
        connections.release(3);
        assert!(connections.take(5, 3).is_some());
    }

    #[test]
    fn the_length_of_the_refusal_is_right() {
        let text = std::str::from_utf8(NO_ROOM).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("two parts");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
