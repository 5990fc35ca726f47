//! Connections: at most so many, none that waits forever. When all are taken, the one that has been idle longest makes room;
//! if none is, a newcomer is told to come back.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::body::RequestBody;
use crate::errors::ApiError;
use crate::http::{Body, Handler, Response};
use crate::patience::Impatient;
use crate::seats::{Connections, Seat};

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

/// How long a connection that makes room can still ask something, and is told why not.
const LAST_WORD: Duration = Duration::from_millis(250);

/// Connections that wait to be accepted while others make room.
const BACKLOG: u32 = 1024;

/// What is said when there is no room.
const NO_ROOM: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-type: application/json\r\n\
content-length: 109\r\n\r\n{\"error\":{\"message\":\"too many connections\",\"type\":\"server_error\",\"param\":null,\"code\":\"too_many_connections\"}}";

/// Listens.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As the standard library does: a server that was ended can be started again at once.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
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
            // Those who make room or are turned away are there for a moment more; newcomers wait rather than being too many.
            accepted = listener.accept(), if tasks.len() < 2 * limits.most => {
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
                        // It is looked at, and what it asks already is read, before the next one may need its place.
                        tokio::task::yield_now().await;
                        tokio::task::yield_now().await;
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
    connections.evict_idle();
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
    let io = TokioIo::new(Impatient::new(stream, limits.write_timeout, seat.clone(), stop.clone()));
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
            () = seat.evicted() => {
                connection.as_mut().graceful_shutdown();
                // One that never asked does not end by itself; one that asks just now is still told why.
                let _ = tokio::time::timeout(LAST_WORD, connection.as_mut()).await;
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

impl Service<hyper::Request<Incoming>> for Counted {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        if !self.seat.begin() {
            let refusal = ApiError::new(503, "too_many_connections", "too many connections").retry_after(5);
            return Box::pin(std::future::ready(Ok(refusal.response())));
        }
        let request = request.map(RequestBody::new);
        let rest = request.body().clone();
        let answer = (self.handler)(request);
        let busy = Busy(self.seat.clone());
        Box::pin(async move {
            let answer = answer.await;
            rest.skip().await;
            Ok(answer.map(|body| Body::made(Watched { body, _busy: busy })))
        })
    }
}

/// The answer is made when this is gone: all of its bytes are on their way.
struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.made();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_the_refusal_is_right() {
        let text = std::str::from_utf8(NO_ROOM).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("two parts");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
